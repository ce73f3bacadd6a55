"""pFedMe: personal models as the solution of a problem held near the global model by a Moreau envelope."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

from fedchord import check, rng
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Deployed, Phase, Upload, Visit, shared_model
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser, Training
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class PFedMe(ClientRule):
    """Inner steps towards theta = argmin f(theta) + (lam / 2) ||theta - w||^2, then a step of w (Dinh et al., 2020).

        inner steps on one batch:  theta <- theta - inner_lr (grad f(theta) + lam (theta - w))
        then:                      w <- w - lr lam (w - theta)

    The server averages the w_i: w <- (1 - beta) w + beta mean (the server rule `Blend`). The personal theta is kept
    and is what the client deploys. Plain SGD: momentum, weight decay, clipping and Adam are switched off. `inner_lr`
    of None means the local learning rate.
    """

    deploys: ClassVar[Deployed] = Deployed("each client's own theta; the global model if never sampled")

    lam: float = 15.0
    inner: int = 5
    inner_lr: float | None = None

    def __post_init__(self) -> None:
        check.positive("PFedMe", "lam", self.lam)
        check.whole("PFedMe", "inner", self.inner, 1)
        if self.inner_lr is not None:
            check.positive("PFedMe", "inner_lr", self.inner_lr)

    @property
    def gradients(self) -> int:
        return self.inner

    def local(self, training: Training) -> Training:
        return replace(training, momentum=0.0, weight_decay=0.0, clip=0.0, optimiser="sgd")

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        return shared_model(shared)

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(("w",), visit.info.epochs),)

    def start(self, visit: Visit) -> Tensors:
        w, buffers = visit.shared["theta"], visit.shared["buffers"]
        return {"w": w, "theta": w, "buffers": buffers}

    def step(
        self, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
    ) -> tuple[Tensors, Tensors]:
        w, theta, buffers = trained["w"], trained["theta"], trained["buffers"]
        rate = visit.info.lr if self.inner_lr is None else self.inner_lr
        for turn in range(self.inner):
            slope, buffers = visit.task.grad(theta, buffers, batch, rng.fold(key, turn))
            theta = theta - rate * (slope + self.lam * (theta - w))
        w = w - optimiser.lr * self.lam * (w - theta)
        return {"w": w, "theta": theta, "buffers": buffers}, memory

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        upload = Upload(mix={"theta": trained["w"] - visit.shared["theta"]}, carry={"buffers": trained["buffers"]})
        return upload, {"theta": trained["theta"], "buffers": trained["buffers"]}

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors:
        return own or shared_model(shared)
