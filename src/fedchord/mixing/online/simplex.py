"""Small exact solvers on {p : sum p = total, low <= p <= high}: the Euclidean projection and the convex quadratic.

The probability simplex is total = 1, low = 0, high = 1. All in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord import check

SWEEPS = 40
"""How many faces are tried, where upper bounds bind, before the primal method takes over."""
PATIENCE = 8
"""How many whole exchanges in a row may fail to bring the wrong entries below their least number so far."""
SLACK = 1e-13
"""Rounding errors below this, relative to the problem's numbers, change no active set."""

AT = 1e-12
"""An entry this near its bound is at it."""


@dataclass(frozen=True)
class Spread:
    """The matrix alpha I + R'R by its rows R: with fewer rows than clients, products and solutions cost less."""

    alpha: float
    rows: Tensor

    def whole(self) -> Tensor:
        """The matrix itself."""
        return self.alpha * torch.eye(self.rows.shape[1], dtype=self.rows.dtype) + self.rows.t() @ self.rows


def project(values: Tensor, low: Tensor | float = 0.0, high: Tensor | float = 1.0, total: float = 1.0) -> Tensor:
    """The nearest point, argmin ||p - values||^2: p = clip(values + tau, low, high) with tau such that sum p = total.

    sum p is piecewise linear in tau; its kinks are sorted and the piece that reaches `total` is solved.
    """
    values = values.double() - values.max()
    low, high = _bounds(values, low, high, total)
    kinks = torch.cat([low - values, high - values])
    order = kinks.argsort()
    kinks, slopes = kinks[order], torch.ones_like(values).repeat(2)
    slopes[len(values) :] = -1
    slopes = slopes[order].cumsum(0)
    reached = low.sum() + torch.cat([values.new_zeros(1), (slopes[:-1] * kinks.diff()).cumsum(0)])
    at = min(int(torch.searchsorted(reached, values.new_tensor(total))), len(kinks) - 1)
    tau = kinks[at] - (reached[at] - total) / slopes[at - 1].clamp_min(1) if at else kinks[0]
    return _exact((values + tau).clamp(low, high), low, high, total)


def minimise(
    matrix: Tensor | Spread,
    linear: Tensor,
    low: Tensor | float = 0.0,
    high: Tensor | float = 1.0,
    total: float = 1.0,
    start: Tensor | None = None,
) -> Tensor:
    """argmin 1/2 p'Ap + b'p over {sum p = total, low <= p <= high}, for a positive definite A, whole or as a `Spread`.

    Block principal pivoting (Judice and Pires, 1994): solve on the present face by a Cholesky factor of its block;
    bounds whose multiplier has the wrong sign are released, entries that left their range are fixed, all at once; where
    the number of wrong entries does not fall, one at a time, the last one (Murty's rule). It begins at the face of
    `start` (the last solution), so that a small change of A and b costs few steps.

    On the simplex it ends for every problem: with A' = A + 1b' + b1' + c 11' and c large enough to make A' positive
    definite, p is q / sum q for the q >= 0 with A'q - 1 >= 0 and q'(A'q - 1) = 0, whose faces have the same signs, and
    Murty's rule visits none of them twice. With upper bounds that bind nothing is proven: where it does not settle
    there, a primal active set, which descends at every step, goes on.
    """
    matrix, linear = matrix.double() if isinstance(matrix, Tensor) else matrix, linear.double()
    low, high = _bounds(linear, low, high, total)
    start = project(torch.full_like(linear, total / len(linear)) if start is None else start, low, high, total)
    binds = (high > low) & (high < total - (low.sum() - low) - SLACK)
    found = _pivots(matrix, linear, low, high, total, start <= low, (start >= high) & binds, binds)
    if found is None:
        found = _primal_sets(matrix, linear, low, high, total, start)
    return _exact(found, low, high, total)


def residual(
    matrix: Tensor | Spread,
    linear: Tensor,
    p: Tensor,
    low: Tensor | float = 0.0,
    high: Tensor | float = 1.0,
    total: float = 1.0,
) -> float:
    """How far p is from the KKT conditions: the largest of the violated constraints and of the gradient's spread.

    At the optimum some nu has gradient_i <= nu wherever p_i can shrink and gradient_i >= nu wherever it can grow.
    """
    low, high = torch.as_tensor(low, dtype=p.dtype), torch.as_tensor(high, dtype=p.dtype)
    slope = _times(matrix, p) + linear
    shrinks, grows = slope[p > low + AT], slope[p < high - AT]
    spread = (shrinks.max() - grows.min()) / 2 if len(shrinks) and len(grows) else slope.new_zeros(())
    outside = torch.maximum(low - p, p - high).max()
    return float(torch.stack([spread, outside, (p.sum() - total).abs()]).max().clamp_min(0))


def _bounds(values: Tensor, low: Tensor | float, high: Tensor | float, total: float) -> tuple[Tensor, Tensor]:
    ends = tuple(torch.as_tensor(end, dtype=torch.float64).expand(len(values)) for end in (low, high))
    possible = ends[0].sum() <= total + 1e-9 and ends[1].sum() >= total - 1e-9
    check.require(bool(possible), "simplex", f"no point between the bounds sums to {total:g}")
    return ends[0], ends[1]


def _exact(p: Tensor, low: Tensor, high: Tensor, total: float) -> Tensor:
    """p with the rounding error of its sum put on the entry with the most room."""
    p = p.clamp(low, high)
    at = torch.minimum(p - low, high - p).argmax()
    p[at] = (p[at] + (total - p.sum())).clamp(low[at], high[at])
    return p


