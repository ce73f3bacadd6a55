"""The settings of a run that is made of objects in Python: what is written down of them, and their fingerprint."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import tomli_w

from fedchord.attacks.attack import Attack
from fedchord.core.round import Plan
from fedchord.core.rules import Algorithm
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.attendance import Terms
from fedchord.engine.compress import Compress
from fedchord.engine.guards import Defence
from fedchord.engine.weather import Weather
from fedchord.evaluation.choice import Chooser
from fedchord.evaluation.sweep import LAMBDAS, check_lambdas
from fedchord.experiments.config import INDIFFERENT
from fedchord.experiments.reading import MADE
from fedchord.experiments.settings import Scalar
from fedchord.privacy.terms import Privacy
from fedchord.synthetic.learn import Judge


@dataclass(frozen=True)
class OwnConfig:
    """What a run reads of its settings, taken from objects."""

    algorithm: Algorithm
    task: Task
    federation: Federation
    training: Training
    asked: Plan
    executor: str = "processes"
    workers: int | None = None
    eval_every: int = 0
    checkpoint_every: int = 10
    judge: Judge = field(default_factory=Judge)
    metrics: tuple[str, ...] | None = None
    sweep_lambdas: tuple[float, ...] | None = None
    out: str | None = None
    validation: float = 0.0
    judge_features: str | None = None
    judge_privacy: bool | None = None
    played: Weather | None = None
    choose: Chooser | None = None
    eval_clients: int = 0
    eval_all: bool = False
    attack: Attack | None = None
    guarded: Defence = field(default_factory=Defence)
    privacy: Privacy | None = None
    compress: Compress | None = None

    def __post_init__(self) -> None:
        if self.sweep_lambdas is not None:
            check_lambdas(self.sweep_lambdas, "lambdas")

    @property
    def method(self) -> str:
        """The name of the algorithm, or of its client rule."""
        return self.algorithm.title

    @property
    def parameters(self) -> tuple[tuple[str, Scalar], ...]:
        """The fields of the rules by key."""
        found: list[tuple[str, Scalar]] = []
        rules = {"method": self.algorithm.client, "mixing": self.algorithm.mixing, "server": self.algorithm.server}
        for name, rule in rules.items():
            values = {f.name: getattr(rule, f.name) for f in fields(rule)} if is_dataclass(rule) else vars(rule)
            found += [(f"{name}.{key}", _scalar(value)) for key, value in values.items() if value is not None]
        return tuple(found)

    @property
    def rounds(self) -> int:
        return self.asked.rounds

    @property
    def seed(self) -> int:
        return self.asked.seed

    @property
    def lr(self) -> float:
        return self.training.lr

    def plan(self) -> Plan:
        """Rounds, cohort and seed."""
        return self.asked

    def lambdas(self) -> tuple[float, ...]:
        """Where models with two ends are measured."""
        return LAMBDAS if self.sweep_lambdas is None else self.sweep_lambdas

    def weather(self) -> Weather | None:
        """Who is away and what gets lost; None where that does not happen."""
        return self.played

    def measured(self, last: bool) -> int:
        """How many clients are measured, on the way or in the end; 0 is all of them."""
        return 0 if last and self.eval_all else self.eval_clients

    def hostile(self) -> Attack | None:
        """What hostile clients do; None where there are none."""
        return self.attack

    def defended(self, terms: Terms) -> Defence:
        """How uploads are taken where a service has terms of its own."""
        return replace(self.guarded, terms=terms)

    def defence(self) -> Defence:
        """How the server takes uploads."""
        return self.guarded

    def chooser(self) -> Chooser | None:
        """What is chosen for all clients; None if nothing."""
        return self.choose

    def private(self) -> Privacy | None:
        """What is hidden by noise; None if nothing."""
        return self.privacy

    def packing(self) -> Compress | None:
        """How uploads are packed; None if they are not."""
        return self.compress

    def judged_by(self) -> Judge:
        """The recipe of the classifier that measures synthetic samples."""
        return self.judge

    def choices(self) -> dict[str, Any]:
        """The model's class, and how often it is measured."""
        size = self.task.layout.size
        return {"model": self.task.model_name, "model.parameters": size, "eval_every": self.eval_every}

    def values(self) -> dict[str, Any]:
        """All settings by key, as far as they have one."""
        names = [part.name for part in fields(self.training)]
        rules = {"mixing": type(self.algorithm.mixing).__name__, "server": type(self.algorithm.server).__name__}
        values: dict[str, Any] = {
            "made": MADE,
            "method": self.method,
            **rules,
            "data": self.federation.name,
            "clients": self.federation.num_clients,
            **{name: getattr(self.asked, name) for name in ("rounds", "cohort", "seed")},
            **{name: getattr(self.training, name) for name in names},
            **self.choices(),
            "executor": self.executor,
            "checkpoint_every": self.checkpoint_every,
            "objects": self.digest,
        }
        values |= {} if self.sweep_lambdas is None else {"sweep.lambdas": list(self.sweep_lambdas)}
        values |= {} if self.played is None else {"weather": repr(self.played)}
        values |= {"eval_clients": self.eval_clients} if self.eval_clients else {}
        values |= {"eval_all": True} if self.eval_all else {}
        values |= {"average": self.asked.average} if self.asked.average else {}
        values |= {} if self.choose is None else {"choose": repr(self.choose)}
        values |= {} if self.attack is None else {"attack": repr(self.attack)}
        values |= {} if self.guarded == Defence() else {"defence": repr(self.guarded)}
        values |= {} if self.privacy is None else {"privacy": repr(self.privacy)}
        values |= {} if self.compress is None else {"compress": repr(self.compress)}
        values |= {} if self.out is None else {"out": self.out}
        return values | dict(self.parameters)

    def to_toml(self) -> str:
        """All settings as a file."""
        return tomli_w.dumps(self.values())

    def fingerprint(self) -> str:
        """A hash of everything that changes the result."""
        return fingerprint_of(self.values())

    @property
    def horizon(self) -> str:
        """What depends on the number of rounds, in words; "" if a longer run begins with the rounds of this one."""
        return self.asked.horizon or self.algorithm.horizon or (self.privacy.horizon if self.privacy else "")

    def course(self) -> str:
        """The fingerprint that runs of any number of rounds share; "" where their rounds differ."""
        values = self.values()
        return "" if self.horizon else fingerprint_of({key: values[key] for key in values if key != "rounds"})

    @cached_property
    def digest(self) -> str:
        """A hash of rules, first model and data: the same objects made anew have the same."""
        found = hashlib.sha256()
        for part in self._told():
            found.update(part)
        return found.hexdigest()[:16]

    def _told(self) -> Iterator[bytes]:
        rules = (self.algorithm.client, self.algorithm.mixing, self.algorithm.server)
        yield repr([(type(rule).__module__, type(rule).__qualname__, rule) for rule in rules]).encode()
        yield repr((self.task.signature, self.judge, self.metrics)).encode()
        first = self.task.init(0)  # what differs by seed alone is one row of a table
        columns = self.federation.columns
        rows = [self.federation.train, self.federation.validation, self.federation.test]
        rows += [] if self.federation.held is None else [self.federation.held]
        tensors = [*first.values(), *columns.values(), *(t for part in rows for t in (part.rows, part.offsets))]
        for tensor in tensors:
            yield f"{tensor.dtype} {tuple(tensor.shape)}".encode()
            yield tensor.detach().cpu().contiguous().numpy().tobytes()
        yield repr(self.federation.client_names).encode()


def fingerprint_of(values: Mapping[str, Any]) -> str:
    """The fingerprint of settings as they are written down."""
    plain = {key: value for key, value in values.items() if key not in INDIFFERENT}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


def _scalar(value: object) -> Scalar:
    plain = isinstance(value, str | int | bool) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else repr(value)  # type: ignore[return-value]
