"""A run as a record: every setting of a run by name, the same names in a TOML file and as key=value.

A `RunConfig` checks itself when it is made, so a mistake is told before any work is done. Settings left out are chosen
from the others (`choices`); `to_toml` writes them all, and what it writes can be run again.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from fedchord import catalog, check, models
from fedchord.check import fail, require, unknown
from fedchord.core.objective import BINARY, CLASSIFICATION, TOKENS, weighted
from fedchord.core.round import Plan
from fedchord.core.rules import Algorithm, SamplesRule
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data import PARTITIONS, SOURCES, federate, make_partition
from fedchord.data import load as load_source
from fedchord.data.noise import KINDS
from fedchord.data.split import split_sizes
from fedchord.engine.executors import EXECUTORS
from fedchord.evaluation.newcomers import count
from fedchord.evaluation.sweep import LAMBDAS, check_lambdas
from fedchord.experiments.files import is_file, read_file
from fedchord.experiments.settings import Scalar, flatten, parse_pairs, read_toml
from fedchord.synthetic.features import check_features
from fedchord.synthetic.learn import Judge
from fedchord.synthetic.set import load_set
from fedchord.synthetic.share import ADDS, share

if TYPE_CHECKING:
    from fedchord.data import Federation, Partition

RULES = ("method", "mixing", "server")
"""The keys whose parameters are free: method.x, mixing.x and server.x reach the rules."""
INDIFFERENT = frozenset({"out", "executor", "workers", "device", "eval_every", "checkpoint_every", "data.root"})
"""Keys that do not change the result."""
NATURAL = frozenset(
    {"qmnist", "heart", "berka", "berka-leaking", "berka-before", "mqp", "isic"}
    | {"femnist", "shakespeare", "celeba", "reddit", "shakespeare_words", "speechcommands"}
)
"""Data sets with clients of their own, which are used unless a split is named."""
TABLES = frozenset({"heart", "berka", "berka-before", "berka-leaking"})
"""Data sets whose rows are vectors of features."""
USUAL = {
    **dict.fromkeys(("cifar10", "cifar100"), "twocnn"),
    "shakespeare": "lstm-characters",
    **dict.fromkeys(("shakespeare_words", "reddit"), "lstm-words"),
    "speechcommands": "m5",
}
"""The model of a data set unless one is named; of all others it is twonn."""
EVALUATIONS = 50
"""About how often a run is evaluated unless eval_every is given."""
SNAPSHOTS = 5
"""The same for methods that end with samples, where every evaluation trains a classifier."""


def _key(default: Any, about: str, name: str = "") -> Any:
    """A field of a run: its default and one line of help; `name` where the key has a dot."""
    return field(default=default, metadata={"about": about, "name": name})


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run. None means: chosen from the other settings."""

    method: str = _key("fedavg", "the method, by name; its parameters are method.x")
    mixing: str | None = _key(None, "another mixing rule than the method's; its parameters are mixing.x")
    server: str | None = _key(None, "another server rule than the method's; its parameters are server.x")
    model: str | None = _key(None, "the model, by name (default: by the data, such as twocnn for cifar10; else twonn)")
    data: str = _key("digits", "a data set by name, or an .npz or .csv file (columns label and client)")
    data_root: str | None = _key(None, "the folder of the data sets (default: FEDCHORD_DATA)", "data.root")
    skip_damaged: bool | None = _key(
        None, "leave out damaged files of data that are made of many (default: false)", "data.skip_damaged"
    )
    split: str | None = _key(None, "how rows go to clients (default: natural for data with clients, else pathological)")
    split_alpha: float | None = _key(
        None, "for the Dirichlet splits; a small alpha makes clients differ", "split.alpha"
    )
    split_shards: int | None = _key(None, "shards per client of the pathological split", "split.shards")
    split_minimum: int | None = _key(None, "the fewest rows a client may have", "split.minimum")
    clients: int | str | None = _key(None, "the number of clients (default: 20; natural: all)")
    test: float = _key(0.2, "the share of each client's rows kept for testing")
    validation: float = _key(0.0, "the share of each client's rows kept for validation")
    newcomers: int | float | None = _key(
        None, "clients that never train and are measured at the end: a number or a share such as 0.1 (default: 0)"
    )
    newcomer_epochs: int | None = _key(None, "epochs a newcomer trains before it is measured again (default: 1)")
    noise: str | None = _key(None, "label noise on training rows: pair, symmetric or none (default: none)")
    noise_rate: float | None = _key(None, "the share of training labels that noise changes", "noise.rate")
    augment: bool | None = _key(None, "vary training pictures at random (isic, tinyimagenet; default: false)")
    class_weights: bool | None = _key(
        None, "each client weighs rare classes up in its loss, (n + L) / (n_c + 1) (default: false)"
    )
    synthetic: str | None = _key(
        None, "a synthetic set to train on beside the clients' rows: an .npz file, or the folder of a run that made one"
    )
    synthetic_add: str | None = _key(
        None,
        "who gets it: all clients; the poor, with few rows; or missing, everyone the classes it has few rows of "
        "(default: all)",
        "synthetic.add",
    )
    synthetic_least: int | None = _key(
        None,
        "fewer training rows are few (default: poor, the median over clients; missing, the set's rows of a class)",
        "synthetic.least",
    )
    judge: str | None = _key(
        None, "for methods that end with samples: the classifier trained on them (default: by the shape of the data)"
    )
    judge_steps: int | None = _key(None, "steps of that classifier (default: as the recipe has)", "judge.steps")
    judge_features: str | None = _key(
        None,
        "Frechet distance and KID of the samples, by features of: classifier, inception:FILE or efficientnet-lite0 "
        "(default: not measured)",
        "judge.features",
    )
    judge_privacy: bool | None = _key(
        None, "look for copies of training rows among the samples (default: false)", "judge.privacy"
    )
    sweep_lambdas: tuple[float, ...] | None = _key(
        None,
        "for methods with two models: where between them they are measured, such as 0,0.25,0.5,0.75,1 "
        "(default: 0, 0.1, ..., 1)",
        "sweep.lambdas",
    )
    rounds: int = _key(20, "the number of rounds")
    cohort: int | float | str = _key(5, "clients in a round: a number, a share such as 0.25, or all")
    seed: int = _key(0, "the seed of everything that is random")
    epochs: int = _key(1, "epochs of local training in a round")
    batch: int = _key(10, "the local batch size; 0 is the whole client")
    lr: float = _key(0.05, "the local learning rate")
    momentum: float = _key(0.0, "local momentum, from zero in each round")
    weight_decay: float = _key(0.0, "local weight decay")
    lr_decay: float = _key(1.0, "the factor on the learning rate every lr_step rounds")
    lr_step: int = _key(1, "the rounds between two decays of the learning rate")
    clip: float = _key(0.0, "the largest norm of a local gradient; 0 is no limit")
    optimiser: str = _key("sgd", "the local optimiser: sgd or adam")
    executor: str = _key("processes", "who runs the clients: processes, serial, vectorised or auto")
    workers: int | None = _key(None, "worker processes (default: one per core)")
    device: str = _key("auto", "cpu, cuda or auto")
    eval_every: int | None = _key(None, "rounds between evaluations; 0 is only the last (default: about 50 in all)")
    checkpoint_every: int = _key(10, "rounds between checkpoints; 0 is only the last")
    out: str | None = _key(None, "the folder of the run (default: nothing is written)")
    parameters: tuple[tuple[str, Scalar], ...] = field(default=())

    # -- making one ------------------------------------------------------------------------------------------------

    @staticmethod
    def from_values(values: Mapping[str, Any]) -> RunConfig:
        """From a mapping of keys, dotted or as tables ({"split": {"name": "dirichlet", "alpha": 0.1}})."""
        flat = flatten(values)
        names = {key: name for name, key in _NAMES.items()}
        free = {key: value for key, value in flat.items() if key not in names}
        for key in free:
            if not _is_free(key):
                raise unknown("key", key, KEYS)
        known = {names[key]: value for key, value in flat.items() if key in names}
        return RunConfig(**known, parameters=tuple(sorted(free.items())))

    @staticmethod
    def from_pairs(
        pairs: Sequence[str], base: Mapping[str, Any] | None = None, say: Callable[[str], None] | None = None
    ) -> RunConfig:
        """From key=value texts, on top of the settings of a mapping.

        If they name another method, parameters that it does not have are left out of the mapping; `say` is told.
        """
        below, changes = flatten(base or {}), parse_pairs(pairs, _WORDS)
        lost = _foreign(below, changes)
        if lost and say:
            say(f"{', '.join(lost)} left out: method={changes['method']} has no such parameter")
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
        split = self.split or ("natural" if is_file(self.data) or self.data in NATURAL else "pathological")
        epochs = 1 if self.newcomer_epochs is None else self.newcomer_epochs
        often = EVALUATIONS if self.algorithm().outcome == "model" else SNAPSHOTS
        return ({"newcomer_epochs": epochs} if self.newcomers else {}) | {
            "model": self.model or self._usual_model(),
            "split": split,
            "clients": ("all" if split == "natural" else 20) if self.clients is None else self.clients,
            "noise": self.noise or "none",
            "eval_every": max(1, self.rounds // often) if self.eval_every is None else self.eval_every,
        }

    def _usual_model(self) -> str:
        """The model unless one is named: by the method, else by the data."""
        usual = catalog.METHODS[self.method].model
        table = self.data in TABLES or self.data.endswith(".csv")
        if usual and (usual in models.GENERATIVE or not table):
            return usual
        return USUAL.get(self.data, "twonn")

    def values(self) -> dict[str, Scalar]:
        """All settings by key, with every choice made, in the order of the fields."""
        found = self.given() | self.choices()
        return {key: found[key] for key in (*KEYS, *dict(self.parameters)) if key in found}

    def to_toml(self) -> str:
        """All settings as TOML that `fedchord run` reads."""
        import tomli_w

        return tomli_w.dumps(self.values())

    def fingerprint(self) -> str:
        """A hash of everything that changes the result."""
        values = {key: value for key, value in self.values().items() if key not in INDIFFERENT}
        plain = {key: float(value) if _is_number(value) else value for key, value in values.items()}
        plain["cohort"] = repr(self.plan().cohort)  # 1 is one client, 1.0 is all of them
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    # -- building from it ------------------------------------------------------------------------------------------

    def algorithm(self) -> Algorithm:
        """The three rules."""
        own, mixing, server = (self._parameters(rule) for rule in RULES)
        return catalog.build(self.method, own, self.mixing, mixing, self.server, server)

    def training(self) -> Training:
        """How clients train, as it was asked for (a client rule may change it: `ClientRule.local`)."""
        names = ("epochs", "batch", "lr", "momentum", "weight_decay", "lr_decay", "lr_step", "clip", "optimiser")
        return Training(**{name: getattr(self, name) for name in names})

    def lambdas(self) -> tuple[float, ...]:
        """Where models with two ends are measured."""
        return LAMBDAS if self.sweep_lambdas is None else self.sweep_lambdas

    def plan(self) -> Plan:
        """Rounds, cohort and seed."""
        cohort = 1.0 if self.cohort == "all" else self.cohort
        if isinstance(cohort, str | bool):
            raise fail("run", f"cohort must be a number of clients, a share such as 0.25, or all, got {self.cohort!r}")
        return Plan(self.rounds, cohort, self.seed)

    def partition(self) -> Partition:
        """How rows go to clients."""
        split = self.choices()["split"]
        known = {part.name: part for part in fields(PARTITIONS[split])}
        asked = {"alpha": self.split_alpha, "shards": self.split_shards, "minimum": self.split_minimum}
        given = {name: value for name, value in asked.items() if value is not None}
        for name in given:
            takes = " and ".join(f"split.{other}" for other in known) or "no parameters"
            require(name in known, "run", f"split={split} takes {takes}, got split.{name}")
        for name, part in known.items():
            needed = part.default is MISSING and name not in given
            require(not needed, "run", f"split={split} needs split.{name}")
        return make_partition(split, **given)

    def federation(self) -> Federation:
        """The clients and their data."""
        clients = self.choices()["clients"]
        skip = bool(self.skip_damaged)
        dataset = read_file(self.data) if is_file(self.data) else load_source(self.data, self.data_root, skip)
        federation = federate(
            dataset,
            self.partition(),
            None if clients == "all" else clients,
            test=self.test,
            validation=self.validation,
            noise=None if self.noise in (None, "none") else self.noise,
            noise_rate=self.noise_rate or 0.0,
            seed=self.seed,
            augment=bool(self.augment),
            class_weights=bool(self.class_weights),
        )
        if self.synthetic is None:
            return federation
        return share(federation, load_set(self.synthetic), self.synthetic_add or "all", self.synthetic_least)

    def judged_by(self) -> Judge:
        """The recipe of the classifier that measures synthetic samples."""
        return Judge(self.judge, steps=self.judge_steps)

    def task(self, federation: Federation) -> Task:
        """The model and its loss, for the shapes of a federation; two classes are one logit with a sigmoid, but two
        for methods that end with samples."""
        name, shape = self.choices()["model"], federation.shape
        algorithm = self.algorithm()
        binary = federation.classes == 2 and algorithm.outcome == "model"
        outputs = 1 if binary else federation.classes
        objective = TOKENS if federation.columns["y"].ndim == 2 else BINARY if binary else CLASSIFICATION
        objective = weighted(objective) if self.class_weights else objective
        options = algorithm.client.options() if isinstance(algorithm.client, SamplesRule) else {}
        inputs = federation.inputs if algorithm.outcome == "samples" else None
        task = Task(lambda: models.build(name, shape, outputs, options), objective, inputs=inputs)
        parts = [part for _, part in task.named_modules()]
        tokens = not federation.batch(torch.zeros(1, dtype=torch.int64))["x"].is_floating_point()
        if tokens and not any(isinstance(part, nn.Embedding) for part in parts):
            advice = "use model=lstm-characters, lstm-words or encoder:FOLDER"
            raise fail("run", f"{self.data} has rows of token numbers, which {name} does not read; {advice}")
        for part in parts:
            if isinstance(part, models.TextEncoder):
                part.check(federation.columns["x"])
        return task

    def _parameters(self, rule: str) -> dict[str, Scalar]:
        return {key.partition(".")[2]: value for key, value in self.parameters if key.startswith(f"{rule}.")}

    # -- checks ----------------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        for name, key in _NAMES.items():
            object.__setattr__(self, name, _typed(name, key, getattr(self, name)))
        for key, value in self.parameters:
            require(isinstance(value, Scalar), "run", f"{key} must be one value, got {value!r}")
        self._check_names()
        self._check_numbers()
        self._check_noise()
        self._check_newcomers()
        self._check_synthetic()
        self._check_clients()
        self._check_line()

    def _check_names(self) -> None:
        _check_flags(self.algorithm())
        if not is_file(self.data) and self.data not in SOURCES:
            raise unknown("data set", self.data, SOURCES)
        if self.skip_damaged and not (self.data in SOURCES and SOURCES[self.data].skips):
            able = ", ".join(name for name, source in SOURCES.items() if source.skips)
            raise fail("run", f"data.skip_damaged is for data of many files ({able}), got data={self.data}")
        if self.augment and not (self.data in SOURCES and SOURCES[self.data].augments):
            able = ", ".join(name for name, source in SOURCES.items() if source.augments)
            raise fail("run", f"augment is for {able}, got data={self.data}")
        if self.model is not None:
            models.check_name(self.model)
            self._check_network(self.model.partition(":")[0])
        if self.split is not None and self.split not in PARTITIONS:
            raise unknown("split", self.split, PARTITIONS)
        if self.noise is not None and self.noise not in ("none", *KINDS):
            raise unknown("noise", self.noise, ("none", *KINDS))
        check.one_of("run", "executor", self.executor, EXECUTORS)
        device = re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device)
        require(device is not None, "run", f"device must be auto, cpu or cuda, got {self.device!r}")

    def _check_network(self, model: str) -> None:
        """A method that draws from a network trains that kind of network, and no other method does."""
        usual = catalog.METHODS[self.method].model
        if usual in models.GENERATIVE:
            require(model == usual, "run", f"{self.method} trains the network {usual}, got model={self.model}")
        elif model in models.GENERATIVE:
            raise fail("run", f"model={self.model} is for fed{model}, got method={self.method}")

    def _check_numbers(self) -> None:
        self.training()
        self.partition()
        split_sizes(torch.ones(1, dtype=torch.int64), self.test, self.validation)
        check.positive("run", "test", self.test)
        lowest = {"workers": 1, "eval_every": 0, "checkpoint_every": 0}
        for name, low in lowest.items():
            if getattr(self, name) is not None:
                check.whole("run", name, getattr(self, name), low)

    def _check_noise(self) -> None:
        noisy = self.noise not in (None, "none")
        if self.noise_rate is None:
            require(not noisy, "run", f"noise.rate is needed with noise={self.noise}")
            return
        rate = check.between("run", "noise.rate", self.noise_rate, 0, 1)
        require(noisy or rate == 0, "run", f"noise.rate is {rate:g}, but noise is not chosen (pair or symmetric)")

    def _check_newcomers(self) -> None:
        if self.newcomer_epochs is not None:
            check.whole("run", "newcomer_epochs", self.newcomer_epochs)
            require(bool(self.newcomers), "run", "newcomer_epochs is given, but there are no newcomers")
        if not self.newcomers:
            object.__setattr__(self, "newcomers", None)  # 0 is the same as not to say it
            return
        model = self.algorithm().outcome == "model"
        require(model, "run", f"newcomers need a method that ends with a model, got {self.method}")
        count(self.newcomers, sys.maxsize)  # the range; how many there are of is known later

    def _check_synthetic(self) -> None:
        """Keys about a synthetic set that is used, and about one that is made."""
        if self.synthetic is None:
            for key in ("add", "least"):
                given = getattr(self, f"synthetic_{key}") is not None
                require(not given, "run", f"synthetic.{key} is given, but no synthetic set is")
        check.one_of("run", "synthetic.add", self.synthetic_add or "all", ADDS)
        if self.synthetic_least is not None:
            check.whole("run", "synthetic.least", self.synthetic_least, 1)
            few = self.synthetic_add in ("poor", "missing")
            require(few, "run", "synthetic.least needs synthetic.add=poor or missing")
        for name in ("judge", "judge_steps", "judge_features", "judge_privacy"):
            if getattr(self, name) is not None and self.algorithm().outcome == "model":
                raise fail("run", f"{_NAMES[name]} needs a method that ends with samples, got {self.method}")
        self.judged_by()
        if self.judge_features is not None:
            check_features(self.judge_features)

    def _check_clients(self) -> None:
        plan, made = self.plan(), self.choices()
        if made["clients"] == "all":
            require(made["split"] == "natural", "run", f"clients=all needs split=natural, got split={made['split']}")
            return
        clients = check.whole("run", "clients", made["clients"], 1)
        if made["split"] != "natural":
            plan.size(clients - count(self.newcomers or 0, clients))

    def _check_line(self) -> None:
        """Keys about the line between two models: where it is measured, and from which round on it is trained."""
        if self.sweep_lambdas is not None:
            check_lambdas(self.sweep_lambdas, "sweep.lambdas")
            rising = all(a < b for a, b in zip(self.sweep_lambdas, self.sweep_lambdas[1:], strict=False))
            require(rising, "sweep.lambdas", f"every lambda must be above the one before, got {self.sweep_lambdas}")
            if self.sweep_lambdas == LAMBDAS:
                object.__setattr__(self, "sweep_lambdas", None)  # the same as not to say it
        begin = getattr(self.algorithm().client, "start_round", None)
        require(
            begin is None or begin < self.rounds,
            "run",
            f"method.start_round must be below the number of rounds, {self.rounds} (they count from 0), got {begin}",
        )


