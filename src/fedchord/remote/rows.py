"""A party's own rows: read from its file, and made ready by what all parties agreed on (the outline of the data)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedchord.check import fail, require, unknown
from fedchord.data import DataSet, Federation, Natural, federate
from fedchord.data import load as load_source
from fedchord.data.alone import seated
from fedchord.data.features import Feature
from fedchord.data.labels import SHOWN
from fedchord.experiments import own_data
from fedchord.experiments.config import RunConfig
from fedchord.remote.plan import Plan


def config_of(data: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> RunConfig:
    """The settings of a run over a party's own rows: those of a plan, and the party's keys about its rows."""
    return RunConfig.from_values({**(settings or {}), **{key: data[key] for key in data if key != "part"}})


def read_rows(config: RunConfig, name: str, part: str = "", features: Sequence[Feature] | None = None) -> DataSet:
    """The rows of a party's own file, as of one client; of a public data set, all of it."""
    if not own_data.is_own(config.data):
        return load_source(config.data, config.data_root, bool(config.skip_damaged))
    dataset = own_data.read(config, features)
    rows = torch.arange(len(dataset.columns["y"]))
    if part:
        if dataset.groups is None:
            raise fail(name, "part needs a column that says whose row it is (client)")
        if part not in dataset.group_names:
            raise unknown(f"part of {dataset.name}", part, dataset.group_names)
        rows = rows[dataset.groups == dataset.group_names.index(part)]
    return replace(
        dataset,
        columns={key: column[rows] for key, column in dataset.columns.items()},
        groups=torch.zeros(len(rows), dtype=torch.int64),
        group_names=(name,),
        parts=None if dataset.parts is None else dataset.parts[rows],
        holdout=None,
    )


def one_client(dataset: DataSet, config: RunConfig, client: int, name: str, part: str = "") -> Federation:
    """The rows as a federation of this one client, split as the client of its number; of a public data set, the part
    of that name, or else of that number."""
    if not own_data.is_own(config.data):
        whole = config.federation()
        names = whole.client_names
        if part and part not in names:
            raise unknown(f"part of {config.data}", part, names)
        place = names.index(part) if part else client
        require(place < len(names), name, f"{config.data} has {len(names)} clients, got client {place}")
        return replace(whole.only([place]), client_names=(name,))
    return federate(
        dataset,
        Natural(),
        test=config.test,
        validation=config.validation,
        noise=None if config.noise in (None, "none") else config.noise,
        noise_rate=config.noise_rate or 0.0,
        seed=config.seed,
        augment=bool(config.augment),
        class_weights=bool(config.class_weights),
        first=client,
    )


def own_rows(data: Mapping[str, Any], plan: Plan, client: int) -> Federation:
    """A party's rows, by its keys about them and the outline of the plan, at its place among all clients.

    Columns of a table are read by name, words of categories and classes get the numbers that were agreed on, and the
    party scales by its own training rows, exactly as a client of a simulation does. What does not fit is told in words.
    """
    outline = plan.outline
    require(client < plan.clients, "node", f"there is no client {client}, only {plan.clients} from 0")
    name, part = outline.client_names[client], str(data.get("part", ""))
    config = config_of(data, plan.settings)
    dataset = read_rows(config, name, part, outline.features or None)
    if own_data.is_own(config.data) and not outline.regression:
        dataset = _relabelled(dataset, class_words(outline.class_names, outline.classes), name)
    _check_alike(dataset, outline, name)
    own = one_client(dataset, config, client, name, part)
    own = replace(
        own,
        name=outline.name,
        classes=outline.classes,
        class_names=outline.class_names,
        features=outline.features,
        blocks=outline.blocks,
        target=outline.target,
        declared=outline.declared,
    )
    return seated(own, client, outline.client_names)


def class_words(names: Sequence[str], classes: int) -> tuple[str, ...]:
    """The classes in words: their names, or else their numbers."""
    return tuple(names) or tuple(str(number) for number in range(classes))


def _relabelled(dataset: DataSet, agreed: Sequence[str], name: str) -> DataSet:
    """Labels as numbers of the agreed classes."""
    require(not dataset.regression, name, "the rows have numbers to predict, the plan has classes")
    own = class_words(dataset.class_names, dataset.classes)
    number = {word: place for place, word in enumerate(agreed)}
    for word in own:
        if word not in number:
            shown = ", ".join(agreed[:SHOWN])
            raise fail(name, f"class {word!r} is none of the agreed ones ({shown}); make facts and plan anew")
    places = torch.tensor([number[word] for word in own], dtype=torch.int64)
    return replace(
        dataset,
        columns={**dataset.columns, "y": places[dataset.columns["y"]]},
        classes=len(agreed),
        class_names=tuple(agreed) if dataset.class_names else (),
    )


def _check_alike(dataset: DataSet, outline: Federation, owner: str) -> None:
    """Refuse rows of another shape or type than the outline's."""
    require(dataset.regression == outline.regression, owner, "the plan has numbers to predict, the rows classes")
    for name, column in outline.columns.items():
        if name == "weight":
            continue
        require(name in dataset.columns, owner, f"the rows have no column {name}, which the plan has")
        own = dataset.columns[name]
        told = f"the plan's rows are {shape_words(column)}, these {shape_words(own)}"
        require(own.shape[1:] == column.shape[1:], owner, told)


def shape_words(column: Tensor) -> str:
    """The shape of a row in words."""
    return "x".join(map(str, column.shape[1:])) or "single numbers"
