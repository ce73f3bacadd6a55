"""APFL: a mixture of the global model and a private one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from fedchord import check, rng
from fedchord.core.objective import Batch
from fedchord.core.rules import LINE, ClientRule, Deployed, Line, Phase, Upload, Visit, shared_model
from fedchord.core.task import Task
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Apfl(ClientRule):
    """Trains the global model w and a private v whose mixture vbar = alpha v + (1 - alpha) w is used (Deng et al.,
    2020).

        w <- w - lr grad F(w),   v <- v - lr alpha grad F(vbar),
        adaptive:  alpha <- clip(alpha - alpha_lr <v - w, grad F(vbar)>, 0, 1)

    All gradients of a step are taken on one batch at the current w and v (common code keeps the w of the round's
    start). v starts as the first model the client receives. BatchNorm statistics of vbar are the client's own.
    """

    gradients: ClassVar[int] = 2
    deploys: ClassVar[Deployed] = Deployed(
        "alpha v + (1 - alpha) w with the global w and the client's own v; the global model if never sampled", LINE
    )

    alpha: float = 0.25
    adaptive: bool = False
    alpha_lr: float = 0.01

    def __post_init__(self) -> None:
        check.between("Apfl", "alpha", self.alpha, 0, 1)
        check.positive("Apfl", "alpha_lr", self.alpha_lr)

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        return {
            "v": shared["theta"],
            "v_buffers": shared["buffers"],
            "alpha": torch.full_like(shared["theta"][:1], self.alpha),
        }

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(("theta", "v"), visit.info.epochs),)

    def start(self, visit: Visit) -> Tensors:
        return shared_model(visit.shared) | visit.own

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        w, v, alpha = trained["theta"], trained["v"], trained["alpha"]
        slope = visit.slope(trained, batch, rng.fold(key, 0))
        mixed, buffers = visit.task.grad(torch.lerp(w, v, alpha), trained["v_buffers"], batch, rng.fold(key, 1))
        if self.adaptive:
            alpha = (alpha - self.alpha_lr * ((v - w) @ mixed)).clamp(0, 1)
        return slope | {"v": trained["alpha"] * mixed, "v_buffers": buffers, "alpha": alpha}

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        update = trained["theta"] - visit.shared["theta"]
        kept = {name: trained[name] for name in ("v", "v_buffers", "alpha")}
        return Upload(mix={"theta": update}, carry={"buffers": trained["buffers"]}), kept

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors | Line:
        return Line(shared["theta"], own["v"], own["alpha"], own["v_buffers"]) if own else shared_model(shared)
