"""A program for torchrun, and for one process: methods on a toy federation, and all that they end with in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from fedchord import catalog
from fedchord.core.round import Plan, open_run
from fedchord.core.rules import Algorithm
from fedchord.core.training import Training
from fedchord.engine.compress import asked
from fedchord.engine.executors import make_executor
from fedchord.engine.group import group_of
from fedchord.engine.memory import ClientMemory
from fedchord.engine.ranks import RankMemory
from fedchord.engine.simulate import rounds_of
from fedchord.engine.work import Work
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import sweep
from fedchord.testing.contract import FEDERATION, Contract, states

METHODS = ("fedavg", "scaffold", "superfed-mm", "aaggff-d", "fedevg", "fedper", "fedavg-ft", "scaffold bytes")


class Named(Contract):
    """A method of the catalogue."""

    def __init__(self, name: str) -> None:
        self._name = name

    def algorithm(self) -> Algorithm:
        return catalog.build(self._name.partition(" ")[0])


def ended(name: str, executor: str) -> dict[str, torch.Tensor]:
    """Everything a method ends with here: the server's state, the private states of this process, what was measured."""
    method, form = Named(name), name.partition(" ")[2]
    group, plan = group_of(executor), Plan(4, method.cohort(), 1)
    training = Training(epochs=2, batch=4, lr=0.05)
    work = Work.of(method.algorithm(), method.task(), FEDERATION, training, 1, "cpu", compress=asked(form or None))
    state = open_run(work.algorithm, work.task, FEDERATION.num_clients, plan)
    runner = make_executor(executor, work, state.broadcast, method.cohort())
    *_, last = rounds_of(runner, plan, state, RankMemory.of(ClientMemory(), group))
    found = states(last)
    if work.algorithm.outcome == "model":
        evaluation = evaluate(Fitted.of(last), metrics=("top1", "loss"), executor=runner)
        found |= {f"measured {metric}": values for metric, values in evaluation.per_client.items()}
        found["global model"] = torch.tensor(evaluation.protocol["global_model"])
        swept = sweep(Fitted.of(last), executor=runner)
        found |= {} if swept is None else {"swept": swept.test}
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    out, *names = sys.argv[1:]
    found = {name: {key: value.clone() for key, value in ended(name, "ranks").items()} for name in names}
    torch.save(found, Path(out) / f"rank-{group_of('ranks').rank}.pt")
