"""PropFair as a client's loss; `mixing/propfair.py` has it as mixing weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch

from fedchord import check, rng
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Log, Upload, Visit, shared_model
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class PropFairLoss(ClientRule):
    """Local SGD on -log(M - loss) of each batch (Zhang et al., 2022, PropFair).

        theta <- theta - lr grad F_i(theta) / max(M - F_i(theta), guard),   F_i on one batch.

    Where M - loss is below the guard, log u is continued by its tangent, log guard + (u - guard) / guard: the slope
    never exceeds 1 / guard times that of the loss, and never turns round. How many batches of a round met the guard is
    logged (`guarded`, summed over the cohort).
    """

    gradients: ClassVar[int] = 0

    M: float = 3.0
    guard: float = 0.2

    def __post_init__(self) -> None:
        check.positive("PropFairLoss", "M", self.M)
        check.positive("PropFairLoss", "guard", self.guard)

    def start(self, visit: Visit) -> Tensors:
        theta = visit.shared["theta"]
        return shared_model(visit.shared) | {"guarded": torch.zeros((), dtype=theta.dtype, device=theta.device)}

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        """grad loss / max(M - loss, guard)."""
        with torch.no_grad():
            value, _ = visit.task.loss(trained["theta"], trained["buffers"], batch, key)
        slope, room = visit.slope(trained, batch, key), self.M - value
        guarded = trained["guarded"] + (room < self.guard)
        return slope | {"theta": slope["theta"] / room.clamp_min(self.guard), "guarded": guarded}

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        upload, own = super().finish(trained, visit)
        return replace(upload, log=Log(sums={"guarded": trained["guarded"]})), own
