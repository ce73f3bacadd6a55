"""SuPerFed: personal models by mode connectivity between the global model and a private one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar, final

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.clients.prox import pulled
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Phase, RoundInfo, Slope, Upload, Visit, shared_model
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser
from fedchord.tensors import Layout, Tensors, cosine

BLOCK = 1 << 19
"""How many parameters are handled at a time, so that a block of each vector stays in the cache."""
LARGE = 1 << 16
"""Gradients of tensors with this many parameters, or more, are used as they are, without a copy."""

Number = TypeVar("Number", float, Tensor)


@final
@dataclass(frozen=True)
class SuPerFed(ClientRule):
    """Trains all models on the line between the federated model f and a private model l (thesis, chapter 2).

    With g the received model and lam drawn anew for every batch, uniform on [0, 1), one for the whole model (MM) or one
    per module (LM, `layerwise`; all tensors of a module share it), the batch objective is

        J(f, l) = loss((1 - lam) f + lam l) + (mu / 2) ||f - g||^2 + nu cos^2(f, l).

    One gradient G at the mixed point serves both ends (departs: E1, E2):

        dJ/df = (1 - lam) G + mu (f - g) + 2 nu c (l / (|f| |l|) - c f / |f|^2),   c = cos(f, l),
        dJ/dl =      lam  G              + 2 nu c (f / (|f| |l|) - c l / |l|^2).

    The cosine is over all trainable parameters, for MM and LM. Before round floor(warmup T) (or `start_round`, a
    round counted from 0, where given) lam is 0, l is frozen and the cosine is off: FedProx, or FedAvg for mu = 0. l
    starts at random, differently per client, and never leaves it; only f travels. Momentum and weight decay act on both
    models. A client also keeps |cos(f, l)|, for the log of a simulation.

    BatchNorm statistics travel with f and are collected at the mixed point; those of a model that is deployed or
    swept are recomputed on the client's training rows. `blend` is the lam a client deploys with.
    """

    deploys: ClassVar[str] = "(1 - blend) g + blend l; the global model g if the client never trained after the warm-up"

    watched: ClassVar[tuple[str, ...]] = ("cosine",)

    layerwise: bool = False
    mu: float = 0.01
    nu: float = 1.0
    warmup: float = 0.4
    start_round: int | None = None
    blend: float = 0.5

    def __post_init__(self) -> None:
        check.at_least("SuPerFed", "mu", self.mu, 0)
        check.at_least("SuPerFed", "nu", self.nu, 0)
        check.between("SuPerFed", "warmup (a share of the rounds; start_round is a round)", self.warmup, 0, 1)
        check.between("SuPerFed", "blend", self.blend, 0, 1)
        if self.start_round is not None:
            check.whole("SuPerFed", "start_round", self.start_round)

    def mixes_in(self, info: RoundInfo) -> bool:
        """Whether the private model takes part in a round: t >= L."""
        begin = math.floor(self.warmup * info.rounds + 1e-9) if self.start_round is None else self.start_round
        return info.round >= begin

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        nothing = torch.zeros(1, device=task.device)
        return {"own": task.fresh(key)["theta"], "trained": nothing, "cosine": nothing.clone()}

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(("pair",) if self.mixes_in(visit.info) else ("theta",), visit.info.epochs),)

    def start(self, visit: Visit) -> Tensors:
        if not self.mixes_in(visit.info):
            return shared_model(visit.shared)
        return {"pair": torch.stack([visit.shared["theta"], visit.own["own"]]), "buffers": visit.shared["buffers"]}

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Slope:
        if "pair" not in trained:
            if self.mu == 0:
                return ClientRule.direction(self, trained, visit, batch, key)
            return pulled(visit.slope(trained, batch, key), trained, visit, self.mu)
        pair = trained["pair"]
        lam = self._lambda(visit.task, key)
        mixed = torch.lerp(pair[0], pair[1], lam)
        gradient, buffers = visit.task.grad(mixed, trained["buffers"], batch, key)
        return {"pair": self._slopes(pair, gradient, lam, visit.shared["theta"]), "buffers": buffers}

    def _lambda(self, task: Task, key: rng.Key) -> Tensor:
        """One lam for all parameters, shape (1,), or one per module spread over its parameters."""
        if not self.layerwise:
            return rng.uniform(key, 1, task.device)
        return task.layout.spread(rng.uniform(key, len(task.layout.modules), task.device))

    def _slopes(self, pair: Tensor, gradient: Tensor, lam: Tensor, anchor: Tensor) -> Tensor:
        """dJ/df and dJ/dl as the rows of one matrix."""
        f, l = pair  # noqa: E741
        near, far, cross = self._cosine(f @ f, f @ l, l @ l)
        to_f = (1 - lam) * gradient + (self.mu + near) * f + cross * l - self.mu * anchor
        to_l = lam * gradient + cross * f + far * l
        return torch.stack([to_f, to_l])

    def _cosine(self, ff: Number, fl: Number, ll: Number) -> tuple[Number, Number, Number]:
        """The gradient of nu cos^2 in f is near f + cross l, in l it is cross f + far l; from three inner products.

        A model of zeros has no direction: its products are 0, and 1 in place of its square leaves all three at 0.
        """
        ff, ll = ff + (ff == 0), ll + (ll == 0)
        cross = 2 * self.nu * fl / ff / ll
        return -cross * fl / ff, -cross * fl / ll, cross

    def step(
        self, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
    ) -> tuple[Tensors, Tensors]:
        """As `direction` and the optimiser say; in eager SGD, in blocks that stay in the processor's cache.

        There the other end is taken from the mixed point m = (1 - lam) f + lam l: with k = cross / (lam (1 - lam)),

            dJ/df = (1 - lam) (G + k m) + (mu + near - k (1 - lam)^2) f - mu g,
            dJ/dl =      lam  (G + k m) + (far - k lam^2) l,

        so that one vector G + k m serves both ends, and what multiplies a model itself goes in with the weight decay.
        While lr |k| <= 1, the rounding of k m moves a weight by less than its own rounding; beyond that, and at lam =
        0, the plain form is taken.
        """
        if "pair" not in trained or not optimiser.eager_sgd:
            return ClientRule.step(self, trained, memory, visit, batch, key, optimiser)
        task = visit.task
        line = self._line(trained["pair"], memory.get("momentum.pair"), visit, optimiser)
        point = line.ahead if line.ahead and line.ahead.key == key else _Point(key, self._lams(task, key))
        if point is not line.ahead:
            point.take(line.blocks)
        line.ahead, line.done = None, line.done + 1
        near, far, cross = self._cosine(point.ff, point.fl, point.ll)
        if not all(optimiser.lr * abs(cross) <= lam * (1 - lam) != 0 for lam in point.lams):
            return ClientRule.step(self, trained, memory, visit, batch, key, optimiser)
        if line.in_parts:
            parts = [part.reshape(-1) for part in task.grad_parts(line.mixed, trained["buffers"], batch, key)]
        else:
            parts = [task.grad(line.mixed, trained["buffers"], batch, key, task.scratch(line.mixed))[0]]
        if line.done < visit.steps:
            after = rng.fold(visit.key, line.done)
            line.ahead = _Point(after, self._lams(task, after))
        decay = optimiser.training.weight_decay
        for block in line.blocks:
            lam = point.lams[block.lam]
            rest, k = 1 - lam, cross / (lam * (1 - lam))
            slope = [torch.add(block.taken(parts), block.mixed, alpha=k, out=block.slope)]
            optimiser.descend([block.l], slope, block.moments[1], (decay + far) / lam - k * lam, lam)
            if self.mu:
                block.slope.add_(block.anchor, alpha=-self.mu / rest)
            optimiser.descend([block.f], slope, block.moments[0], (decay + self.mu + near) / rest - k * rest, rest)
            if line.ahead:
                line.ahead.take((block,))  # while its vectors are in the cache
        return trained, memory

    def _lams(self, task: Task, key: rng.Key) -> list[float]:
        """The lam of every module, or the one of the whole model."""
        return rng.uniform(key, len(task.layout.modules) if self.layerwise else 1).tolist()

    def _line(self, pair: Tensor, velocity: Tensor | None, visit: Visit, optimiser: LocalOptimiser) -> _Line:
        """The blocks of a step, made once in a visit."""
        known = optimiser.kept.get("line")
        if isinstance(known, _Line) and known.pair is pair and known.velocity is velocity:
            return known
        layout, mixed, slope = visit.task.layout, torch.empty_like(pair[0]), pair.new_empty(BLOCK)
        in_parts = visit.task.dense is None and layout.size >= len(layout.entries) * LARGE
        blocks = []
        for lam, parts, base, first, end in self._stretches(layout, in_parts):
            for start in range(first, end, BLOCK):
                here = slice(start, min(start + BLOCK, end))
                both, size = pair[:, here], here.stop - start
                moments = ([], []) if velocity is None else ([velocity[0, here]], [velocity[1, here]])
                part = slice(start - base, here.stop - base)
                anchor = visit.shared["theta"][here]
                blocks.append(
                    _Block(lam, parts, part, both[0], both[1], both, mixed[here], anchor, slope[:size], moments)
                )
        line = optimiser.kept["line"] = _Line(pair, velocity, mixed, in_parts, tuple(blocks))
        return line

    def _stretches(self, layout: Layout, in_parts: bool) -> Iterator[tuple[int, slice, int, int, int]]:
        """Neighbouring parameters with one lam: its number, their tensors of the gradient, where these begin, the ends.

        A gradient `in_parts` has one tensor per entry: large ones are used as they are, small neighbours joined.
        """
        if not in_parts:
            for lam, (start, stop) in enumerate(layout.spans if self.layerwise else ((0, layout.size),)):
                yield lam, slice(0, 1), 0, start, stop
            return
        number = {module: lam for lam, module in enumerate(layout.modules)} if self.layerwise else {}

        def kind(at: int) -> tuple[int, int]:
            entry = layout.entries[at]
            return number.get(entry.module, 0), at if entry.stop - entry.start >= LARGE else -1

        for (lam, _), run in itertools.groupby(range(len(layout.entries)), kind):
            members = list(run)
            first, last = members[0], members[-1]
            start = layout.entries[first].start
            yield lam, slice(first, last + 1), start, start, layout.entries[last].stop

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        f = trained["pair"][0] if "pair" in trained else trained["theta"]
        own = visit.own
        if "pair" in trained:
            angle = cosine(trained["pair"][0], trained["pair"][1]).abs().reshape(1)
            own = {"own": trained["pair"][1], "trained": visit.own["trained"] + 1, "cosine": angle}
        return Upload(mix={"theta": f - visit.shared["theta"]}, carry={"buffers": trained["buffers"]}), own

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors:
        if not own or not own["trained"]:
            return shared_model(shared)
        return {"theta": torch.lerp(shared["theta"], own["own"], self.blend)}

    def endpoints(self, task: Task, shared: Tensors, own: Tensors | None) -> tuple[Tensors, Tensors] | None:
        if not own or not own["trained"]:
            return None
        return shared_model(shared), {"theta": own["own"]}


@dataclass(frozen=True, slots=True)
class _Block:
    """A stretch of the parameter vector, with the views of all vectors that a step needs there."""

    lam: int
    """The number of its lam."""
    parts: slice
    """The tensors of the gradient that it is in."""
    part: slice
    """Its place in these."""
    f: Tensor
    l: Tensor  # noqa: E741
    both: Tensor
    mixed: Tensor
    anchor: Tensor
    slope: Tensor
    """Room for a direction."""
    moments: tuple[list[Tensor], list[Tensor]]

    def taken(self, parts: list[Tensor]) -> Tensor:
        """This stretch of a gradient."""
        mine = parts[self.parts]
        return (mine[0] if len(mine) == 1 else torch.cat(mine))[self.part]


@dataclass
class _Point:
    """The mixed point of a step: its lams and the inner products of the two ends, summed over blocks in float64."""

    key: rng.Key
    lams: list[float]
    ff: float = 0.0
    fl: float = 0.0
    ll: float = 0.0

    def take(self, blocks: Iterable[_Block]) -> None:
        """Write (1 - lam) f + lam l in some blocks, and add their part of <f, f>, <f, l>, <l, l>."""
        for block in blocks:
            torch.lerp(block.f, block.l, self.lams[block.lam], out=block.mixed)
            ff, fl = torch.mv(block.both, block.f).tolist()
            self.ff, self.fl = self.ff + ff, self.fl + fl
            self.ll += float(torch.linalg.vector_norm(block.l)) ** 2


@dataclass
class _Line:
    """The two ends in a visit, the mixed point between them, and their blocks."""

    pair: Tensor
    velocity: Tensor | None
    mixed: Tensor
    in_parts: bool
    """Whether the gradient is taken as one tensor per entry of the layout."""
    blocks: tuple[_Block, ...]
    done: int = 0
    """How many steps were taken."""
    ahead: _Point | None = None
    """The point of the next step, where it is known already."""
