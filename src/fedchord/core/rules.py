"""The three rules of which an algorithm is made, and the records they exchange.

An algorithm is a frozen record of a client rule, a mixing rule and a server rule. A rule is a frozen dataclass: its
fields are its hyperparameters, its hooks are functions of their arguments, and no hook keeps anything in `self` or
changes a tensor it was given. Every hook of `ClientRule` has a default, and the defaults are FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import require
from fedchord.core.objective import Batch
from fedchord.core.task import Task
from fedchord.tensors import Tensors

if TYPE_CHECKING:
    from fedchord.core.training import LocalOptimiser, Training

Slope = Mapping[str, Tensor | list[Tensor]]
"""A direction by entry; the gradient of a model may come as one tensor per entry of its layout."""


@dataclass(frozen=True)
class RoundInfo:
    """What every hook may know about the round.

    Its number (from 0), the planned rounds, K, |S|, the local learning rate and epochs, a key for the server's draws.
    """

    round: int
    rounds: int
    num_clients: int
    cohort: int
    lr: float
    epochs: int
    key: int

    @property
    def progress(self) -> float:
        """The share of the rounds that lie behind, in [0, 1)."""
        return self.round / self.rounds


@dataclass(frozen=True)
class Phase:
    """A stretch of local training: how long it is, and which trained entries the optimiser moves.

    Entries that `direction` returns and `moves` does not name are carried: the returned value replaces the old one.
    Momentum starts at zero in each phase. `steps`, where given, is a number of batches and replaces `epochs`.
    """

    moves: tuple[str, ...] = ("theta",)
    epochs: int = 1
    steps: int | None = None
    name: str = "train"


@dataclass(frozen=True)
class Visit:
    """One client's view of one round: what it received, what it keeps, how much data and how many steps it has."""

    task: Task
    shared: Tensors
    own: Tensors
    info: RoundInfo
    client: int | Tensor
    size: int | Tensor
    steps: int | Tensor = 0
    phase: Phase = field(default_factory=Phase)
    key: rng.Key = 0
    """Of the phase: its step t, from 0, draws with rng.fold(key, t)."""

    def slope(
        self, trained: Tensors, batch: Batch, key: rng.Key, of: str = "theta", buffers: str = "buffers"
    ) -> Tensors:
        """The gradient of the batch loss at one trained entry and the buffers after it, as a direction.

        The gradient lies in a vector that the task keeps; a rule that needs two gradients at once calls `task.grad`.
        """
        theta = trained[of]
        out = None if self.task.traced else self.task.scratch(theta)
        gradient, after = self.task.grad(theta, trained[buffers], batch, key, out)
        return {of: gradient, buffers: after}


@dataclass(frozen=True)
class Upload:
    """What a client sends: `mix` is summed with the mixing coefficients, `carry` (buffers) with the shares,
    `mean` with equal weights over the cohort; `stats` are scalars for the mixing rule, summed in the log."""

    mix: Tensors = field(default_factory=dict)
    carry: Tensors = field(default_factory=dict)
    mean: Tensors = field(default_factory=dict)
    stats: Tensors = field(default_factory=dict)


def shared_model(shared: Tensors) -> Tensors:
    """The whole model inside a broadcast: its parameters and buffers."""
    return {"theta": shared["theta"], "buffers": shared["buffers"]}


