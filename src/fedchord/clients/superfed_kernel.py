"""SuPerFed's step in blocks that stay in the processor's cache: the same step with fewer passes over the vectors.

With the mixed point m = (1 - lam) f + lam l and k = cross / (lam (1 - lam)) the two slopes of SuPerFed's objective are

    dJ/df = (1 - lam) (G + k m) + (mu + near - k (1 - lam)^2) f - mu g,
    dJ/dl =      lam  (G + k m) + (far - k lam^2) l,

so that one vector G + k m serves both ends, and what multiplies a model itself goes in with the weight decay. While
lr |k| <= 1, the rounding of k m moves a weight by less than its own rounding; beyond that, and at lam = 0, the kernel
does not apply. The blocks and their views are made once in a visit, and the next mixed point is written while its
block is in the cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from fedchord import rng
from fedchord.core.objective import Batch
from fedchord.core.rules import Visit
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser
from fedchord.tensors import Layout, Tensors

BLOCK = 1 << 19
"""How many parameters are handled at a time, so that a block of each vector stays in the cache."""
LARGE = 1 << 16
"""Gradients of tensors with this many parameters, or more, are used as they are, without a copy."""

Number = TypeVar("Number", float, Tensor)


def cosine_slope(nu: float, ff: Number, fl: Number, ll: Number) -> tuple[Number, Number, Number]:
    """(near, far, cross): the gradient of nu cos^2(f, l) in f is near f + cross l, in l it is cross f + far l.

    From the inner products <f, f>, <f, l>, <l, l>. A model of zeros has no direction: its products are 0, and 1 in
    place of its square leaves all three at 0.
    """
    ff, ll = ff + (ff == 0), ll + (ll == 0)
    cross = 2 * nu * fl / ff / ll
    return -cross * fl / ff, -cross * fl / ll, cross


@dataclass(frozen=True)
class Terms:
    """What the objective is made of: one lam per module or one for all, and the weights of its two terms."""

    layerwise: bool
    mu: float
    nu: float


def step(
    terms: Terms, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
) -> bool:
    """One SGD step of both ends in place; false, and nothing moved, where the kernel does not apply."""
    if not optimiser.eager_sgd:
        return False
    line = _line(terms, trained["pair"], memory.get("momentum.pair"), visit, optimiser)
    point = line.ahead if line.ahead and line.ahead.key == key else _Point(key, _lams(terms, visit.task, key))
    if point is not line.ahead:
        point.take(line.blocks)
    line.ahead, line.done = None, line.done + 1
    slopes = cosine_slope(terms.nu, point.ff, point.fl, point.ll)
    if not all(optimiser.lr * abs(slopes[2]) <= lam * (1 - lam) != 0 for lam in point.lams):
        return False
    parts = _gradient(line, visit.task, trained["buffers"], batch, key)
    if line.done < visit.steps:
        after = rng.fold(visit.key, line.done)
        line.ahead = _Point(after, _lams(terms, visit.task, after))
    for block in line.blocks:
        _move(block, parts, point.lams[block.lam], slopes, terms.mu, optimiser)
        if line.ahead:
            line.ahead.take((block,))  # while its vectors are in the cache
    return True


def _gradient(line: _Line, task: Task, buffers: Tensor, batch: Batch, key: rng.Key) -> list[Tensor]:
    """The gradient at the mixed point, as one vector or in parts."""
    if line.in_parts:
        return [part.reshape(-1) for part in task.grad_parts(line.mixed, buffers, batch, key)]
    return [task.grad(line.mixed, buffers, batch, key, task.scratch(line.mixed))[0]]


def _move(
    block: _Block,
    parts: list[Tensor],
    lam: float,
    slopes: tuple[float, float, float],
    mu: float,
    optimiser: LocalOptimiser,
) -> None:
    """Both ends of a block."""
    near, far, cross = slopes
    rest, k, decay = 1 - lam, cross / (lam * (1 - lam)), optimiser.training.weight_decay
    slope = [torch.add(block.taken(parts), block.mixed, alpha=k, out=block.slope)]
    optimiser.descend([block.l], slope, block.moments[1], (decay + far) / lam - k * lam, lam)
    if mu:
        block.slope.add_(block.anchor, alpha=-mu / rest)
    optimiser.descend([block.f], slope, block.moments[0], (decay + mu + near) / rest - k * rest, rest)


def _lams(terms: Terms, task: Task, key: rng.Key) -> list[float]:
    """The lam of every module, or the one of the whole model."""
    return rng.uniform(key, len(task.layout.modules) if terms.layerwise else 1).tolist()


def _line(terms: Terms, pair: Tensor, velocity: Tensor | None, visit: Visit, optimiser: LocalOptimiser) -> _Line:
    """The blocks of a step, made once in a visit."""
    known = optimiser.kept.get("line")
    if isinstance(known, _Line) and known.pair is pair and known.velocity is velocity:
        return known
    layout, mixed, slope = visit.task.layout, torch.empty_like(pair[0]), pair.new_empty(BLOCK)
    in_parts = visit.task.dense is None and layout.size >= len(layout.entries) * LARGE
    blocks = []
    for lam, parts, base, first, end in _stretches(terms.layerwise, layout, in_parts):
        for start in range(first, end, BLOCK):
            here = slice(start, min(start + BLOCK, end))
            both, size = pair[:, here], here.stop - start
            moments = ([], []) if velocity is None else ([velocity[0, here]], [velocity[1, here]])
            part = slice(start - base, here.stop - base)
            anchor = visit.shared["theta"][here]
            blocks.append(_Block(lam, parts, part, both[0], both[1], both, mixed[here], anchor, slope[:size], moments))
    line = optimiser.kept["line"] = _Line(pair, velocity, mixed, in_parts, tuple(blocks))
    return line


def _stretches(layerwise: bool, layout: Layout, in_parts: bool) -> Iterator[tuple[int, slice, int, int, int]]:
    """Neighbouring parameters with one lam: its number, their tensors of the gradient, where these begin, the ends.

    A gradient `in_parts` has one tensor per entry: large ones are used as they are, small neighbours joined.
    """
    if not in_parts:
        for lam, (start, stop) in enumerate(layout.spans if layerwise else ((0, layout.size),)):
            yield lam, slice(0, 1), 0, start, stop
        return
    number = {module: lam for lam, module in enumerate(layout.modules)} if layerwise else {}

    def kind(at: int) -> tuple[int, int]:
        entry = layout.entries[at]
        return number.get(entry.module, 0), at if entry.stop - entry.start >= LARGE else -1

    for (lam, _), run in itertools.groupby(range(len(layout.entries)), kind):
        members = list(run)
        first, last = members[0], members[-1]
        start = layout.entries[first].start
        yield lam, slice(first, last + 1), start, start, layout.entries[last].stop


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
