"""The fixed classifier: one recipe for every synthetic set, whichever method made it, and for the real rows beside it.

SGD with momentum on batches of `batch` rows for `steps` steps; in step t of T the direction, the gradient plus
`weight_decay` theta, is multiplied by (1 + cos(pi t / T)) / 2, so that it ends at rest, and shortened to the norm
`clip`. Pictures are moved by up to `shift` of their side in each direction, each row on its own, and the border is
filled with the smallest value of the picture.

A network can die: bright rows and a long first step leave no unit alive, and it says the same of every row ever after.
One whose loss on its rows ends above half the entropy of their labels learns again, from the same start, at half the
rate, up to four times; the one of lowest loss counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fedchord import check, models, rng
from fedchord.core.local import data_loss, local_round
from fedchord.core.objective import BINARY, CLASSIFICATION, Batch
from fedchord.core.rules import ClientRule, Phase, RoundInfo, Slope, Upload, Visit, shared_model
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.engine.executors import one_thread
from fedchord.synthetic.set import SyntheticSet
from fedchord.tensors import Tensors

DENSE = (600, 0.1)
"""Steps and learning rate of logistic regression and TwoNN."""
OTHERS = (300, 0.02)
"""The same of other networks."""
HALVINGS = 4
"""How often a network that did not learn is given half the rate."""


@dataclass(frozen=True)
class Judge:
    """How a synthetic set is judged: the classifier by name (None: by the shape of a row) and its recipe.

    Where `steps` and `lr` are None they are those of `DENSE` for logistic regression and TwoNN, else of `OTHERS`; with
    them the loss on 100 real digits falls below 0.1.
    """

    classifier: str | None = None
    steps: int | None = None
    batch: int = 50
    lr: float | None = None
    momentum: float = 0.9
    weight_decay: float = 5e-4
    clip: float = 1.0
    shift: float = 0.08

    def __post_init__(self) -> None:
        if self.classifier is not None:
            models.check_name(self.classifier)
            draws = self.classifier.partition(":")[0] in models.GENERATIVE
            check.require(not draws, "Judge", f"the classifier cannot be {self.classifier}, which draws samples")
        if self.steps is not None:
            check.whole("Judge", "steps", self.steps, 1)
        if self.lr is not None:
            check.positive("Judge", "lr", self.lr)
        check.whole("Judge", "batch", self.batch, 1)
        check.below("Judge", "shift", self.shift, 0.5)
        check.below("Judge", "momentum", self.momentum, 1)
        check.at_least("Judge", "weight_decay", self.weight_decay, 0)
        check.at_least("Judge", "clip", self.clip, 0)

    def name(self, shape: tuple[int, ...]) -> str:
        """The classifier for rows of a shape: a small ConvNet for pictures of 16 pixels or more, TwoNN for smaller
        ones, logistic regression for vectors."""
        if self.classifier is not None:
            return self.classifier
        return "logreg" if len(shape) != 3 else "smallconv" if min(shape[1:]) >= 16 else "twonn"

    def task(self, shape: tuple[int, ...], classes: int) -> Task:
        """The classifier as a task; two classes are one logit with a sigmoid."""
        name, binary = self.name(shape), classes == 2
        return Task(lambda: models.build(name, shape, 1 if binary else classes), BINARY if binary else CLASSIFICATION)

    def pace(self, shape: tuple[int, ...]) -> tuple[int, float]:
        """Steps and learning rate for rows of a shape."""
        steps, lr = DENSE if self.name(shape) in ("logreg", "twonn") else OTHERS
        return self.steps or steps, self.lr or lr

    def told(self, shape: tuple[int, ...]) -> str:
        """The recipe in words, for the protocol."""
        pixels = self.pixels(shape)
        moved = f", shifts of up to {pixels} pixel{'s' if pixels > 1 else ''}" if pixels else ""
        steps, lr = self.pace(shape)
        return f"{self.name(shape)}, {steps} steps of SGD (momentum {self.momentum:g}, lr {lr:g}, cosine){moved}"

    def pixels(self, shape: tuple[int, ...]) -> int:
        """How far a picture of a shape is moved."""
        return int(self.shift * min(shape[1:])) if len(shape) == 3 else 0


@dataclass(frozen=True)
class Learnt:
    """A classifier after the recipe: its task, its parameters, and its loss on the rows it has learnt."""

    task: Task
    model: Tensors
    loss: float


def learn(judge: Judge, rows: Batch, classes: int, key: int) -> Learnt:
    """A fresh classifier trained on some rows; a network that did not learn them is trained again, more slowly."""
    shape = tuple(rows["x"].shape[1:])
    rate, again = judge.pace(shape)[1], 0 if judge.name(shape) == "logreg" else HALVINGS
    shares = torch.bincount(rows["y"].long(), minlength=classes).double() / max(len(rows["y"]), 1)
    enough = float(torch.special.entr(shares).sum()) / 2
    found = [_learn(judge, rows, classes, key, rate)]
    while len(found) <= again and not found[-1].loss < enough:
        found.append(_learn(judge, rows, classes, key, rate / 2 ** len(found)))
    return min(found, key=lambda one: math.inf if math.isnan(one.loss) else one.loss)


def _learn(judge: Judge, rows: Batch, classes: int, key: int, lr: float) -> Learnt:
    """A fresh classifier trained on some rows at a rate."""
    shape = tuple(rows["x"].shape[1:])
    task = judge.task(shape, classes)
    everything = Ragged.of([torch.arange(len(rows["y"]))])
    none = Ragged.of([torch.zeros(0, dtype=torch.int64)])
    whole = Federation("synthetic", dict(rows), classes, everything, none, none, ("server",))
    stream = ClientStream(whole, 0, judge.batch, rng.key(key, "batches"), least=task.least_batch)
    steps = judge.pace(shape)[0]
    rule = Recipe(steps, judge.pixels(shape), judge.weight_decay)
    training = Training(epochs=1, batch=judge.batch, lr=lr, momentum=judge.momentum, clip=judge.clip)
    info = RoundInfo(round=0, rounds=1, num_clients=1, cohort=1, lr=lr, epochs=1, key=key)
    first = task.fresh(rng.key(key, "model"))
    with one_thread():
        upload, _, _ = local_round(rule, task, training, first, {}, stream, info, 0, rng.key(key, "local"))
        model = {"theta": upload.mix["theta"], "buffers": upload.carry["buffers"]}
        return Learnt(task, model, float(data_loss(task, model, stream)))


def judged(judge: Judge, made: SyntheticSet, seed: int) -> Learnt:
    """The classifier trained on a synthetic set."""
    return learn(judge, made.batch, made.classes, rng.key(seed, "judge"))


@final
@dataclass(frozen=True)
class Recipe(ClientRule):
    """The recipe as a client rule: `steps` steps on moved pictures, along a direction that falls to zero."""

    steps: int
    shift: int = 0
    decay: float = 0.0

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(steps=self.steps),)

    def start(self, visit: Visit) -> Tensors:
        return shared_model(visit.shared) | {"step": torch.zeros(())}

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Slope:
        slope = visit.slope(trained, moved(batch, self.shift, key), key)
        share = (1 + math.cos(math.pi * float(trained["step"]) / self.steps)) / 2
        theta = slope["theta"].add(trained["theta"], alpha=self.decay) * share
        return {"theta": theta, "buffers": slope["buffers"], "step": trained["step"] + 1}

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        return Upload(mix={"theta": trained["theta"]}, carry={"buffers": trained["buffers"]}), {}


def moved(batch: Batch, shift: int, key: rng.Key) -> Batch:
    """The pictures of a batch, each moved by whole pixels drawn uniformly from -shift..shift in both directions."""
    if not shift:
        return batch
    x = batch["x"]
    n = len(x)
    steps = (rng.uniform(key, 2 * n) * (2 * shift + 1)).long().reshape(2, n)
    return batch | {"x": move(x, steps[0], steps[1], shift)}


def move(x: Tensor, down: Tensor, right: Tensor, shift: int) -> Tensor:
    """Pictures (n, channels, height, width) moved by `down - shift` and `right - shift` pixels; what comes in has the
    smallest value of its picture."""
    n, channels, height, width = x.shape
    border = x.flatten(1).amin(1).reshape(n, 1, 1, 1)
    wide = border.expand(n, channels, height + 2 * shift, width + 2 * shift).clone()
    wide[:, :, shift : shift + height, shift : shift + width] = x
    rows = (torch.arange(height) + (2 * shift - down).unsqueeze(1)).reshape(n, 1, height, 1)
    columns = (torch.arange(width) + (2 * shift - right).unsqueeze(1)).reshape(n, 1, 1, width)
    return wide[torch.arange(n).reshape(n, 1, 1, 1), torch.arange(channels).reshape(1, channels, 1, 1), rows, columns]
