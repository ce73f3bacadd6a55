"""AFL: weights that climb the clients' losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online.responses import reported
from fedchord.mixing.online.simplex import project
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Afl(MixingRule):
    """Agnostic federated learning, min over theta of max over p of sum_i p_i F_i (Mohri et al., 2019).

        p_{t+1} = argmin over the simplex of ||p - (p_t + gamma F)||^2,   p_1 = 1 / K.

    This round's updates are weighed with p_t; the projection is for the next round. Every client takes part in every
    round.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})
    full: ClassVar[bool] = True
    instead: ClassVar[str] = "q-fedavg with a large q"

    gamma: float = 0.01

    def __post_init__(self) -> None:
        check.positive("Afl", "gamma", self.gamma)

    def init(self, num_clients: int) -> Tensors:
        return {"p": torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)}

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        p, ids = state["p"], cohort.ids.cpu()
        losses, log = reported("Afl", cohort)
        check.require(
            len(losses) == len(p),
            "Afl",
            f"needs every client in every round, got {len(losses)} of {len(p)}; use {self.instead}",
        )
        climbed = p.clone()
        climbed[ids] += self.gamma * losses
        return Mix(p[ids], p[ids], log), {"p": project(climbed)}
