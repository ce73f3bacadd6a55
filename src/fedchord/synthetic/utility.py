"""What a synthetic set is good for: the fixed classifier on clients' rows and on the official test rows, with bounds.

The upper bound is the same recipe on as many real training rows (as many of each class), the lower bound the same
recipe on the synthetic samples with their labels dealt out at random. For rows that are vectors, `real` is the same
recipe on all clients' training rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedchord import rng
from fedchord.core.objective import Batch
from fedchord.data.federation import Federation
from fedchord.evaluation.evaluate import ROWS, everyone
from fedchord.metrics import by_client
from fedchord.synthetic.learn import Judge, Learnt, judged, learn
from fedchord.synthetic.quality import pick
from fedchord.synthetic.set import SyntheticSet

Numbers = dict[str, float]


@dataclass(frozen=True)
class Utility:
    """A classifier's metrics: plain means over clients (and their std), and on the official test rows, if any."""

    clients: Numbers
    spread: Numbers
    official: Numbers | None
    loss: float
    """On the rows it has learnt."""


@dataclass(frozen=True)
class Utilities:
    """The synthetic set between its bounds."""

    synthetic: Utility
    upper: Utility
    lower: Utility
    real: Utility | None = None
    """Of all training rows; for vectors only."""


def utilities(judge: Judge, made: SyntheticSet, federation: Federation, seed: int) -> Utilities:
    """Train the classifier on the synthetic set, on as many real rows, on random labels and, for vectors, on all real
    rows, and measure them all."""
    key = rng.key(seed, "judge")
    real = pick(federation, made.spc, rng.key(seed, "upper"))
    dealt = made.y[rng.permutation(rng.key(seed, "lower"), len(made.y))]
    upper = learn(judge, {"x": real.x, "y": real.y}, made.classes, key)
    lower = learn(judge, {"x": made.x, "y": dealt}, made.classes, key)
    found = [judged(judge, made, seed), upper, lower]
    if len(made.shape) == 1:
        every = federation.batch(federation.train.rows)
        found.append(learn(judge, {"x": every["x"], "y": every["y"]}, made.classes, key))
    return Utilities(*(utility(one, federation) for one in found))


def utility(learnt: Learnt, federation: Federation) -> Utility:
    """Measure a classifier."""
    found, _, _ = everyone(learnt.task, federation, learnt.model)
    means, spreads = ({name: values[c] for name, values in found.items()} for c in ("mean", "std"))
    return Utility(means, spreads, official(learnt, federation), learnt.loss)


def official(learnt: Learnt, federation: Federation, metrics: tuple[str, ...] = ()) -> Numbers | None:
    """A classifier's metrics (the usual ones unless named) on the official test rows, as one set; None if the data have
    none."""
    if federation.holdout is None:
        return None
    task, parts = learnt.task, []
    for rows in torch.arange(len(federation.holdout["y"])).split(ROWS):
        batch: Batch = federation.ready({name: column[rows] for name, column in federation.holdout.items()})
        outputs = task.outputs(learnt.model["theta"], learnt.model["buffers"], batch)
        parts.append(task.objective.predictions(outputs, batch))
    scores, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    found = by_client(metrics or task.objective.metrics, scores, labels, torch.tensor([0, len(labels)]))
    return {name: float(value[0]) for name, value in found.items()}
