"""Static mixing: weights that do not look at what the clients learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class BySize(MixingRule):
    """Weights by size, n_i training examples of a client (McMahan et al., 2017).

        p_i = n_i / sum_j n_j

    The sum runs over the cohort.
    """

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        shares = cohort.sizes.double() / cohort.sizes.sum()
        return Mix(shares, shares), state


@final
@dataclass(frozen=True)
class Uniform(MixingRule):
    """Equal weights: the control for rules that claim to gain by adapting the weights.

        p_i = 1 / |S|

    S is the cohort.
    """

    equal: ClassVar[bool] = True

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        shares = torch.full((len(cohort.ids),), 1 / len(cohort.ids), dtype=torch.float64)
        return Mix(shares, shares), state
