"""q-FedAvg: clients with a high loss count more, by a power of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online.responses import reported
from fedchord.tensors import Tensors

FORMS = ("paper", "coefficients")
LEAST = 1e-10
"""Losses below it are raised to it, since q - 1 may be negative."""


@final
@dataclass(frozen=True)
class QFedAvg(MixingRule):
    """Fair federated learning by the powers F_i^q of the losses (Li et al., 2020, q-FFL).

    `form` = "paper": with L = 1 / lr of the round and D_i = L (theta - theta_i),

        theta <- theta - sum_i F_i^q D_i / sum_i h_i,   h_i = q F_i^(q - 1) ||D_i||^2 + L F_i^q,

    so that the coefficients do not sum to one (departs: E18) unless q = 0, where they are 1 / |S|; the shares are
    F_i^q made to sum to one. `form` = "coefficients": p_i ~ n_i F_i^q, the row of the thesis' table; q = 0 is FedAvg,
    and for large q the highest loss takes all (departs: E11).
    """

    q: float = 0.1
    form: str = "paper"

    def __post_init__(self) -> None:
        check.at_least("QFedAvg", "q", self.q, 0)
        check.one_of("QFedAvg", "form", self.form, FORMS)

    @property
    def needs(self) -> frozenset[str]:
        """Losses, and for the form of the paper the norms of the updates."""
        return frozenset({"loss", "norm"} if self.form == "paper" else {"loss"})

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        losses, log = reported("QFedAvg", cohort, signed=False)
        losses = losses.clamp_min(LEAST)
        top = losses.max()
        powers = (losses / top) ** self.q  # all powers are divided by the highest: nothing overflows
        if self.form == "coefficients":
            shares = cohort.sizes.double().cpu() * powers
            return Mix(shares / shares.sum(), shares / shares.sum(), log), state
        assert cohort.norms is not None
        steep = 1 / info.lr
        squares = (steep * cohort.norms.double().cpu()) ** 2
        heights = self.q * (powers / losses) * squares + steep * powers
        return Mix(steep * powers / heights.sum(), powers / powers.sum(), log), state
