"""The three rules of which an algorithm is made.

An algorithm is a frozen record of a client rule, a mixing rule and a server rule. A rule is a frozen dataclass: its
fields are its hyperparameters, its hooks are functions of their arguments, and no hook keeps anything in `self` or
changes a tensor it was given. Every hook of `ClientRule` has a default, and the defaults are FedAvg.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import one_of, require
from fedchord.core.objective import Batch
from fedchord.core.records import (
    GLOBAL,
    LINE,
    OWN,
    SAMPLES,
    Cohort,
    Deployed,
    Line,
    Log,
    Mix,
    Phase,
    RoundInfo,
    ServerState,
    Slope,
    Update,
    Upload,
    Visit,
    shared_model,
)
from fedchord.core.task import Task
from fedchord.tensors import Tensors

if TYPE_CHECKING:
    from fedchord.core.training import LocalOptimiser, Training

__all__ = [
    "GLOBAL",
    "LINE",
    "OWN",
    "SAMPLES",
    "Algorithm",
    "ClientRule",
    "Cohort",
    "Deployed",
    "Line",
    "Log",
    "Mix",
    "MixingRule",
    "Phase",
    "RoundInfo",
    "SamplesRule",
    "ServerRule",
    "ServerState",
    "Slope",
    "Update",
    "Upload",
    "Visit",
    "shared_model",
]


class ClientRule:
    """One client's work in one round, written for one client."""

    deploys: ClassVar[Deployed] = Deployed("the global model", GLOBAL)
    """What `deploy` gives."""
    sends: ClassVar[Mapping[str, str]] = {"theta": "mix"}
    """What uploads hold for the server, by entry: "mix" (summed with the coefficients) or "mean" (the plain mean)."""

    @property
    def gradients(self) -> int:
        """How many gradients of a batch a step asks for; 0 where rows are used in another way. A class variable will
        do."""
        return 1

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
        slope, buffers = visit.task.descent(trained["theta"], trained["buffers"], batch, key)
        return {"theta": slope, "buffers": buffers}

    def _differentiate(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        moving = {name: trained[name] for name in visit.phase.moves}

        def objective(parts: Tensors) -> tuple[Tensor, Tensors]:
            return self.loss(trained | parts, visit, batch, key)

        slopes, carried = torch.func.grad(objective, has_aux=True)(moving)
        return {**slopes, **carried}

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

    def tuning(self, visit: Visit) -> tuple[Phase, ...]:
        """Training that a client does before it deploys, from `start`; what it trains is given to `deploy` as `own`.

        It is asked before any memory is made: `visit.own` is empty, `visit.sampled` tells whether the client ever took
        part.
        """
        return ()

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors | Line:
        """The model the client would use, {"theta", "buffers"}, or a point on the `Line` between two models.

        `own` is None for a client that never trained.
        """
        return shared_model(shared)


class SamplesRule(ClientRule):
    """A client rule whose server ends with a synthetic data set instead of a model."""

    deploys: ClassVar[Deployed] = Deployed("a new classifier, trained on the server's synthetic set", SAMPLES)
    gradients: ClassVar[int] = 0

    def options(self) -> Mapping[str, Any]:
        """Options of the model that this rule switches on, where the model has them (activation, spectral)."""
        return {}

    def unhidden(self) -> str:
        """Why single rows cannot be hidden in what it sends, in words; "" where they can, by `hiding(how)`, which gives
        the rule that does so."""
        return "what it sends is no sum of one term for each row; privacy=clients hides whole clients"

    def hiding(self, how: Any) -> SamplesRule:
        """The rule that hides rows, where it can."""
        raise NotImplementedError(f"{type(self).__name__} hides no rows")

    def alarm(self, log: Mapping[str, float]) -> str:
        """A sentence if the logged numbers of a round look wrong; a run reports the first."""
        return ""

    def synthesise(self, task: Task, shared: Tensors, key: int) -> Batch:
        """The synthetic data set of the server."""
        raise NotImplementedError(f"{type(self).__name__} has no samples")


class MixingRule:
    """How much each client of the cohort counts."""

    @property
    def needs(self) -> Collection[str]:
        """What it must be told, of {"loss", "norm", "gram"}; the engine computes no more. A class variable will do."""
        return frozenset()

    @property
    def equal(self) -> bool:
        """Whether all clients of a cohort count alike, whatever they have or tell. A class variable will do."""
        return False

    @property
    def full(self) -> bool:
        """Whether every client must take part in every round. A class variable will do."""
        return False

    @property
    def instead(self) -> str:
        """Where `full`: the rule to use where only some clients take part. A class variable will do."""
        return ""

    @property
    def secret(self) -> bool:
        """Whether a client adds noise of its own to what it tells, in `report`. A class variable will do."""
        return False

    def report(self, losses: Tensor, noise: Tensor) -> Tensor:
        """Where `secret`: what a client tells in place of its loss, given standard normal noise that only it knows."""
        return losses

    def init(self, num_clients: int) -> Tensors:
        """What the rule remembers before the first round."""
        return {}

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        """The weights of this round, and what to remember."""
        raise NotImplementedError


class ServerRule:
    """From the mixed update to the next broadcast."""

    takes: ClassVar[Mapping[str, str]] = {"theta": "mix"}
    """The entries it makes the next broadcast from, and their manner: those that the client rule `sends`."""

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
        for rule in (self.client, self.mixing, self.server):
            _check_hooks(rule)
        client, mixing, server = self.client, self.mixing, self.server
        require(
            self.outcome == "model" or not mixing.needs,
            "Algorithm",
            f"{_name(mixing)} mixes models and cannot be used with {_name(client)}, which exchanges {self.outcome}",
        )
        require(
            "theta" in client.sends or not {"norm", "gram"}.intersection(mixing.needs),
            "Algorithm",
            f"{_name(mixing)} compares what clients send and cannot be used with {_name(client)}, "
            f"which sends {_entries(client.sends)}",
        )
        require(
            not client.sends or dict(client.sends) == dict(server.takes),
            "Algorithm",
            f"{_name(server)} takes {_entries(server.takes)} and cannot be used with {_name(client)}, "
            f"which sends {_entries(client.sends)}",
        )

    @property
    def title(self) -> str:
        """The name, or that of the client rule where there is none."""
        return self.name or _name(self.client)

    @property
    def outcome(self) -> str:
        """ "model", or "samples" where the server ends with a synthetic data set."""
        return "samples" if isinstance(self.client, SamplesRule) else "model"

    @property
    def horizon(self) -> str:
        """What its rules make of the number of all rounds (`RoundInfo.rounds`), in words; "" if nothing.

        The few rules to which it matters say it by an attribute `horizon`. Without one a longer run begins with the
        very rounds of a shorter one, and a run can be made longer.
        """
        rules = (self.client, self.mixing, self.server)
        return " and ".join(told for rule in rules if (told := getattr(rule, "horizon", "")))


def _name(rule: object) -> str:
    return type(rule).__name__


def _entries(entries: Mapping[str, str]) -> str:
    """Entries and their manner in words."""
    return " and ".join(name if way == "mix" else f"{name} (plain mean)" for name, way in entries.items()) or "nothing"


INTERFACES: tuple[type, ...] = (SamplesRule, ClientRule, MixingRule, ServerRule)


def _hooks(kind: type) -> set[str]:
    """The names that an interface gives a meaning."""
    return {name for base in kind.__mro__ if base in INTERFACES for name in vars(base) if not name.startswith("_")}


def _check_hooks(rule: object) -> None:
    """A method whose name is nearly that of a hook would never be called; entries and words must be what they say."""
    kind, name = type(rule), _name(rule)
    require(isinstance(rule, INTERFACES), "Algorithm", f"{name} must be a ClientRule, a MixingRule or a ServerRule")
    known = _hooks(kind)
    own = [key for base in kind.__mro__ if base not in (*INTERFACES, object) for key in vars(base)]
    for key in own:
        near = difflib.get_close_matches(key, known, 1, 0.8) if callable(getattr(kind, key, None)) else []
        require(key in known or not near, name, f"{key} is no hook; did you mean {''.join(near)}?")
    for entries in ("sends", "takes"):
        for entry, way in getattr(rule, entries, {}).items():
            one_of(name, f"{entries}[{entry!r}]", way, ("mix", "mean"))
    if isinstance(rule, ClientRule):
        require(isinstance(rule.deploys, Deployed), name, f"deploys must be a Deployed, got {rule.deploys!r}")
        told = type(rule).deploy is ClientRule.deploy or rule.deploys.kind != GLOBAL
        require(told, name, "has a deploy of its own, so deploys must say what it is: Deployed(words, kind)")
