"""A run as a record: every setting of a run by name, the same names in a TOML file and as key=value.

A `RunConfig` checks itself when it is made, so a mistake is told before any work is done. Settings left out are chosen
from the others (`choices`); `to_toml` writes them all, and what it writes can be run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedchord import catalog, models, plugins
from fedchord.check import require, unknown
from fedchord.core.round import Plan
from fedchord.core.rules import Algorithm
from fedchord.core.task import Task
from fedchord.data import sources
from fedchord.engine.guards import Defence
from fedchord.experiments import build, keys, own_data
from fedchord.experiments.checks import check_run
from fedchord.experiments.settings import Scalar, flatten, parse_pairs, read_toml
from fedchord.privacy.shield import drawing

if TYPE_CHECKING:
    from fedchord.data import Federation, Partition

RULES = ("method", "mixing", "server")
"""The keys of the three rules; their parameters are free: method.x, mixing.x and server.x."""
FREE = (*RULES, "client", "model")
"""The keys whose parameters are free: client.x reach the method's client rule, model.x a model of your own."""
CODE = {"method": "method", "mixing": "mixing", "server": "server", "model": "model", "data": "source"}
"""The keys that can name code of your own or of a package, and the kind of code."""
INDIFFERENT = frozenset(
    {"out", "executor", "workers", "device", "eval_every", "checkpoint_every", "data.root", "log", "profile"}
)
"""Keys that do not change the result."""
CLIENTS = 20
"""How many clients rows are split to unless it is said."""
EVALUATIONS = 50
"""About how often a run is evaluated unless eval_every is given."""
SNAPSHOTS = 5
"""The same for methods that end with samples, where every evaluation trains a classifier."""