def _on_face(
    matrix: Tensor | Spread, linear: Tensor, low: Tensor, high: Tensor, total: float, down: Tensor, up: Tensor
) -> tuple[Tensor, Tensor] | None:
    """The minimiser with entries fixed at their bounds and the others free, and gradient - nu there; None without a
    free entry.

    With F free:  A_FF p_F = nu 1 - b_F - A_FB p_B,  1'p_F = total - 1'p_B.
    """
    p = torch.where(up, high, low)
    free = (~(down | up)).nonzero().flatten()
    if not len(free):
        return None
    p[free] = 0
    right = torch.stack([-(linear + _times(matrix, p))[free], torch.ones(len(free), dtype=p.dtype)], 1)
    both = _solved(matrix, free, right)
    nu = (total - p.sum() - both[:, 0].sum()) / both[:, 1].sum()
    p[free] = both[:, 0] + nu * both[:, 1]
    return p, _times(matrix, p) + linear - nu


def _times(matrix: Tensor | Spread, p: Tensor) -> Tensor:
    if isinstance(matrix, Tensor):
        return matrix @ p
    return matrix.alpha * p + matrix.rows.t() @ (matrix.rows @ p)


def _solved(matrix: Tensor | Spread, free: Tensor, right: Tensor) -> Tensor:
    """A_FF^-1 times the columns of `right`; of a spread by (v - R_F'(alpha I + R_F R_F')^-1 R_F v) / alpha."""
    if isinstance(matrix, Tensor):
        block = matrix if len(free) == len(matrix) else matrix[free][:, free]
        return torch.cholesky_solve(right, torch.linalg.cholesky(block))
    rows = matrix.rows if len(free) == matrix.rows.shape[1] else matrix.rows[:, free]
    small = rows @ rows.t()
    small.diagonal().add_(matrix.alpha)
    return (right - rows.t() @ torch.cholesky_solve(rows @ right, torch.linalg.cholesky(small))) / matrix.alpha


def _scale(matrix: Tensor | Spread, linear: Tensor) -> float:
    diagonal = matrix.diagonal() if isinstance(matrix, Tensor) else matrix.alpha + matrix.rows.square().sum(0)
    return float(torch.maximum(diagonal.max(), linear.abs().max()).clamp_min(1e-300))


def _pivots(
    matrix: Tensor | Spread,
    linear: Tensor,
    low: Tensor,
    high: Tensor,
    total: float,
    down: Tensor,
    up: Tensor,
    binds: Tensor,
) -> Tensor | None:
    """Block principal pivoting from a face; None if it does not settle.

    `binds` marks the upper bounds that do not follow from the lower ones and the sum (on the simplex: none).
    """
    tolerance = SLACK * _scale(matrix, linear)
    loose, least, spare = high > low, len(low) + 1, PATIENCE
    for _ in range(SWEEPS if bool(binds.any()) else 100 * len(low) + 100):
        face = _on_face(matrix, linear, low, high, total, down, up)
        if face is None:
            wrong, sink, rise = (down | up) & loose, torch.zeros_like(down), torch.zeros_like(up)
        else:
            p, slack = face
            free = ~(down | up)
            sink, rise = free & (p < low - SLACK), free & binds & (p > high + SLACK)
            wrong = sink | rise | (loose & ((down & (slack < -tolerance)) | (up & (slack > tolerance))))
        count = int(wrong.sum())
        if not count:
            return p if face is not None else None
        spare = PATIENCE if count < least else spare - 1
        least = min(least, count)
        if spare < 0:
            last = int(wrong.nonzero()[-1])
            wrong = torch.zeros_like(wrong)
            wrong[last] = True
        down, up = torch.where(wrong, sink, down), torch.where(wrong, rise, up)
    return None


def _primal_sets(
    matrix: Tensor | Spread, linear: Tensor, low: Tensor, high: Tensor, total: float, start: Tensor
) -> Tensor:
    """The primal active set method: feasible and descending at every step."""
    tolerance = SLACK * _scale(matrix, linear)
    p, fixed = start.clone(), high <= low
    down, up = p <= low, (p >= high) & ~fixed
    for _ in range(100 * len(p) + 100):
        face = _on_face(matrix, linear, low, high, total, down, up)
        if face is None:
            slope = _times(matrix, p) + linear
            grow = torch.where(down & ~fixed, slope, torch.inf).argmin()
            shrink = torch.where(up, slope, -torch.inf).argmax()
            if fixed[grow] or not up[shrink] or slope[shrink] <= slope[grow] + tolerance:
                return p
            down[grow], up[shrink] = False, False
            continue
        target, slack = face
        move = torch.where(down | up, 0.0, target - p)
        if move.abs().max() <= SLACK:
            wrong = torch.where(down & ~fixed, -slack, torch.where(up, slack, -torch.inf))
            at = wrong.argmax()
            if wrong[at] <= tolerance:
                return target.clamp(low, high)
            down[at], up[at] = False, False
            continue
        room = torch.where(move < 0, (low - p) / move, torch.where(move > 0, (high - p) / move, torch.inf))
        at = room.argmin()
        reach = float(room[at].clamp(0, 1))
        p = (p + reach * move).clamp(low, high)
        if room[at] < 1:
            down[at], up[at] = move[at] < 0, move[at] > 0
            p[at] = low[at] if move[at] < 0 else high[at]
    raise ArithmeticError("simplex: the quadratic problem was not solved; is the matrix positive definite?")
