"""What a run's settings stand for: the usual choices, the partition, the federation, the task."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING

from torch import nn

from fedchord import catalog, models, plugins
from fedchord.check import fail, require
from fedchord.core.inputs import Inputs
from fedchord.core.objective import BINARY, CLASSIFICATION, TOKENS, Objective, absolute, squared, weighted
from fedchord.core.rules import SamplesRule
from fedchord.core.task import Task
from fedchord.data import PARTITIONS, SOURCES, federate, make_partition
from fedchord.data import load as load_source
from fedchord.data.hold import hold_out
from fedchord.experiments import own_data
from fedchord.experiments.trial import trial
from fedchord.privacy.terms import ROWS
from fedchord.synthetic.set import load_set
from fedchord.synthetic.share import share

if TYPE_CHECKING:
    from fedchord.data import Federation, Partition
    from fedchord.experiments.config import RunConfig


LOSSES = {"squared": squared, "absolute": absolute}
"""What is minimised where numbers are predicted."""


def method_model(config: RunConfig) -> str:
    """The usual model of the method, "" where it has none."""
    return catalog.method(config.method).model


def usual_model(config: RunConfig) -> str:
    """The model unless one is named: by the method, else by the data."""
    usual, data = method_model(config), config.data
    kind = "" if data in SOURCES else own_data.kind(config)
    table = SOURCES[data].table if data in SOURCES else kind == "table"
    if usual and (usual in models.GENERATIVE or not table):
        return usual
    return SOURCES[data].model if data in SOURCES else "twocnn" if "pictures" in kind else "twonn"


def usual_split(config: RunConfig) -> str:
    """The split unless one is named: the clients that the data have, else two classes each, or any rows where there
    are no classes."""
    own = own_data.is_own(config.data)
    if own_data.has_clients(config) if own else SOURCES[config.data].natural:
        return "natural"
    return "iid" if own and own_data.regression(config) else "pathological"


def partition(config: RunConfig) -> Partition:
    """How rows go to clients."""
    split = config.choices()["split"]
    known = {part.name: part for part in fields(PARTITIONS[split])}
    asked = {"alpha": config.split_alpha, "shards": config.split_shards, "minimum": config.split_minimum}
    given = {name: value for name, value in asked.items() if value is not None}
    for name in given:
        takes = " and ".join(f"split.{other}" for other in known) or "no parameters"
        require(name in known, "run", f"split={split} takes {takes}, got split.{name}")
    for name, part in known.items():
        needed = part.default is MISSING and name not in given
        require(not needed, "run", f"split={split} needs split.{name}")
    return make_partition(split, **given)


def federation(config: RunConfig) -> Federation:
    """The clients and their data."""
    clients = config.choices()["clients"]
    own, skip = own_data.is_own(config.data), bool(config.skip_damaged)
    dataset = own_data.read(config) if own else load_source(config.data, config.data_root, skip)
    federation = federate(
        dataset,
        partition(config),
        None if clients == "all" else clients,
        test=config.test,
        validation=config.validation,
        noise=None if config.noise in (None, "none") else config.noise,
        noise_rate=config.noise_rate or 0.0,
        seed=config.seed,
        augment=bool(config.augment),
        class_weights=bool(config.class_weights),
        public=config.privacy == ROWS,
    )
    federation = hold_out(federation, config.held(), config.seed) if config.held() else federation
    if config.synthetic is None:
        return federation
    return share(federation, load_set(config.synthetic), config.synthetic_add or "all", config.synthetic_least)


def own_task(config: RunConfig, federation: Federation, objective: Objective, inputs: Inputs | None) -> Task:
    """The task of a model of the user's own. For two classes it may have one output or two, which decides the loss."""
    name, arguments, shape = str(config.model), config.free("model"), federation.shape

    def make() -> nn.Module:
        return models.build_own(name, arguments, shape, federation.classes)

    width = trial(name, Task(make, objective, inputs=inputs), federation, config.algorithm().outcome == "model")
    if federation.classes == 2 and width == 2:
        plain = replace(CLASSIFICATION, metrics=BINARY.metrics)
        objective = weighted(plain) if config.class_weights else plain
    return Task(make, objective, inputs=inputs)


def recipe(config: RunConfig, federation: Federation) -> models.Recipe:
    """The model's class and arguments, for the shapes of a federation; two classes are one logit with a sigmoid, but
    two for methods that end with samples."""
    name, client = config.choices()["model"], config.algorithm().client
    if config.is_foreign("model"):
        every = models.own_arguments(name, config.free("model"), federation.shape, federation.classes)
        return models.Recipe(plugins.find("model", name), every)
    one = federation.regression or objective_of(config, federation).losses is BINARY.losses
    options = client.options() if isinstance(client, SamplesRule) else {}
    return models.recipe(name, federation.shape, 1 if one else federation.classes, options)


def task(config: RunConfig, federation: Federation) -> Task:
    """The model and its loss, for the shapes of a federation."""
    name, objective = config.choices()["model"], objective_of(config, federation)
    objective = weighted(objective) if config.class_weights else objective
    inputs = federation.inputs if config.algorithm().outcome == "samples" else None
    if config.is_foreign("model"):
        return own_task(config, federation, objective, inputs)
    task = Task(recipe(config, federation).build, objective, inputs=inputs)
    parts = [part for _, part in task.named_modules()]
    tokens = not federation.example()["x"].is_floating_point()
    if tokens and not any(isinstance(part, nn.Embedding) for part in parts):
        advice = "use model=lstm-characters, lstm-words or encoder:FOLDER"
        raise fail("run", f"{config.data} has rows of token numbers, which {name} does not read; {advice}")
    for part in parts:
        if isinstance(part, models.TextEncoder) and len(federation.columns["x"]):
            part.check(federation.columns["x"])
    return task


def objective_of(config: RunConfig, federation: Federation) -> Objective:
    """What is minimised, by what the data ask."""
    samples = config.algorithm().outcome == "samples"
    if federation.regression:
        what = f"{federation.name} has numbers to predict"
        require(not samples, "run", f"{config.method} makes samples of classes, but {what}")
        assert federation.target is not None
        return LOSSES[config.loss or "squared"](*federation.target)
    require(config.loss is None, "run", f"loss={config.loss} is for numbers to predict, {federation.name} has classes")
    if federation.columns["y"].ndim == 2:
        return TOKENS
    return BINARY if federation.classes == 2 and not samples else CLASSIFICATION
