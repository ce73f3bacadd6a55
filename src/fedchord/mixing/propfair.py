"""PropFair as mixing weights; `clients/propfair.py` has it as a client's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online.responses import reported
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class PropFair(MixingRule):
    """Proportional fairness, min of -sum_i n_i log(M - F_i), as weights (Zhang et al., 2022; departs: E18).

        p_i ~ n_i / max(M - F_i, guard)

    How many losses are above M - guard is logged (`guarded`). A large M is FedAvg.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})

    M: float = 3.0
    guard: float = 0.2

    def __post_init__(self) -> None:
        check.positive("PropFair", "M", self.M)
        check.positive("PropFair", "guard", self.guard)

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        losses, log = reported("PropFair", cohort)
        room = self.M - losses
        shares = cohort.sizes.double().cpu() / room.clamp_min(self.guard)
        shares = shares / shares.sum()
        return Mix(shares, shares, log | {"guarded": float((room < self.guard).sum())}), state
