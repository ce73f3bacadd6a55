"""The records that rules exchange with each other and with the engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import one_of
from fedchord.core.objective import Batch
from fedchord.core.per_client import PerClient
from fedchord.core.task import Task
from fedchord.tensors import Tensors

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
    Momentum starts at zero in each phase. `steps`, where given, is a number of batches and replaces `epochs`; `lr`,
    where given, replaces the learning rate of the round.
    """

    moves: tuple[str, ...] = ("theta",)
    epochs: int = 1
    steps: int | None = None
    name: str = "train"
    lr: float | None = None
    stays: bool = False
    """Whether what it trains never leaves the client, and goes into nothing that does."""


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
    sampled: bool = True
    """Whether the client has ever taken part in a round; false only where a rule is asked for `tuning`."""

    def slope(
        self, trained: Tensors, batch: Batch, key: rng.Key, of: str = "theta", buffers: str = "buffers"
    ) -> Tensors:
        """The gradient of the batch loss at one trained entry and the buffers after it, as a direction.

        The gradient lies in a vector that the task keeps; a rule that needs two gradients at once calls `task.grad`.
        """
        gradient, after = self.task.slope(trained[of], trained[buffers], batch, key)
        return {of: gradient, buffers: after}


@dataclass(frozen=True)
class Log:
    """Numbers about a visit that are worth writing down: `means` are averaged over the cohort, `sums` added up.

    A rule gives the same entries in every round; NaN where there is nothing to tell. They may speak of a private model
    and are no part of what is sent: over a network they stay at the client unless its owner lets them go.
    """

    means: Tensors = field(default_factory=dict)
    sums: Tensors = field(default_factory=dict)

    def over_cohort(self) -> dict[str, float]:
        """One number per entry, where the entries hold a row per client; NaN if no client has anything to tell."""
        told = {name: rows[~rows.isnan()] for name, rows in (self.means | self.sums).items()}
        means = {name: float(told[name].mean()) for name in self.means}
        return means | {name: float(told[name].sum()) if len(told[name]) else math.nan for name in self.sums}


@dataclass(frozen=True)
class Upload:
    """What a client sends: `mix` is summed with the mixing coefficients, `carry` (buffers) with the shares, `mean` with
    equal weights over the cohort. `log` is for the log of a simulation."""

    mix: Tensors = field(default_factory=dict)
    carry: Tensors = field(default_factory=dict)
    mean: Tensors = field(default_factory=dict)
    log: Log = field(default_factory=Log)


@dataclass(frozen=True)
class Line:
    """A model between two: theta = (1 - at) near + at far, in whole parameter vectors.

    `buffers` are the running statistics it is used with; None: they are recomputed on the client's training rows.
    """

    near: Tensor
    far: Tensor
    at: float | Tensor
    buffers: Tensor | None = None

    @property
    def theta(self) -> Tensor:
        """The parameters at the point."""
        return torch.lerp(self.near, self.far, self.at)


GLOBAL, OWN, LINE, SAMPLES = "global", "own", "line", "samples"


@dataclass(frozen=True)
class Deployed:
    """What clients end with, in words for the written protocol, and its kind.

    "global": one model for all. "own": a model of each client's own. "line": a point between two models (`deploy` gives
    a `Line`, which can be swept). "samples": a synthetic set.
    """

    words: str
    kind: str = OWN

    def __post_init__(self) -> None:
        one_of("Deployed", "kind", self.kind, (GLOBAL, OWN, LINE, SAMPLES))


def shared_model(shared: Tensors) -> Tensors:
    """The whole model inside a broadcast: its parameters and buffers."""
    return {"theta": shared["theta"], "buffers": shared["buffers"]}


@dataclass(frozen=True)
class Cohort:
    """What the mixing rule sees of the clients of one round.

    `losses` (training loss of the received model), `norms` and `gram` (of the uploaded `mix["theta"]`) are there only
    if the rule asks for them in `needs`. Where clients report something else in place of their loss
    (`MixingRule.secret`) and did so themselves, `reports` is there and `losses` is not.
    """

    ids: Tensor
    sizes: Tensor
    losses: Tensor | None = None
    norms: Tensor | None = None
    gram: Tensor | None = None
    reports: Tensor | None = None


@dataclass(frozen=True)
class Mix:
    """How much each client counts: `coefficients` multiply the uploads (they need not sum to one), `shares` lie on the
    simplex and serve buffers, logs and figures; `log` holds numbers worth writing down."""

    coefficients: Tensor
    shares: Tensor
    log: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Update:
    """What the server rule receives: the mixed sums and the plain means of what the cohort uploaded."""

    mix: Tensors
    mean: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class ServerState:
    """Everything the server knows between rounds: what it broadcasts next and what its rules remember."""

    round: int
    broadcast: Tensors
    mixing: Tensors
    server: Tensors
    visits: PerClient
    """How often each client has been sampled."""
    counted: PerClient = field(default_factory=lambda: PerClient((), 0))
    """The last round (from 0) of each client that entered the model; -1 before the first."""
    sums: Tensors = field(default_factory=dict)
    """Where global models are averaged: the sums of those of the window so far, in float64, and their `count`."""

    def __post_init__(self) -> None:
        if len(self.counted) != len(self.visits):  # not told: nobody's is known
            object.__setattr__(self, "counted", PerClient.filled(len(self.visits), -1, torch.int64))

    def to(self, device: torch.device) -> ServerState:
        """The state with all that is as long as a model on a device; a mixing rule's memory is used on the CPU."""
        broadcast, server, sums = (
            {name: tensor.to(device) for name, tensor in part.items()}
            for part in (self.broadcast, self.server, self.sums)
        )
        return replace(self, broadcast=broadcast, server=server, sums=sums)