@dataclass(frozen=True)
class RunConfig(  # the last part comes first, so that fields and keys stand in the order from Rules to Execution
    keys.Execution,
    keys.Local,
    keys.Defended,
    keys.Hostile,
    keys.Weathered,
    keys.Sent,
    keys.Private,
    keys.Rounds,
    keys.Measured,
    keys.Some,
    keys.Swept,
    keys.Chosen,
    keys.Judged,
    keys.Synthetic,
    keys.Rows,
    keys.Newcomers,
    keys.Split,
    keys.Data,
    keys.Rules,
):
    """Everything that defines a run. None means: chosen from the other settings."""

    parameters: tuple[tuple[str, Scalar], ...] = field(default=())

    def __post_init__(self) -> None:
        for part in _FIELDS:
            object.__setattr__(self, part.name, keys.typed(part, getattr(self, part.name)))
        for key, value in self.parameters:
            require(isinstance(value, Scalar), "run", f"{key} must be one value, got {value!r}")
        sources.adopt(self.data)
        check_run(self)

    # -- making one ------------------------------------------------------------------------------------------------

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> RunConfig:
        """From a mapping of keys, dotted or as tables ({"split": {"name": "dirichlet", "alpha": 0.1}})."""
        flat = flatten(values)
        names = {key: name for name, key in _NAMES.items()}
        free = {key: value for key, value in flat.items() if key not in names}
        for key in free:
            check_key(key)
        known = {names[key]: value for key, value in flat.items() if key in names}
        return RunConfig(**known, parameters=tuple(sorted(free.items())))

    @staticmethod
    def from_pairs(
        pairs: Sequence[str], base: Mapping[str, Any] | None = None, say: Callable[[str], None] | None = None
    ) -> RunConfig:
        """From key=value texts, on top of the settings of a mapping.

        If they name another method, parameters that it does not have are left out of the mapping; `say` is told.
        """
        below, changes = flatten(base or {}), parse_pairs(pairs, WORDS)
        if any(rule in changes for rule in CODE):
            below.pop("code", None)  # it is about what was named before
        lost = _foreign(below, changes)
        if lost and say:
            say(f"{', '.join(lost)} left out: {_told(changes)} has no such parameter")
        return RunConfig.from_values({k: v for k, v in below.items() if k not in lost} | changes)

    @staticmethod
    def from_toml(path: str | Path, pairs: Sequence[str] = (), say: Callable[[str], None] | None = None) -> RunConfig:
        """From a TOML file, with key=value texts on top."""
        return RunConfig.from_pairs(pairs, read_toml(path), say)

    def with_values(self, **values: Any) -> RunConfig:
        """A copy with some keys changed; write dotted keys as `with_values(**{"split.alpha": 0.1})`."""
        return RunConfig.from_values(self.given() | values)

    def with_pairs(self, pairs: Sequence[str]) -> RunConfig:
        """A copy with key=value texts on top."""
        return RunConfig.from_pairs(pairs, self.given())

    # -- reading one -----------------------------------------------------------------------------------------------

    def given(self) -> dict[str, Scalar]:
        """The settings by key, without those left to be chosen."""
        own = {key: getattr(self, name) for name, key in _NAMES.items()}
        return {key: value for key, value in own.items() if value is not None} | dict(self.parameters)

    def choices(self) -> dict[str, Any]:
        """The settings that are chosen from the others unless they are given."""
        split = self.split or build.usual_split(self)
        epochs = 1 if self.newcomer_epochs is None else self.newcomer_epochs
        often = EVALUATIONS if self.algorithm().outcome == "model" else SNAPSHOTS
        return ({"newcomer_epochs": epochs} if self.newcomers else {}) | {
            "model": self.model or build.usual_model(self),
            "split": split,
            "clients": ("all" if split == "natural" else CLIENTS) if self.clients is None else self.clients,
            **self._cohort(split),
            "noise": self.noise or "none",
            "eval_every": max(1, self.rounds // often) if self.eval_every is None else self.eval_every,
        }

    def _cohort(self, split: str) -> dict[str, Any]:
        """The usual cohort; nothing where there may be fewer clients, so that the same is chosen when it is read."""
        clients = CLIENTS if self.clients is None else self.clients
        enough = split != "natural" and not self.newcomers and isinstance(clients, int) and clients >= keys.COHORT
        return {"cohort": keys.COHORT} if self.cohort is None and enough else {}

    def values(self) -> dict[str, Scalar]:
        """All settings by key, with every choice made, in the order of the fields."""
        found = self.given() | self.choices() | self._code
        return {key: found[key] for key in (*KEYS, *dict(self.parameters)) if key in found}

    def to_toml(self) -> str:
        """All settings as TOML that `fedchord run` reads."""
        import tomli_w

        return tomli_w.dumps(self.values())

    def fingerprint(self, *without: str) -> str:
        """A hash of everything that changes the result; of all but some keys."""
        left_out = INDIFFERENT.union(without)
        values = {key: value for key, value in self.values().items() if key not in left_out}
        plain = {key: float(value) if keys.is_number(value) else value for key, value in values.items()}
        plain["cohort"] = repr(self.plan().cohort)  # 1 is one client, 1.0 is all of them
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    @property
    def horizon(self) -> str:
        """What depends on the number of rounds, in words; "" if a longer run begins with the rounds of this one."""
        privacy = self.private()
        return self.plan().horizon or self.algorithm().horizon or (privacy.horizon if privacy else "")

    def plan(self) -> Plan:
        """Rounds, cohort and seed, and how cohorts are drawn."""
        return replace(super().plan(), draw=drawing(self.private()))

    def course(self) -> str:
        """The fingerprint that runs of any number of rounds share; "" where their rounds differ."""
        return "" if self.horizon else self.fingerprint("rounds")

    @cached_property
    def _code(self) -> dict[str, str]:
        """What the code of your own is, under the key `code`, as it was told or as it is now; nothing without such."""
        return {"code": self.code or self.present_code()} if self.present_code() else {}

    def present_code(self) -> str:
        """What every piece of code of your own is now: its key and its mark."""
        own = {rule: getattr(self, rule) for rule in CODE if self.is_foreign(rule)}
        found = [f"{rule} {plugins.mark(CODE[rule], name)}" for rule, name in own.items()]
        return ", ".join([*found, *([f"data {own_data.mark(self.data)}"] if own_data.is_own(self.data) else [])])

    def is_foreign(self, rule: str) -> bool:
        """Whether a rule, the model or the data are code of your own or of an installed package."""
        name = getattr(self, rule)
        return name is not None and name not in _OURS[rule] and plugins.is_foreign(CODE[rule], name)

    def check_code(self, parts: Collection[str] = (*CODE,)) -> None:
        """Refuse code, or data of your own, that is not what this run was begun with."""
        now, then = self.present_code().split(", "), (self.code or self.present_code()).split(", ")
        gone = f"data {own_data.MISSING}"  # whoever reads it says so
        other = [part.partition(" ")[0] for part in now if part not in (*then, gone)]
        changed = [getattr(self, key) for key in other if key in parts]
        told = "has changed since the run was begun; start a new one (without the key code)"
        require(not changed, "run", f"{', '.join(changed)} {told}")

    # -- building from it ------------------------------------------------------------------------------------------

    def algorithm(self) -> Algorithm:
        """The three rules; they are built once."""
        return self._algorithm

    @cached_property
    def _algorithm(self) -> Algorithm:
        own, mixing, server = (self.free(rule) for rule in RULES)
        return catalog.build(self.method, own, self.mixing, mixing, self.server, server, self.free("client"))

    def defence(self) -> Defence:
        """How the server takes uploads."""
        return self.defended(self.terms())

    def partition(self) -> Partition:
        """How rows go to clients."""
        return build.partition(self)

    def federation(self) -> Federation:
        """The clients and their data."""
        return build.federation(self)

    def task(self, federation: Federation) -> Task:
        """The model and its loss, for the shapes of a federation."""
        return build.task(self, federation)

    def free(self, rule: str) -> dict[str, Scalar]:
        """The free parameters of a rule or of the model, by name."""
        return {key.partition(".")[2]: value for key, value in self.parameters if key.startswith(f"{rule}.")}


_OURS: dict[str, Collection[str]] = {
    "method": catalog.METHODS,
    "mixing": catalog.MIXINGS,
    "server": catalog.SERVERS,
    "model": models.MODELS,
    "data": sources.OURS,
}
_FIELDS = tuple(part for part in fields(RunConfig) if part.name != "parameters")
_NAMES = {part.name: keys.key_of(part) for part in _FIELDS}
WORDS = frozenset(keys.key_of(part) for part in _FIELDS if keys.kind_of(part) == "str")
"""The keys whose value is text, even if it looks like a number."""
LISTS = frozenset(keys.key_of(part) for part in _FIELDS if keys.kind_of(part).startswith("tuple"))
"""The keys whose own value may hold commas."""
KEYS: tuple[str, ...] = tuple(_NAMES.values())
"""The keys of a run, without the free parameters of the rules."""


def about() -> dict[str, tuple[Any, str]]:
    """Every key with its default (None: chosen from the other settings) and its line of help."""
    return {_NAMES[f.name]: (f.default, f.metadata["about"]) for f in _FIELDS}


def check_key(key: str) -> None:
    """Refuse a key that no run has."""
    if key not in KEYS and not _is_free(key):
        raise unknown("key", key, KEYS, "fedchord list keys")


def _is_free(key: str) -> bool:
    rule, _, name = key.partition(".")
    return rule in FREE and bool(name)


def _told(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={changes[key]}" for key in ("method", "model", "data") if key in changes)


def _foreign(base: Mapping[str, Any], changes: Mapping[str, Any]) -> list[str]:
    """The parameters in `base` that are those of its method or model, where `changes` name another without them."""
    lost = [
        key for key in base if key.startswith("model.") and changes.get("model", base.get("model")) != base["model"]
    ]
    if changes.get("data", base.get("data")) != base.get("data"):
        lost += [f"data.{key}" for key in own_data.KEYS if f"data.{key}" in base]
    name = changes.get("method")
    if name == base.get("method", RunConfig.method) or not catalog.is_method(name):
        return lost
    return lost + [key for key in strangers({**base, **changes}) if key in base]


def strangers(values: Mapping[str, Any]) -> list[str]:
    """The parameters (method.x, client.x, mixing.x, server.x) that the rules named beside them do not have."""
    entry = catalog.method(str(values.get("method", RunConfig.method)))
    parts = {"client": set(catalog.fields(entry.client)), "method": set(catalog.fields(entry.client))}
    for rule, usual, known in (("mixing", entry.mixing, catalog.mixing), ("server", entry.server, catalog.server)):
        other = values.get(rule)
        parts[rule] = set(catalog.fields(known(other) if other else usual))
        parts["method"] |= set() if other else parts[rule]
    split = ((key, *key.split(".", 1)) for key in values if _is_free(key))
    return [key for key, rule, field in split if rule in parts and field not in parts[rule]]
