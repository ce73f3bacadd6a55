"""PropFair as a client's loss; `mixing/propfair.py` has it as mixing weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from fedchord import check, rng
from fedchord.rules import ClientRule, Visit
from fedchord.task import Batch
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class PropFairLoss(ClientRule):
    """Local SGD on -log(M - loss) of each batch (Zhang et al., 2022, PropFair).

    Where M - loss is below the guard, log u is continued by its tangent, log guard + (u - guard) / guard: the slope
    never exceeds 1 / guard times that of the loss, and never turns round.
    """

    M: float = 3.0
    guard: float = 0.2

    def __post_init__(self) -> None:
        check.positive("PropFairLoss", "M", self.M)
        check.positive("PropFairLoss", "guard", self.guard)

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        """grad loss / max(M - loss, guard)."""
        with torch.no_grad():
            value, _ = visit.task.loss(trained["theta"], trained["buffers"], batch, key)
        slope = visit.slope(trained, batch, key)
        return slope | {"theta": slope["theta"] / (self.M - value).clamp_min(self.guard)}
