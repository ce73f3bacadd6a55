"""FedEvg's client: a classifier trained as an energy model, which tells the server how to move its synthetic set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedchord import check, rng
from fedchord.clients import moving
from fedchord.core.objective import Batch, live_mean
from fedchord.core.rules import Log, Phase, SamplesRule, Slope, Upload, Visit, shared_model
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.privacy.quotient import only
from fedchord.tensors import Tensors

SETTINGS = ("optimiser", "lr", "lr_decay", "lr_step", "beta1", "weight_decay", "batch")
"""Fields that replace the run's settings of the same name."""
LARGEST = 80.0
"""The largest |f| in true weights exp(f): exp(80) = 5.5e34, so that a G and means of them stay finite in float32."""
THESIS: dict[str, Any] = {
    "persistent": False,
    "iterations": 0,
    "chain": 64,
    "sgld": 1,
    "gamma": 1.0,
    "sigma": 0.01,
    "lam": 0.1,
    "pcd": 1.0,
    "ridge": 0.0,
    "grad_clip": 3.0,
    "weights": "signed",
    "swish": True,
    "spectral": True,
    "optimiser": "adam",
    "lr": 0.001,
    "lr_decay": 0.9,
    "lr_step": 50,
    "beta1": 0.5,
    "weight_decay": 0.0001,
    "batch": 64,
}
"""The thesis' settings, with those of its published code where the text has none."""
TABLES: dict[str, Any] = {"iterations": 10, "gamma": 0.01, "sigma": 0.02}
"""What differs for tables: shorter steps, since rows lie inside their range and not at its ends, and more of them."""
WATCHED = ("energy_real", "energy_chain", "energy_noise")
"""The mean energies in the log: of the last real batch, of the chain, of noise."""
BOUND = 10_000.0
"""Mean energies beyond this are reported."""
GAP = 1.0
"""Real rows that lie higher than noise by this much are reported."""


