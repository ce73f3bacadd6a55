"""What a run's settings stand for: the usual choices, the partition, the federation, the task."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from fedchord import catalog, models
from fedchord.check import fail, require
from fedchord.core.inputs import Inputs
from fedchord.core.objective import BINARY, CLASSIFICATION, TOKENS, Objective, weighted
from fedchord.core.rules import SamplesRule
from fedchord.core.task import Task
from fedchord.data import PARTITIONS, SOURCES, federate, make_partition
from fedchord.data import load as load_source
from fedchord.experiments.files import is_file, read_file
from fedchord.experiments.trial import trial
from fedchord.synthetic.set import load_set
from fedchord.synthetic.share import share

if TYPE_CHECKING:
    from fedchord.data import Federation, Partition
    from fedchord.experiments.config import RunConfig


def method_model(config: RunConfig) -> str:
    """The usual model of the method, "" where it has none."""
    return catalog.method(config.method).model


def usual_model(config: RunConfig) -> str:
    """The model unless one is named: by the method, else by the data."""
    usual, data = method_model(config), config.data
    table = SOURCES[data].table if data in SOURCES else data.endswith(".csv")
    if usual and (usual in models.GENERATIVE or not table):
        return usual
    return SOURCES[data].model if data in SOURCES else "twonn"


def usual_split(config: RunConfig) -> str:
    """The split unless one is named: the clients that the data have, else two classes each."""
    natural = is_file(config.data) or SOURCES[config.data].natural
    return "natural" if natural else "pathological"


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
    skip = bool(config.skip_damaged)
    dataset = read_file(config.data) if is_file(config.data) else load_source(config.data, config.data_root, skip)
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
    )
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


def task(config: RunConfig, federation: Federation) -> Task:
    """The model and its loss, for the shapes of a federation; two classes are one logit with a sigmoid, but two
    for methods that end with samples."""
    name, shape = config.choices()["model"], federation.shape
    algorithm = config.algorithm()
    binary = federation.classes == 2 and algorithm.outcome == "model"
    outputs = 1 if binary else federation.classes
    objective = TOKENS if federation.columns["y"].ndim == 2 else BINARY if binary else CLASSIFICATION
    objective = weighted(objective) if config.class_weights else objective
    inputs = federation.inputs if algorithm.outcome == "samples" else None
    options = algorithm.client.options() if isinstance(algorithm.client, SamplesRule) else {}
    if config.is_foreign("model"):
        return own_task(config, federation, objective, inputs)
    task = Task(lambda: models.build(name, shape, outputs, options), objective, inputs=inputs)
    parts = [part for _, part in task.named_modules()]
    tokens = not federation.batch(torch.zeros(1, dtype=torch.int64))["x"].is_floating_point()
    if tokens and not any(isinstance(part, nn.Embedding) for part in parts):
        advice = "use model=lstm-characters, lstm-words or encoder:FOLDER"
        raise fail("run", f"{config.data} has rows of token numbers, which {name} does not read; {advice}")
    for part in parts:
        if isinstance(part, models.TextEncoder):
            part.check(federation.columns["x"])
    return task
