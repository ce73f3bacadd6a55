"""Witness energies: a client trains nothing and tells how its mean features differ from those of a synthetic set."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedchord import check, rng
from fedchord.clients import moving
from fedchord.core.objective import Batch
from fedchord.core.rules import Log, Phase, SamplesRule, Upload, Visit
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser, Training
from fedchord.privacy.quotient import only
from fedchord.privacy.rows import Hiding
from fedchord.tensors import Tensors

FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda psi, lift: psi,
    "squares": lambda psi, lift: torch.cat([psi, psi.square()], 1),
    "covariance": lambda psi, lift: torch.cat([psi, (psi @ lift).square()], 1),
    "kernel": lambda psi, lift: torch.cat([(psi @ lift).cos(), (psi @ lift).sin()], 1),
}
"""What is matched, by the features psi of a network and random directions of them."""
DIRECTIONS = 512
"""How many random directions, where they are asked for."""
LENGTH = 0.1
"""The step of descent on the received set."""


@final
@dataclass(frozen=True)
class Witness(SamplesRule):
    """Sends gradients of a fixed energy for every sample (u, v) of the broadcast set.

        E_i(u, v) = -<phi_t(u), mu_iv - nu_v>

    phi_t is a network with weights drawn from the round's key, the same for all clients, without its last layer; mu_iv
    the mean of phi_t over the client's rows of class v, nu_v that over the samples of the class, fixed when
    differentiating. mu - nu is the witness of the difference of two means. The weight of a sample is a = n_iv / n_i:
    with clients weighted by size, all of them present and every row read (`iterations` 0), the mixed gradient is

        sum_i n_i a_iv grad E_i / sum_i n_i a_iv = -J(u)^T (mu_v - nu_v),    mu_v the mean over all clients' rows,

    that of the pooled data whatever the split, and n / 2 times the gradient of ||mu_v - nu_v||^2, where n samples make
    nu_v: distribution matching (Zhao and Bilen, 2023), done federatedly on one shared set. Nothing is trained and
    nothing is kept.

    A visit reads `iterations` batches of `batch` rows (0: every row once). `networks` are drawn in a round, and their
    gradients averaged; `learn` steps of gradient descent (length 0.1) on the received set make each of them know its
    classes. `match` is what of the features has its mean taken: "mean" the features psi of the network themselves,

        squares: (psi, psi^2),   covariance: (psi, (psi R)^2),   kernel: (cos psi R / s, sin psi R / s),

    R of normal numbers drawn from the round's key, s the root mean square distance of the received samples' psi from
    their mean: ||mu - nu||^2 is then an estimate of the squared distance under a Gaussian kernel of width s (Rahimi and
    Recht, 2007). Pictures are turned by up to `turn` degrees,
    scaled by up to 1 +- `zoom` and moved by up to `shift` of their side before a network sees them, real and synthetic
    ones alike, by one draw for each network. Of a class with fewer than `min_rows` rows nothing is sent: the mean of
    one row is that row.

    With `apart` every client condenses its own rows alone, and the set is the union, as in FedDM (Xiong et al., 2023;
    departs: random networks instead of ones near a model that the server trains). Sample s of a class belongs to client
    s modulo the number of clients, nu_iv is the mean over its own samples, and their gradient is its alone; what it
    sends of others is zero. Samples whose owner has no row of their class never move, and in the end the others of the
    class stand in their place. With `heed` h above 0 clients that condense apart heed each other, as in FedAF (Wang et
    al., 2024),

        E_i(u, v) = -<phi_t(u), mu_iv - nu_iv + h (nu_v - nu_iv)>,

    nu_v the mean over all samples of the class that have moved, the others' too (departs: means of random features on
    the broadcast set, where FedAF has mean logits of the server's model under a sliced Wasserstein distance; no soft
    labels).

    With rows hidden (`hiding`), the norm of a row's features, all networks together, is at most C, real and synthetic
    ones alike. Sums and counts begin with noise of std sqrt(2) z C and sqrt(2) z, so that both together are the
    Gaussian mechanism of noise z, and the rest follows from them: it costs nothing. Classes whose noised count is below
    4 of its stds are not sent either.
    """

    sends: ClassVar[Mapping[str, str]] = {"num": "mix", "den": "mix"}

    spc: int = 10
    iterations: int = 1
    batch: int = 64
    networks: int = 1
    match: str = "mean"
    learn: int = 0
    turn: float = 0.0
    zoom: float = 0.0
    shift: float = 0.1
    min_rows: int = 0
    apart: bool = False
    heed: float = 0.0
    hidden: Hiding | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, low in {"spc": 1, "iterations": 0, "batch": 1, "networks": 1, "learn": 0, "min_rows": 0}.items():
            check.whole("Witness", name, getattr(self, name), low)
        check.one_of("Witness", "match", self.match, FEATURES)
        check.between("Witness", "turn", self.turn, 0, 180)
        for name in ("zoom", "shift"):
            check.below("Witness", name, getattr(self, name), 1)
        check.at_least("Witness", "heed", self.heed, 0)
        told = "heed is for clients that condense apart: set method.apart=true"
        check.require(self.apart or not self.heed, "Witness", told)

    def unhidden(self) -> str:
        told = "its batches are no Poisson sample: set method.iterations=0, by which every row is read once"
        return told if self.iterations else ""

    def hiding(self, how: Hiding) -> Witness:
        """The rule with rows hidden."""
        twin = copy.copy(self)
        object.__setattr__(twin, "hidden", how)
        return twin

    def local(self, training: Training) -> Training:
        return replace(training, optimiser="sgd", momentum=0.0, clip=0.0, batch=self.batch)

    # -- the synthetic set ----------------------------------------------------------------------------------------

    def opening(self, task: Task, key: int) -> Tensors:
        shared = moving.opening("Witness", task, self.spc, key)
        return shared | {"first": _marks(shared["x"])} if self.apart else shared

    def synthesise(self, task: Task, shared: Tensors, key: int) -> Batch:
        return moving.settled(task, _filled(shared["x"], shared["first"]) if self.apart else shared["x"])

    def numerator(self) -> Witness:
        """The rule that sends no weights, where whole clients are hidden."""
        return only(self, "sends", {"num": "mix"})

    # -- one visit ------------------------------------------------------------------------------------------------

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(moves=(), epochs=1, steps=self.iterations or None, name="read"),)

    def start(self, visit: Visit) -> Tensors:
        """The round's networks, and empty sums of features and counts of rows for every class."""
        task, inputs = visit.task, moving.described(visit.task)
        drawn = [self._learned(visit, self._network(visit, network)) for network in range(self.networks)]
        drawn = [one | {"lift": self._lift(visit, network, one)} for network, one in enumerate(drawn)]
        trained = {name: torch.stack([one[name] for one in drawn]) for name in ("theta", "buffers", "lift")}
        width = self.phi(trained, visit, 0, inputs.from_unit(visit.shared["x"][0, :1])).shape[1]
        sums = torch.zeros(self.networks, inputs.classes, width, device=task.device)
        counts = torch.zeros(inputs.classes, device=task.device)
        return trained | {"sums": sums, "counts": counts, "begun": torch.zeros(())}

    def received(self, visit: Visit) -> Tensors:
        """The first of the round's networks; none is received."""
        return self._network(visit, 0)

    def step(
        self, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
    ) -> tuple[Tensors, Tensors]:
        """Add the features of a batch to the sums of their classes."""
        classes = torch.arange(len(trained["counts"]), device=visit.task.device)
        member = (batch["y"] == classes[:, None]).to(torch.float32) * batch.get("live", torch.ones(()))
        with torch.no_grad():
            found = [member @ self.phi(trained, visit, k, batch["x"]) for k in range(self.networks)]
        if self.hidden is not None and not trained["begun"]:
            trained = trained | self._noise(trained, self.hidden, key)
        sums, counts = trained["sums"] + torch.stack(found), trained["counts"] + member.sum(1)
        return trained | {"sums": sums, "counts": counts, "begun": torch.ones(())}, memory

    def _noise(self, trained: Tensors, hidden: Hiding, key: rng.Key) -> Tensors:
        """What sums and counts begin with where rows are hidden."""
        assert isinstance(key, int)
        std = {"sums": math.sqrt(2) * hidden.course.noise * hidden.clip, "counts": math.sqrt(2) * hidden.course.noise}
        drawn = {name: hidden.drawn(key, name, tuple(trained[name].shape)) for name in std}
        return {name: trained[name] + (std[name] * drawn[name]).to(trained[name]) for name in std}

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        x, counts = visit.shared["x"], trained["counts"]
        total, counts = counts.clamp_min(0).sum().clamp_min(1), torch.where(counts >= self._least, counts, 0.0)
        means = trained["sums"] / counts.clamp_min(1)[:, None]
        held = visit.task.some(counts > 0)  # of other classes nothing is sent
        slope, apart = torch.zeros_like(x), torch.zeros_like(counts)
        for network in range(self.networks):
            pulled, square = self._slope(trained, visit, network, held, means[network][held])
            slope[held] += pulled / self.networks
            apart[held] += square / self.networks
        weight = counts / total
        log = Log(means={"discrepancy": (weight * apart).sum()})
        den = weight[:, None].expand(x.shape[:2]) * (self._mine(visit) if self.apart else 1.0)
        sent = {"num": slope * den.reshape(*den.shape, *[1] * (x.ndim - 2)), "den": den}
        return Upload(mix={name: sent[name] for name in self.sends}, log=log), {}

    def _mine(self, visit: Visit) -> Tensor:
        """One for every sample of a class that is the client's own, where clients have some each; zero for others."""
        spc, clients = visit.shared["x"].shape[1], visit.info.num_clients
        told = f"apart deals the samples of a class to the clients: spc must be a multiple of {clients}, got {spc}"
        check.require(spc % clients == 0, "Witness", told)
        return (torch.arange(spc, device=visit.task.device) % clients == visit.client).to(torch.float32)

    @property
    def _least(self) -> float:
        """The fewest rows of a class that is sent."""
        noise = 0.0 if self.hidden is None else 4 * math.sqrt(2) * self.hidden.course.noise
        return max(self.min_rows, noise)

    def _slope(
        self, trained: Tensors, visit: Visit, network: int, held: Tensor | slice, means: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradient of the energies at the samples of some classes, and ||mu - nu||^2 of each class."""
        inputs, x = moving.described(visit.task), visit.shared["x"][held]

        def phi(samples: Tensors) -> Tensor:
            return self.phi(trained, visit, network, inputs.from_unit(samples["u"].flatten(0, 1)))

        value, pull = visit.task.pullback(phi, {"u": x})
        of_class = value.unflatten(0, x.shape[:2])
        mine = self._mine(visit) if self.apart else None
        nu = of_class.mean(1) if mine is None else (of_class * mine[:, None]).sum(1) / mine.sum()
        witness = means - nu
        pulling = witness + self.heed * (self._everyones(visit, held, of_class, nu) - nu) if self.heed else witness
        return pull(-pulling.repeat_interleave(x.shape[1], 0))["u"], witness.square().sum(1)

    def _everyones(self, visit: Visit, held: Tensor | slice, of_class: Tensor, nu: Tensor) -> Tensor:
        """The mean features of all samples of a class that have moved; the client's own where none has."""
        moved = (_marks(visit.shared["x"]) != visit.shared["first"])[held].to(of_class)[:, :, None]
        return torch.where(moved.any(1), (of_class * moved).sum(1) / moved.sum(1).clamp_min(1), nu)

    def phi(self, trained: Tensors, visit: Visit, network: int, x: Tensor) -> Tensor:
        """The features of rows, varied as the round says."""
        found = self._psi(visit, network, {name: trained[name][network] for name in ("theta", "buffers")}, x)
        phi = FEATURES[self.match](found, trained["lift"][network])
        if self.hidden is None:
            return phi
        most = self.hidden.clip / math.sqrt(self.networks)
        return phi * (most / torch.linalg.vector_norm(phi, dim=1, keepdim=True).clamp_min(most))

    def _psi(self, visit: Visit, network: int, model: Tensors, x: Tensor) -> Tensor:
        """What a network's last layer is given for rows, varied as the round says."""
        shown = self._varied(x, rng.fold(self._key(visit, network), 1))
        return visit.task.features(model["theta"], model["buffers"], {"x": shown})

    def _learned(self, visit: Visit, model: Tensors) -> Tensors:
        """A network after some steps on the received set, alike at all clients."""
        task, x = visit.task, visit.shared["x"]
        batch = {"x": moving.described(task).from_unit(x.flatten(0, 1)), "y": moving.labels(task, x.shape[1])}
        theta, buffers = model["theta"], model["buffers"]
        for step in range(self.learn):
            slope, buffers = task.bare.slope(theta, buffers, batch, rng.fold(visit.info.key, step))
            theta = theta.sub(slope, alpha=LENGTH)
        return {"theta": theta, "buffers": buffers}

    def _lift(self, visit: Visit, network: int, model: Tensors) -> Tensor:
        """Random directions of the features, where they are asked for."""
        if self.match not in ("covariance", "kernel"):
            return torch.zeros((), device=visit.task.device)
        x = moving.described(visit.task).from_unit(visit.shared["x"].flatten(0, 1))
        with torch.no_grad():
            psi = self._psi(visit, network, model, x)
        apart = (psi - psi.mean(0)).square().sum(1).mean().sqrt() if self.match == "kernel" else math.sqrt(psi.shape[1])
        drawn = rng.normal(rng.fold(self._key(visit, network), 2), (psi.shape[1], DIRECTIONS), psi.device)
        return drawn / apart

    def _varied(self, x: Tensor, key: rng.Key) -> Tensor:
        """Pictures turned, scaled and moved, all alike; other rows as they are."""
        if x.ndim != 4 or not (self.turn or self.zoom or self.shift):
            return x
        turn, zoom, right, down = (2 * rng.uniform(key, 4) - 1).tolist()
        angle, size, side = math.radians(turn * self.turn), 1 + zoom * self.zoom, x.shape[2] / x.shape[3]
        along, across = math.cos(angle) / size, math.sin(angle) / size
        matrix = torch.tensor(
            [[along, -across * side, 2 * right * self.shift], [across / side, along, 2 * down * self.shift]],
            device=x.device,
        )
        grid = F.affine_grid(matrix[None], [1, *x.shape[1:]], align_corners=False).expand(len(x), -1, -1, -1)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)

    def _network(self, visit: Visit, network: int) -> Tensors:
        """One of the round's networks, the same for all clients."""
        return visit.task.fresh(self._key(visit, network))

    def _key(self, visit: Visit, network: int) -> int:
        """The key of one of the round's networks, known to every client."""
        key = rng.fold(rng.fold(visit.info.key, 1), network)
        assert isinstance(key, int)
        return key


def _marks(x: Tensor) -> Tensor:
    """A number for every sample that tells whether it ever moved: a sum of whole numbers, the same in any order."""
    return ((x * 2**20).long().flatten(2).sum(-1) % 2**20).to(torch.float32)


def _filled(x: Tensor, first: Tensor) -> Tensor:
    """The samples with those that never moved replaced, in turn, by others of their class, where there are any."""
    moved = [places.nonzero()[:, 0] for places in _marks(x) != first]
    turn = torch.arange(x.shape[1], device=x.device)
    return torch.stack(
        [one[places[turn % len(places)]] if len(places) else one for one, places in zip(x, moved, strict=True)]
    )
