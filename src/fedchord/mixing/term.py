"""TERM: clients with a high loss count more, by its exponential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online.responses import reported
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Term(MixingRule):
    """Tilted empirical risk at the level of clients, p_i ~ n_i exp(tilt F_i) (Li et al., 2021, TERM).

        p_i = n_i exp(tilt F_i) / sum_j n_j exp(tilt F_j),   j in the cohort.

    tilt = 0 is FedAvg; a large tilt follows the highest loss; a negative one turns away from high losses.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})

    tilt: float = 0.1

    def __post_init__(self) -> None:
        check.number("Term", "tilt", self.tilt)

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        losses, log = reported("Term", cohort)
        shares = torch.softmax(cohort.sizes.double().cpu().log() + self.tilt * losses, 0)
        return Mix(shares, shares, log), state