@final
@dataclass(frozen=True)
class Energy(SamplesRule):
    """Trains a classifier f as an energy model, E(x, y) = -f(x)[y], and sends energy gradients (thesis, chapter 4).

    The server broadcasts M = classes x spc synthetic inputs u, class by class, in unit coordinates (the data's range is
    [0, 1]); classes v never change. A client copies them and, at every step, draws a real batch (x, y) and `chain`
    samples (u, v) of its copy, moves those by `sgld` Langevin steps,

        u' <- clamp(u' + gamma clip(grad f(u')[v]) + sigma N(0, I)),   u' = u at first,

    writes u' back into the copy (the chain persists within the round), and descends on

        pcd (mean E(x, y) - mean E(u', v)) + CE(f(x), y) + lam CE(f(u), v) + ridge (mean E(x, y)^2 + mean E(u', v)^2).

    pcd = 1 is contrastive divergence (departs: E4; -1 is the sign as printed, a control). At the end it sends, for
    every received sample, num = a G and den = a, with G = clip(grad E(u, v)) and a weight a: exp(sgn f(u)[v]), or
    exp(f(u)[v]) for weights = "softmax" (the gradient of the log-mixture of the clients' densities, if their
    normalising constants are equal), where f is cut to [-80, 80] for float32: clients beyond count alike. All M
    energies and gradients come from one pass.

    Local models persist over rounds, or (`persistent` false) are drawn anew in every round, the same for all clients.
    `iterations` batches make a visit (0: the run's epochs). The optimiser's fields and `batch` replace the run's
    settings. Clips are elementwise, 0 is none. `swish` and `spectral` are options of the model. Mean energies of the
    last real batch, of the chain and of noise are written down.
    """

    sends: ClassVar[Mapping[str, str]] = {"num": "mix", "den": "mix"}

    spc: int = 10
    persistent: bool = True
    iterations: int = 3
    chain: int = 32
    sgld: int = 1
    gamma: float = 0.1
    sigma: float = 0.01
    lam: float = 0.1
    pcd: float = 1.0
    ridge: float = 0.0
    grad_clip: float = 3.0
    chain_margin: float = 0.0
    weights: str = "signed"
    optimiser: str = "adam"
    lr: float = 0.001
    lr_decay: float = 1.0
    lr_step: int = 1
    beta1: float = 0.5
    weight_decay: float = 0.0001
    batch: int = 32
    swish: bool = True
    spectral: bool = True

    def __post_init__(self) -> None:
        for name, low in {"spc": 1, "iterations": 0, "chain": 1, "sgld": 0, "batch": 0}.items():
            check.whole("Energy", name, getattr(self, name), low)
        for name in ("gamma", "sigma", "lam", "ridge", "grad_clip", "chain_margin"):
            check.at_least("Energy", name, getattr(self, name), 0)
        check.between("Energy", "pcd", self.pcd, -1, 1)
        check.one_of("Energy", "weights", self.weights, ("signed", "softmax"))
        self.local(Training())

    def local(self, training: Training) -> Training:
        return replace(training, **{name: getattr(self, name) for name in SETTINGS})

    def options(self) -> Mapping[str, Any]:
        return {"activation": "silu" if self.swish else "relu", "spectral": self.spectral}

    def alarm(self, log: Mapping[str, float]) -> str:
        """Energies beyond BOUND, or real rows clearly higher than noise."""
        if not set(WATCHED) <= set(log):  # they stay with the clients
            return ""
        real, chain, nothing = (log[name] for name in WATCHED)
        shown = f"mean energies: real {real:.3g}, chain {chain:.3g}, noise {nothing:.3g}"
        if not max(abs(real), abs(chain), abs(nothing)) <= BOUND:
            return f"the energies run away ({shown}); lower method.lr, or set method.ridge"
        if real > nothing + GAP:
            return f"real rows lie higher than noise ({shown}); the classifier learns the wrong way round"
        return ""

    # -- the synthetic set ----------------------------------------------------------------------------------------

    def opening(self, task: Task, key: int) -> Tensors:
        return moving.opening("Energy", task, self.spc, key)

    def labels(self, task: Task) -> Tensor:
        """The class of every synthetic sample, class by class."""
        return moving.labels(task, self.spc)

    def synthesise(self, task: Task, shared: Tensors, key: int) -> Batch:
        return moving.settled(task, shared["x"])

    def numerator(self) -> Energy:
        """The rule that sends no weights, where whole clients are hidden."""
        return only(self, "sends", {"num": "mix"})

    # -- one visit ------------------------------------------------------------------------------------------------

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        return task.fresh(key) if self.persistent else {}

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(epochs=visit.info.epochs, steps=self.iterations or None),)

    def start(self, visit: Visit) -> Tensors:
        seen = torch.zeros(2, device=visit.task.device)
        return self.received(visit) | {"chain": visit.shared["x"].flatten(0, 1), "energies": seen}

    def received(self, visit: Visit) -> Tensors:
        """The local model before the visit; none is received."""
        if self.persistent:
            return {name: visit.own[name] for name in ("theta", "buffers")}
        key = rng.fold(visit.info.key, 1)
        assert isinstance(key, int)
        return visit.task.fresh(key)

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Slope:
        task, labels = visit.task, self.labels(visit.task)
        picked = rng.permutation(rng.fold(key, 0), len(labels))[: self.chain].to(task.device)
        u, v = trained["chain"][picked], labels[picked]
        moved = self._langevin(task, trained, u, v, key)
        place = moving.described(task).from_unit
        joined = torch.cat([batch["x"], place(moved), place(u)])
        slope, buffers, energies = task.grad_of(
            lambda outputs: self._objective(outputs, batch, v), trained["theta"], trained["buffers"], {"x": joined}, key
        )
        chain = trained["chain"].index_copy(0, picked, moved)
        return {"theta": slope, "buffers": buffers, "chain": chain, "energies": energies}

    def _langevin(self, task: Task, trained: Tensors, u: Tensor, v: Tensor, key: rng.Key) -> Tensor:
        """The samples after the chain's steps."""
        for step in range(self.sgld):
            pull, _ = self._pull(task, trained, u, v)
            u = u.add(pull, alpha=self.gamma)
            if self.sigma:
                u = u.add(rng.normal(rng.fold(key, step + 1), tuple(u.shape), u.device), alpha=self.sigma)
            u = u.clamp(-self.chain_margin, 1 + self.chain_margin)
        return u

    def _pull(self, task: Task, trained: Tensors, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """grad f(u)[v] in unit coordinates, clipped, and f(u)[v]."""
        inputs = moving.described(task)
        slope, outputs = task.grad_x(
            lambda outputs: chosen(outputs, v).sum(), trained["theta"], trained["buffers"], inputs.from_unit(u)
        )
        slope = slope * inputs.span
        return (slope.clamp(-self.grad_clip, self.grad_clip) if self.grad_clip else slope), chosen(outputs, v)

    def _objective(self, outputs: Tensor, batch: Batch, v: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of one step, and the mean energies of the real batch and of the chain."""
        real, moved, before = outputs.split([len(batch["y"]), len(v), len(v)])
        low, high = -chosen(real, batch["y"]), -chosen(moved, v)
        means = torch.stack([live_mean(low, None, batch), high.mean()])
        loss = self.pcd * (means[0] - means[1])
        loss = loss + live_mean(F.cross_entropy(real, batch["y"], reduction="none"), None, batch)
        loss = loss + self.lam * F.cross_entropy(before, v)
        if self.ridge:
            loss = loss + self.ridge * (live_mean(low.square(), None, batch) + high.square().mean())
        return loss, means

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        task, labels, x = visit.task, self.labels(visit.task), visit.shared["x"]
        pull, score = self._pull(task, trained, x.flatten(0, 1), labels)
        weight = torch.exp(torch.sign(score) if self.weights == "signed" else score.clamp(-LARGEST, LARGEST))
        num = -pull.reshape(x.shape) * weight.reshape(*x.shape[:2], *[1] * (x.ndim - 2))
        inputs, key = moving.described(task), rng.fold(visit.info.key, 2)
        assert isinstance(key, int)
        nothing = {"x": inputs.from_unit(moving.noise(key, (inputs.classes,), inputs, task.device))}
        outputs = task.outputs(trained["theta"], trained["buffers"], nothing)
        energy = -chosen(outputs, labels[:: self.spc]).mean()
        log = Log(means=dict(zip(WATCHED, [*trained["energies"].unbind(), energy], strict=True)))
        kept = shared_model(trained) if self.persistent else {}
        sent = {"num": num, "den": weight.reshape(x.shape[:2])}
        return Upload(mix={name: sent[name] for name in self.sends}, log=log), kept


def chosen(outputs: Tensor, labels: Tensor) -> Tensor:
    """f(x)[y], which is -E(x, y)."""
    return outputs.gather(1, labels.unsqueeze(1)).squeeze(1)