_FIELDS: tuple[Field[Any], ...] = tuple(f for f in fields(RunConfig) if f.name != "parameters")
_NAMES: dict[str, str] = {f.name: f.metadata["name"] or f.name for f in _FIELDS}
_TYPES: dict[str, str] = {f.name: str(f.type).removesuffix(" | None") for f in _FIELDS}
_WORDS = frozenset(key for name, key in _NAMES.items() if _TYPES[name] == "str")
KEYS: tuple[str, ...] = tuple(_NAMES.values())
"""The keys of a run, without the free parameters of the rules."""


def about() -> dict[str, tuple[Any, str]]:
    """Every key with its default (None: chosen from the other settings) and its line of help."""
    return {_NAMES[f.name]: (f.default, f.metadata["about"]) for f in _FIELDS}


def _is_free(key: str) -> bool:
    rule, _, name = key.partition(".")
    return rule in RULES and bool(name)


def _foreign(base: Mapping[str, Any], changes: Mapping[str, Any]) -> list[str]:
    """The parameters in `base` that are those of its method, where `changes` name another one that has no such."""
    name = changes.get("method")
    if name not in catalog.METHODS or name == base.get("method", RunConfig.method):
        return []
    entry, parts = catalog.METHODS[name], {"method": set(catalog.fields(catalog.METHODS[name].client))}
    for rule, usual, known in (("mixing", entry.mixing, catalog.MIXINGS), ("server", entry.server, catalog.SERVERS)):
        other = changes.get(rule, base.get(rule))
        parts[rule] = set(catalog.fields(known.get(other, usual)))
        parts["method"] |= set() if other else parts[rule]
    return [key for key in base if _is_free(key) and key.partition(".")[2] not in parts[key.partition(".")[0]]]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _typed(name: str, key: str, value: Any) -> Any:
    """The value in the field's type; which numbers are good is checked by those who use them."""
    kind, default = _TYPES[name], RunConfig.__dataclass_fields__[name].default
    if value is None and default is None:
        return None
    if kind == "str":
        require(isinstance(value, str) and bool(value), "run", f"{key} must be a word, got {value!r}")
    elif kind == "float":
        return check.number("run", key, value)
    elif kind == "int":
        whole = isinstance(value, int) and not isinstance(value, bool)
        require(whole, "run", f"{key} must be a whole number, got {value!r}")
    elif kind == "bool":
        require(isinstance(value, bool), "run", f"{key} must be true or false, got {value!r}")
        return value or None  # false is the same as not to say it
    elif name == "sweep_lambdas":
        return _grid(key, value)
    elif name == "newcomers":
        good = _is_number(value)
        require(good, "run", f"newcomers must be a number of clients or a share such as 0.1, got {value!r}")
    elif name == "clients":
        require(value == "all" or _is_number(value), "run", f"clients must be a whole number or all, got {value!r}")
    return value


def _grid(key: str, value: Any) -> tuple[float, ...]:
    """A list of numbers, or the text of one."""
    text = isinstance(value, str)
    parts = value.strip("[] ").split(",") if text else value if isinstance(value, list | tuple) else [value]
    try:
        found = [float(part) if text else part for part in parts]
    except ValueError:
        found = [value]
    good = all(_is_number(part) for part in found)
    require(good, "run", f"{key} must be numbers such as 0,0.25,0.5,0.75,1, got {value!r}")
    return tuple(float(part) for part in found)


def _check_flags(algorithm: Algorithm) -> None:
    """Yes-or-no parameters must be true or false; rules check their numbers themselves."""
    for rule in (algorithm.client, algorithm.mixing, algorithm.server):
        for part in fields(rule):  # type: ignore[arg-type]
            value = getattr(rule, part.name)
            if isinstance(part.default, bool) and not isinstance(value, bool):
                raise fail(type(rule).__name__, f"{part.name} must be true or false, got {value!r}")
