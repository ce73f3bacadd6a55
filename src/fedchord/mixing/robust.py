"""Mixing rules that a minority of hostile clients cannot lead astray: they see how updates lie to each other, and no
update. All need are the inner products of the updates (the Gram matrix), from which distances follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online.responses import distinct
from fedchord.tensors import Tensors

STEPS, CLOSE = 1000, 1e-10
"""Weiszfeld's steps at most, and the largest change of a weight after which there is no further one."""
SMOOTH = 1e-6
"""Distances are at least this part of the median distance at the start."""


def squared_distances(gram: Tensor) -> Tensor:
    """||u_i - u_j||^2 = G_ii + G_jj - 2 G_ij, at least 0 and exactly 0 for i = j."""
    squares = gram.diagonal()
    found = (squares[:, None] + squares[None, :] - 2 * gram).clamp_min(0)
    return found.fill_diagonal_(0)


@final
@dataclass(frozen=True)
class Krum(MixingRule):
    """Equal weights for the updates that have the nearest neighbours, none for the others (Blanchard et al., 2017).

    Of n updates f = floor(hostile n) may be hostile. The score of an update is the sum of the squared distances to its
    n - f - 2 nearest others; the `keep` updates of the lowest scores (n - f - 2 unless given; 1 is Krum, more is
    multi-Krum) get 1 / keep each. It needs n >= 2 f + 3. Of equal scores the first client counts.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"gram"})

    hostile: float = 0.2
    keep: int | None = None

    def __post_init__(self) -> None:
        check.below("Krum", "hostile", self.hostile, 0.5)
        if self.keep is not None:
            check.whole("Krum", "keep", self.keep, 1)

    def sizes(self, count: int) -> tuple[int, int]:
        """f and how many updates are kept, of a cohort of so many."""
        wrong = math.floor(self.hostile * count + 1e-9)
        least = 2 * wrong + 3
        told = f"hostile={self.hostile:g} of a cohort of {count} is f = {wrong}, which needs 2 f + 3 = {least} clients"
        check.require(count >= least, "Krum", f"{told}; use a larger cohort or mixing=geometric-median")
        most = count - wrong
        kept = count - wrong - 2 if self.keep is None else self.keep
        check.require(kept <= most, "Krum", f"keep must be at most n - f = {most}, got {self.keep}")
        return wrong, kept

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        assert cohort.gram is not None
        distinct("Krum", cohort)
        count = len(cohort.ids)
        wrong, kept = self.sizes(count)
        apart = squared_distances(cohort.gram.double().cpu())
        scores = apart.sort(1).values[:, 1 : count - wrong - 1].sum(1)  # the first is the distance to itself
        best = scores.argsort(stable=True)[:kept]
        shares = torch.zeros(count, dtype=torch.float64)
        shares[best] = 1 / kept
        return Mix(shares, shares, {"kept": float(kept)}), state


@final
@dataclass(frozen=True)
class GeometricMedian(MixingRule):
    """The weights whose mixed update is the geometric median of the updates (Weiszfeld, 1937; Pillutla et al., 2022).

    The point z with the least sum_i s_i ||u_i - z||, s_i = n_i / sum n_j, lies among the updates: z = sum_i p_i u_i.
    From p = s, p_i ~ s_i / max(||u_i - z||, e) until no weight changes by more than 1e-10, at most 1000 times; e is a
    millionth of the median distance at the start. Hostile clients of less than half of the weight s cannot move z
    arbitrarily far, but somewhat; weights go by distance, so that honest clients who differ much count less as well.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"gram"})

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        assert cohort.gram is not None
        distinct("GeometricMedian", cohort)
        gram, static = cohort.gram.double().cpu(), cohort.sizes.double().cpu() / cohort.sizes.sum().cpu()
        shares, steps = median_weights(gram, static)
        return Mix(shares, shares, {"steps": float(steps)}), state


def median_weights(gram: Tensor, static: Tensor) -> tuple[Tensor, int]:
    """The weights of the geometric median, and the steps to them."""
    shares, least = static, 0.0
    for step in range(STEPS):
        across = gram @ shares
        away = (gram.diagonal() - 2 * across + shares @ across).clamp_min(0).sqrt()
        if step == 0:
            least = SMOOTH * float(away.median())
        if least == 0:  # most updates are the mean itself
            return shares, step
        new = static / away.clamp_min(least)
        new = new / new.sum()
        moved, shares = float((new - shares).abs().max()), new
        if moved < CLOSE:
            return shares, step + 1
    return shares, STEPS
