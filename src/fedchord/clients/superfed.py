"""SuPerFed: personal models by mode connectivity between the global model and a private one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar, final

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.clients.prox import pulled
from fedchord.local import LocalOptimiser
from fedchord.rules import ClientRule, Phase, RoundInfo, Slope, Upload, Visit, shared_model
from fedchord.task import Batch, Task
from fedchord.tensors import Tensors, cosine

BLOCK = 1 << 19
"""How many parameters are handled at a time, so that a block of each vector stays in the cache."""
LARGE = 1 << 16
"""With this many parameters per tensor, or more, the tensors' gradients are used as they are, without a copy."""
EDGE = 2.0**-10
"""How near to 0 or 1 a lam may come for the short form of a step, which divides by both shares."""


Number = TypeVar("Number", float, Tensor)
Piece = tuple[float, int, int]
"""A block of the parameter vector: its lam, start and stop."""


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
    starts at random, differently per client, and never leaves it; only f travels. Momentum and weight decay act on both
    models. A client also keeps |cos(f, l)|, for the log of a simulation.

    BatchNorm statistics travel with f and are collected at the mixed point; those of a model that is deployed or
    swept are recomputed on the client's training rows. `blend` is the lam a client deploys with.
    """

    deploys: ClassVar[str] = "(1 - blend) g + blend l; the global model g if the client never trained after the warm-up"

    watched: ClassVar[tuple[str, ...]] = ("cosine",)

    layerwise: bool = False
    mu: float = 0.01
    nu: float = 1.0
    warmup: float = 0.4
    start_round: int | None = None
    blend: float = 0.5

    def __post_init__(self) -> None:
        check.at_least("SuPerFed", "mu", self.mu, 0)
        check.at_least("SuPerFed", "nu", self.nu, 0)
        check.between("SuPerFed", "warmup", self.warmup, 0, 1)
        check.between("SuPerFed", "blend", self.blend, 0, 1)
        if self.start_round is not None:
            check.whole("SuPerFed", "start_round", self.start_round)

    def mixes_in(self, info: RoundInfo) -> bool:
        """Whether the private model takes part in a round: t >= L."""
        begin = math.floor(self.warmup * info.rounds + 1e-9) if self.start_round is None else self.start_round
        return info.round >= begin

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        nothing = torch.zeros(1, device=task.device)
        return {"own": task.fresh(key)["theta"], "trained": nothing, "cosine": nothing.clone()}

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(("pair",) if self.mixes_in(visit.info) else ("theta",), visit.info.epochs),)

    def start(self, visit: Visit) -> Tensors:
        if not self.mixes_in(visit.info):
            return shared_model(visit.shared)
        return {"pair": torch.stack([visit.shared["theta"], visit.own["own"]]), "buffers": visit.shared["buffers"]}

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Slope:
        if "pair" not in trained:
            if self.mu == 0:
                return ClientRule.direction(self, trained, visit, batch, key)
            return pulled(visit.slope(trained, batch, key), trained, visit, self.mu)
        pair = trained["pair"]
        lam = self._lambda(visit.task, key)
        mixed = torch.lerp(pair[0], pair[1], lam)
        gradient, buffers = visit.task.grad(mixed, trained["buffers"], batch, key)
        return {"pair": self._slopes(pair, gradient, lam, visit.shared["theta"]), "buffers": buffers}

    def _lambda(self, task: Task, key: rng.Key) -> Tensor:
        """One lam for all parameters, shape (1,), or one per module spread over its parameters."""
        if not self.layerwise:
            return rng.uniform(key, 1, task.device)
        return task.layout.spread(rng.uniform(key, len(task.layout.modules), task.device))

    def _slopes(self, pair: Tensor, gradient: Tensor, lam: Tensor, anchor: Tensor) -> Tensor:
        """dJ/df and dJ/dl as the rows of one matrix."""
        f, l = pair  # noqa: E741
        near, far, cross = self._cosine(f @ f, f @ l, l @ l)
        to_f = (1 - lam) * gradient + (self.mu + near) * f + cross * l - self.mu * anchor
        to_l = lam * gradient + cross * f + far * l
        return torch.stack([to_f, to_l])

    def _cosine(self, ff: Number, fl: Number, ll: Number) -> tuple[Number, Number, Number]:
        """The gradient of nu cos^2 in f is near f + cross l, in l it is cross f + far l; from three inner products.

        A model of zeros has no direction: its products are 0, and 1 in place of its square leaves all three at 0.
        """
        ff, ll = ff + (ff == 0), ll + (ll == 0)
        cross = 2 * self.nu * fl / ff / ll
        return -cross * fl / ff, -cross * fl / ll, cross

    def step(
        self, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
    ) -> tuple[Tensors, Tensors]:
        """As `direction` and the optimiser say; in eager SGD, in blocks that stay in the processor's cache.

        There the other end is taken from the mixed point m = (1 - lam) f + lam l: with k = cross / (lam (1 - lam)),

            dJ/df = (1 - lam) (G + k m) + (mu + near - k (1 - lam)^2) f - mu g,
            dJ/dl =      lam  (G + k m) + (far - k lam^2) l,

        so that one vector G + k m serves both ends, and what multiplies a model itself goes in with the weight decay.
        """
        if "pair" not in trained or not optimiser.eager_sgd:
            return ClientRule.step(self, trained, memory, visit, batch, key, optimiser)
        task, pair = visit.task, trained["pair"]
        pieces = self._pieces(task, key)
        if not all(EDGE <= lam <= 1 - EDGE for lam, _, _ in pieces):
            return ClientRule.step(self, trained, memory, visit, batch, key, optimiser)
        if "mixed" not in memory:
            memory |= {"mixed": torch.empty_like(pair[0]), "block": pair.new_empty(BLOCK)}
        mixed, anchor, velocity = memory["mixed"], visit.shared["theta"], memory.get("momentum.pair")
        near, far, cross = self._cosine(*_mix(pair, mixed, pieces))
        decay = optimiser.training.weight_decay
        for lam, start, stop, gradient in self._slices(task, mixed, trained["buffers"], batch, key, pieces):
            here, rest = slice(start, stop), 1 - lam
            k = cross / (lam * rest)
            slope = torch.add(gradient, mixed[here], alpha=k, out=memory["block"][: stop - start])
            moments = ([], []) if velocity is None else ([velocity[0, here]], [velocity[1, here]])
            optimiser.descend([pair[1, here]], [slope], moments[1], (decay + far) / lam - k * lam, lam)
            if self.mu:
                slope.add_(anchor[here], alpha=-self.mu / rest)
            optimiser.descend([pair[0, here]], [slope], moments[0], (decay + self.mu + near) / rest - k * rest, rest)
        return trained, memory

    def _slices(
        self,
        task: Task,
        mixed: Tensor,
        buffers: Tensor,
        batch: Batch,
        key: rng.Key,
        pieces: list[Piece],
    ) -> Iterator[tuple[float, int, int, Tensor]]:
        """The gradient at the mixed point in blocks: lam, start, stop, slope."""
        entries = task.layout.entries
        if task.dense is not None or task.layout.size < len(entries) * LARGE:
            gradient, _ = task.grad(mixed, buffers, batch, key, task.scratch(mixed))
            for lam, start, stop in pieces:
                yield lam, start, stop, gradient[start:stop]
            return
        lams = dict(zip(task.layout.modules, self._lams(task, key), strict=True)) if self.layerwise else {}
        for entry, part in zip(entries, task.grad_parts(mixed, buffers, batch, key), strict=True):
            lam, flat = lams.get(entry.module, pieces[0][0]), part.reshape(-1)
            for at in range(entry.start, entry.stop, BLOCK):
                stop = min(at + BLOCK, entry.stop)
                yield lam, at, stop, flat[at - entry.start : stop - entry.start]

    def _lams(self, task: Task, key: rng.Key) -> list[float]:
        """The lam of every module, or the one of the whole model."""
        return rng.uniform(key, len(task.layout.modules) if self.layerwise else 1).tolist()

    def _pieces(self, task: Task, key: rng.Key) -> list[Piece]:
        """Blocks of the parameter vector, each with its lam."""
        spans = task.layout.spans if self.layerwise else ((0, task.layout.size),)
        lams = self._lams(task, key)
        return [
            (lam, at, min(at + BLOCK, stop))
            for lam, (start, stop) in zip(lams, spans, strict=True)
            for at in range(start, stop, BLOCK)
        ]

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        f = trained["pair"][0] if "pair" in trained else trained["theta"]
        own = visit.own
        if "pair" in trained:
            angle = cosine(trained["pair"][0], trained["pair"][1]).abs().reshape(1)
            own = {"own": trained["pair"][1], "trained": visit.own["trained"] + 1, "cosine": angle}
        return Upload(mix={"theta": f - visit.shared["theta"]}, carry={"buffers": trained["buffers"]}), own

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors:
        if not own or not own["trained"]:
            return shared_model(shared)
        return {"theta": torch.lerp(shared["theta"], own["own"], self.blend)}

    def endpoints(self, task: Task, shared: Tensors, own: Tensors | None) -> tuple[Tensors, Tensors] | None:
        if not own or not own["trained"]:
            return None
        return shared_model(shared), {"theta": own["own"]}


def _mix(pair: Tensor, mixed: Tensor, pieces: list[Piece]) -> tuple[float, float, float]:
    """Write (1 - lam) f + lam l, and give <f, f>, <f, l>, <l, l> from the same pass, summed over blocks in float64."""
    ff = fl = ll = 0.0
    for lam, start, stop in reversed(pieces):  # those the last step ended with may still be in the cache
        both = pair[:, start:stop]
        f, l = both  # noqa: E741
        torch.lerp(f, l, lam, out=mixed[start:stop])
        first, second = torch.mv(both, f).tolist()
        ff, fl, ll = ff + first, fl + second, ll + float(torch.linalg.vector_norm(l)) ** 2
    return ff, fl, ll
