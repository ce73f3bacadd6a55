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
    """p_i = n_i / sum over the cohort of n_j, with n_i training examples (McMahan et al., 2017)."""

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        shares = cohort.sizes.double() / cohort.sizes.sum()
        return Mix(shares, shares), state


@final
@dataclass(frozen=True)
class Uniform(MixingRule):
    """p_i = 1 / |S|: the control for rules that claim to gain by adapting the weights."""

    equal: ClassVar[bool] = True

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        shares = torch.full((len(cohort.ids),), 1 / len(cohort.ids), dtype=torch.float64)
        return Mix(shares, shares), state
