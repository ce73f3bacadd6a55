"""Games with rows: a client that has a row, or has not, and how much what it releases looks as if the row were there.

Where rows are hidden in gradients, the canary's clipped gradient has its whole length along one direction, and its
client's uploads are looked at, to a server that asks at the same model in every round. Where they are hidden in sums of
features, it is the only row of its class, its clipped features have their whole length, and the noised sums and counts
are looked at, from which all that leaves is made: who sees no more than that cannot guess better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from fedchord import check, rng
from fedchord.core.local import local_round, train
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, RoundInfo, SamplesRule, Visit
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.privacy.rows import Hiding, PoissonStream, RowTask
from fedchord.tensors import Tensors

WIDTH, FAR, STEP = 4, 1e4, 1e-7
"""Features of a row, the canary's in the direction that only it has, and a rate by which no step changes the next."""
HEARD = 6
"""Features that a random network makes of a row."""


class Network(nn.Module):
    """Random features, and a last layer after them."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(WIDTH, HEARD), nn.Linear(HEARD, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x))
        return found


@final
@dataclass(frozen=True)
class Rows:
    """One client's rows."""

    x: Tensor
    y: Tensor
    name: str = "audit"
    client_names: tuple[str, ...] = ("client",)
    row_bytes: int = 4 * WIDTH

    @property
    def train(self) -> list[Tensor]:
        return [torch.arange(len(self.x))]

    def batch(self, rows: Tensor, key: int | None = None) -> Batch:
        return {"x": self.x[rows], "y": self.y[rows]}


def rows_of(key: int, size: int, canary: bool) -> Tensor:
    """So many usual rows, which have nothing of the first feature; the last may be the canary, which has that alone."""
    x = rng.normal(rng.key(key, "rows"), (size, WIDTH))
    x[:, 0] = 0.0
    if canary:
        x[-1] = torch.tensor([FAR, *[0.0] * (WIDTH - 1)])
    return x


CANARY = Rows(rows_of(0, 1, True), torch.ones(1, dtype=torch.int64))
"""The canary alone, of a class that no other row has."""


@final
@dataclass(frozen=True)
class Gradients:
    """The game where rows are hidden in gradients."""

    rule: ClientRule
    task: RowTask
    training: Training
    rows: int
    infos: Sequence[RoundInfo]

    def play(self, there: bool, key: int) -> float:
        """How far the uploads of all rounds went along the canary's gradient: between the two weights of the first
        feature, where the gradients of other rows are nothing. The number of rows is known, so that a usual row is in
        the canary's place where it is not there: it is nothing in what is looked at. The server broadcasts zeros every
        time."""
        x, shared = rows_of(key, self.rows + 1, there), {"theta": torch.zeros(self.task.layout.size)}
        rows, shared = Rows(x, torch.zeros(len(x), dtype=torch.int64)), shared | {"buffers": torch.zeros(0)}
        own, found = self.rule.init(self.task, shared, rng.key(key, "own")), 0.0
        for info in self.infos:
            stream = PoissonStream(rows, 0, self.training.batch, rng.key(key, "batches", info.round))
            slow, local = replace(info, lr=STEP), rng.key(key, "local", info.round)
            upload, own, _ = local_round(self.rule, self.task, self.training, shared, own, stream, slow, 0, local)
            sent = self.task.layout.views(upload.mix["theta"].double())["weight"]
            found += float(sent[0, 0] - sent[1, 0])
        return found / STEP


@final
@dataclass(frozen=True)
class Sums:
    """The game where a rule that trains nothing hides rows in `sums` of features and `counts` of rows, by class."""

    rule: SamplesRule
    task: Task
    hiding: Hiding
    training: Training
    rows: int
    infos: Sequence[RoundInfo]

    def play(self, there: bool, key: int) -> float:
        """How much the sums and counts of all rounds look as if the canary were there. With s and c what it adds to
        them, of norms C and 1, and noise of one std in units of these,

            <s, sums> / C^2 + <c, counts>

        tells the two cases apart as well as anything can. Where the canary is not there, no row is in its place."""
        x, y = rows_of(key, self.rows, False), torch.zeros(self.rows, dtype=torch.int64)
        rows = Rows(torch.cat([x, CANARY.x]), torch.cat([y, CANARY.y])) if there else Rows(x, y)
        rule, found = self.rule.hiding(self.hiding), 0.0
        for info, added in zip(self.infos, self._added, strict=True):
            told = self._read(rule, rows, info, key)
            found += float((added["sums"] * told["sums"].double()).sum() / self.hiding.clip**2)
            found += float((added["counts"] * told["counts"].double()).sum())
        return found

    @cached_property
    def _added(self) -> list[Tensors]:
        """What the canary adds in every round: who guesses does what the client does, without noise."""
        silent = replace(self.hiding, course=replace(self.hiding.course, given=0.0))
        return [self._read(self.rule.hiding(silent), CANARY, info, 0) for info in self.infos]

    def _read(self, rule: SamplesRule, rows: Rows, info: RoundInfo, key: int) -> Tensors:
        """A visit up to the sums and counts that its upload is made of."""
        stream = ClientStream(rows, 0, self.training.batch, rng.key(key, "batches", info.round))
        visit = Visit(self.task, rule.opening(self.task, 0), {}, info, 0, stream.size)
        phases = rule.phases(visit)
        visit = replace(visit, steps=sum(stream.steps(phase) for phase in phases))
        trained = train(rule, self.training, visit, stream, phases, rng.key(key, "local", info.round))
        told = f"the canary of rows is looked for in sums and counts, and {type(rule).__name__} has none"
        check.require({"sums", "counts"} <= trained.keys(), "audit", told)
        return trained
