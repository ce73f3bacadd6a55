"""SuPerFed: personal models by mode connectivity between the global model and a private one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.clients import superfed_kernel
from fedchord.clients.prox import pulled
from fedchord.core.objective import Batch
from fedchord.core.rules import (
    LINE,
    ClientRule,
    Deployed,
    Line,
    Log,
    Phase,
    RoundInfo,
    Slope,
    Upload,
    Visit,
    shared_model,
)
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser
from fedchord.tensors import Tensors, cosine


@final
@dataclass(frozen=True)
class SuPerFed(ClientRule):
    """Trains all models on the line between the federated model f and a private model l (thesis, chapter 2).

    With g the received model and lam drawn anew for every batch, uniform on [0, 1), one for the whole model (MM) or one
    per module (LM, `layerwise`; all tensors of a module share it), the batch objective is

        J(f, l) = loss((1 - lam) f + lam l) + (mu / 2) ||f - g||^2 + nu cos^2(f, l).

    One gradient G at the mixed point serves both ends (departs: E1, E2):

        dJ/df = (1 - lam) G + mu (f - g) + 2 nu c (l / (|f| |l|) - c f / |f|^2),   c = cos(f, l),
        dJ/dl =      lam  G              + 2 nu c (f / (|f| |l|) - c l / |l|^2).

    The cosine is over all trainable parameters, for MM and LM. Before round floor(warmup T) (or `start_round`, a
    round counted from 0, where given) lam is 0, l is frozen and the cosine is off: FedProx, or FedAvg for mu = 0. l
    starts at random, differently per client (`begin` = "random"), or as the global model that the client receives when
    it first mixes ("global"), and never leaves it; only f travels. Momentum and weight decay act on both models.
    |cos(f, l)| is logged.

    BatchNorm statistics travel with f and are collected at the mixed point; those of a model that is deployed or
    swept are recomputed on the client's training rows. `blend` is the lam a client deploys with.
    """

    deploys: ClassVar[Deployed] = Deployed(
        "(1 - blend) g + blend l; the global model g if the client never trained after the warm-up", LINE
    )

    layerwise: bool = False
    mu: float = 0.01
    nu: float = 1.0
    warmup: float = 0.4
    start_round: int | None = None
    blend: float = 0.5
    begin: str = "random"

    def __post_init__(self) -> None:
        check.at_least("SuPerFed", "mu", self.mu, 0)
        check.at_least("SuPerFed", "nu", self.nu, 0)
        check.between("SuPerFed", "warmup (a share of the rounds; start_round is a round)", self.warmup, 0, 1)
        check.between("SuPerFed", "blend", self.blend, 0, 1)
        check.one_of("SuPerFed", "begin", self.begin, ("random", "global"))
        if self.start_round is not None:
            check.whole("SuPerFed", "start_round", self.start_round)

    @property
    def horizon(self) -> str:
        """What depends on the number of all rounds: L, where it is a share of them."""
        shared = self.start_round is None and 0 < self.warmup < 1
        return "starts to mix at a share of all rounds (method.warmup)" if shared else ""

    def mixes_in(self, info: RoundInfo) -> bool:
        """Whether the private model takes part in a round: t >= L."""
        begin = math.floor(self.warmup * info.rounds + 1e-9) if self.start_round is None else self.start_round
        return info.round >= begin

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        return {"own": task.fresh(key)["theta"], "trained": torch.zeros(1, device=task.device)}

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(("pair",) if self.mixes_in(visit.info) else ("theta",), visit.info.epochs),)

    def start(self, visit: Visit) -> Tensors:
        if not self.mixes_in(visit.info):
            return shared_model(visit.shared)
        near, far = visit.shared["theta"], visit.own["own"]
        if self.begin == "global":
            far = torch.where(visit.own["trained"] > 0, far, near)
        return {"pair": torch.stack([near, far]), "buffers": visit.shared["buffers"]}

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Slope:
        if "pair" not in trained:
            if self.mu == 0:
                return super().direction(trained, visit, batch, key)
            return pulled(visit.slope(trained, batch, key), trained, visit, self.mu)
        f, l = trained["pair"]  # noqa: E741
        lam = self._lambda(visit.task, key)
        gradient, buffers = visit.task.grad(torch.lerp(f, l, lam), trained["buffers"], batch, key)
        near, far, cross = superfed_kernel.cosine_slope(self.nu, f @ f, f @ l, l @ l)
        to_f = (1 - lam) * gradient + (self.mu + near) * f + cross * l - self.mu * visit.shared["theta"]
        to_l = lam * gradient + cross * f + far * l
        return {"pair": torch.stack([to_f, to_l]), "buffers": buffers}

    def _lambda(self, task: Task, key: rng.Key) -> Tensor:
        """One lam for all parameters, shape (1,), or one per module spread over its parameters."""
        if not self.layerwise:
            return rng.uniform(key, 1, task.device)
        return task.layout.spread(rng.uniform(key, len(task.layout.modules), task.device))

    def step(
        self, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
    ) -> tuple[Tensors, Tensors]:
        """As `direction` and the optimiser say; by the kernel where it applies, which makes the same step faster."""
        terms = superfed_kernel.Terms(self.layerwise, self.mu, self.nu)
        if "pair" in trained and superfed_kernel.step(terms, trained, memory, visit, batch, key, optimiser):
            return trained, memory
        return super().step(trained, memory, visit, batch, key, optimiser)

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        own, angle = visit.own, torch.full((), math.nan, device=visit.task.device)
        f = trained["pair"][0] if "pair" in trained else trained["theta"]
        if "pair" in trained:
            own = {"own": trained["pair"][1], "trained": visit.own["trained"] + 1}
            angle = cosine(f, trained["pair"][1]).abs()
        log, carry = Log(means={"cosine": angle}), {"buffers": trained["buffers"]}
        return Upload(mix={"theta": f - visit.shared["theta"]}, carry=carry, log=log), own

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors | Line:
        if not own or not own["trained"]:
            return shared_model(shared)
        return Line(shared["theta"], own["own"], self.blend)