class ClientRule:
    """One client's work in one round, written for one client."""

    outcome: ClassVar[str] = "model"
    """"model", or "samples" where the server ends with a synthetic data set."""
    deploys: ClassVar[str] = "the global model"
    """What `deploy` gives, in words, for the written protocol."""
    mixes: ClassVar[tuple[str, ...]] = ("theta",)
    """The entries of the broadcast that uploads change through the mixing coefficients."""
    watched: ClassVar[tuple[str, ...]] = ()
    """Numbers of the private memory that a simulation writes down after every round, as means over the cohort."""
    extras: ClassVar[tuple[str, ...]] = ()
    """Entries beyond the model that the rule broadcasts and that the server rule must know how to move."""
    tunes: ClassVar[str] = "all"
    """Whose `tuning` takes place: that of "all" clients, or only of those that were "never sampled"."""
    tune_lr: float | None = None
    """The learning rate of `tuning`; None: that of the last round."""
    usual: ClassVar[str] = ""
    """The model that a run takes for this rule unless it names one; empty: by the data."""

    def options(self) -> Mapping[str, Any]:
        """Options of the model that this rule switches on, where the model has them (activation, spectral)."""
        return {}

    def alarm(self, log: Mapping[str, float]) -> str:
        """A sentence if the watched numbers of a round look wrong; a simulation reports the first."""
        return ""

    def local(self, training: Training) -> Training:
        """The local training settings this rule runs with; a rule that needs others changes them here, and it is
        reported."""
        return training

    def opening(self, task: Task, key: int) -> Tensors:
        """What the server broadcasts in the first round."""
        return task.init(key)

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        """The client's private memory before its first round."""
        return {}

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        """The stretches of local training, in order."""
        return (Phase(epochs=visit.info.epochs),)

    def start(self, visit: Visit) -> Tensors:
        """The trained entries at the start of the round; the loop copies them, so views of the broadcast are fine."""
        return shared_model(visit.shared)

    def received(self, visit: Visit) -> Tensors:
        """The model whose training loss F_i is reported before the update: what the client received."""
        return shared_model(visit.shared)

    def loss(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> tuple[Tensor, Tensors]:
        """The batch objective and the carried entries after it; override this to let autograd find the direction."""
        value, buffers = visit.task.loss(trained["theta"], trained["buffers"], batch, key)
        return value, {"buffers": buffers}

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Slope:
        """The gradient for each entry that moves, and the new value of each entry that is carried."""
        if type(self).loss is not ClientRule.loss:
            return self._differentiate(trained, visit, batch, key)
        if visit.task.traced or visit.task.dense is not None:
            return visit.slope(trained, batch, key)
        parts = visit.task.grad_parts(trained["theta"], trained["buffers"], batch, key)
        return {"theta": parts, "buffers": trained["buffers"]}

    def _differentiate(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        moving = {name: trained[name] for name in visit.phase.moves}

        def objective(parts: Tensors) -> tuple[Tensor, Tensors]:
            return self.loss(trained | parts, visit, batch, key)

        slopes, carried = torch.func.grad(objective, has_aux=True)(moving)
        return slopes | carried

    def step(
        self, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
    ) -> tuple[Tensors, Tensors]:
        """One local step: by default the optimiser follows `direction`."""
        slope = self.direction(trained, visit, batch, key)
        return optimiser.step(trained, slope, memory, visit.phase.moves)

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        """What is uploaded, and the private memory that stays."""
        update = trained["theta"] - visit.shared["theta"]
        return Upload(mix={"theta": update}, carry={"buffers": trained["buffers"]}), visit.own

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors:
        """The model the client would use, {"theta", "buffers"}; `own` is None for a client that never trained.

        Without "buffers", BatchNorm statistics are recomputed on the client's training rows (for mixed models).
        """
        return shared_model(shared)

    def tuning(self, visit: Visit) -> tuple[Phase, ...]:
        """Training that a client does before it deploys, from `start`; what it trains is given to `deploy` as `own`."""
        return ()

    def endpoints(self, task: Task, shared: Tensors, own: Tensors | None) -> tuple[Tensors, Tensors] | None:
        """The two models of a lambda sweep (federated, own), or None where there are no two."""
        return None

    def synthesise(self, task: Task, shared: Tensors, key: int) -> Batch:
        """For the outcome "samples": the synthetic data set of the server."""
        raise NotImplementedError(f"{type(self).__name__} has no samples")


@dataclass(frozen=True)
class Cohort:
    """What the mixing rule sees of the clients of one round.

    `losses` (training loss of the received model), `norms` and `gram` (of the uploaded `mix["theta"]`) are there only
    if the rule asks for them in `needs`.
    """

    ids: Tensor
    sizes: Tensor
    losses: Tensor | None = None
    norms: Tensor | None = None
    gram: Tensor | None = None
    stats: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Mix:
    """How much each client counts: `coefficients` multiply the uploads (they need not sum to one), `shares` lie on the
    simplex and serve buffers, logs and figures; `log` holds numbers worth writing down."""

    coefficients: Tensor
    shares: Tensor
    log: Mapping[str, float] = field(default_factory=dict)


class MixingRule:
    """How much each client of the cohort counts."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """A subset of {"loss", "norm", "gram"}: the engine computes only what is asked for."""
    full: ClassVar[bool] = False
    """Whether every client must take part in every round."""
    instead: ClassVar[str] = ""
    """For a rule with `full`: the rule to use where only some clients take part."""
    outcomes: ClassVar[tuple[str, ...]] = ("model",)
    """The outcomes the rule can serve."""

    def init(self, num_clients: int) -> Tensors:
        """What the rule remembers before the first round."""
        return {}

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        """The weights of this round, and what to remember."""
        raise NotImplementedError


@dataclass(frozen=True)
class Update:
    """What the server rule receives: the mixed sums and the plain means of what the cohort uploaded."""

    mix: Tensors
    mean: Tensors = field(default_factory=dict)


class ServerRule:
    """From the mixed update to the next broadcast."""

    moves: ClassVar[tuple[str, ...]] = ("theta",)
    """The mixed entries it can move; ("num", "den") for FedEvg's Langevin step."""
    extras: ClassVar[tuple[str, ...]] = ()
    """Entries of the broadcast beyond the mixed ones that it moves (SCAFFOLD's control variate)."""

    def init(self, moving: Tensors) -> Tensors:
        """What the rule remembers before the first round, given the entries it will move."""
        return {}

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        """The next broadcast, and what to remember."""
        raise NotImplementedError


@dataclass(frozen=True)
class Algorithm:
    """A record of three rules; it checks at construction that they fit each other."""

    client: ClientRule
    mixing: MixingRule
    server: ServerRule
    name: str = ""

    def __post_init__(self) -> None:
        client, mixing, server = self.client, self.mixing, self.server
        require(
            client.outcome in mixing.outcomes,
            "Algorithm",
            f"{_name(mixing)} mixes models and cannot be used with {_name(client)}, which exchanges {client.outcome}",
        )
        require(
            set(client.mixes) <= set(server.moves),
            "Algorithm",
            f"{_name(server)} moves {' and '.join(server.moves)} and cannot be used with {_name(client)}, "
            f"which sends {' and '.join(client.mixes)}",
        )
        require(
            set(client.extras) == set(server.extras),
            "Algorithm",
            f"{_name(client)} and {_name(server)} do not fit: "
            f"{' and '.join(sorted(set(client.extras) ^ set(server.extras)))} would not be updated",
        )

    @property
    def outcome(self) -> str:
        """ "model" or "samples"."""
        return self.client.outcome


def _name(rule: object) -> str:
    return type(rule).__name__


@dataclass(frozen=True)
class ServerState:
    """Everything the server knows between rounds: what it broadcasts next and what its rules remember."""

    round: int
    broadcast: Tensors
    mixing: Tensors
    server: Tensors
    visits: Tensor
    """How often each client has been sampled."""

    def to(self, device: torch.device) -> ServerState:
        """The state with its broadcast on a device."""
        return replace(self, broadcast={name: tensor.to(device) for name, tensor in self.broadcast.items()})
