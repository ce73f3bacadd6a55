"""Evaluations in which the rows of every client go through the model by themselves.

Where clients share a model, `evaluate` puts the rows of many through it at once. On some processors a product of other
rows at once is rounded differently, so that these values are the same to the bit only where the pieces are.
"""

from __future__ import annotations

from fedchord.evaluation.evaluate import Evaluation, measured, merged, scored, summed_up
from fedchord.evaluation.fitted import Fitted


def each_alone(fitted: Fitted, metrics: tuple[str, ...] | None = None) -> Evaluation:
    """What every client measures with the model it deploys."""
    names, clients = metrics or fitted.work.task.objective.metrics, fitted.clients("test")
    return merged(
        fitted, "test", names, [measured(fitted, [client], "test", names) for client in clients], len(clients)
    )


def everyone_alone(task, federation, model, split="test", metrics=None, executor=None):
    """What every client measures with one model, in place of `everyone`."""
    names, clients = metrics or task.objective.metrics, range(federation.num_clients)
    return *summed_up(names, [scored(task, federation, [i], model, split, names) for i in clients]), tuple(clients)
