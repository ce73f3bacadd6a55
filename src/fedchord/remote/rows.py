"""A node's own rows, by the keys of a run: read as the plan says the data look, and placed where its client is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedchord.check import fail, require
from fedchord.data import SOURCES, DataSet, Federation, Natural, federate
from fedchord.data.alone import alone, seated
from fedchord.evaluation.prediction import class_names, number_of
from fedchord.experiments import keys, own_data
from fedchord.experiments.config import RunConfig
from fedchord.experiments.rows_file import label_of, labelled, read_rows
from fedchord.experiments.settings import flatten
from fedchord.remote.plan import Plan

OWNER = "node"
KEYS = frozenset(keys.key_of(part) for part in keys.Data.__dataclass_fields__.values())


def own_rows(data: Mapping[str, Any], plan: Plan, client: int, part: str = "") -> Federation:
    """The rows of one client by the keys of a run's data, split and scaled as in a run of all clients.

    `data` names a file or folder of one's own, or a data set that has clients; `part` names the client of theirs whose
    rows they are ("": all rows of a file, or the client of that name in the plan).
    """
    asked = flatten(data)
    for key in asked:
        require(key in KEYS, OWNER, f"[data] takes the keys of a run's data, such as data and data.label, got {key}")
    known = plan.outline
    require(0 <= client < plan.clients, OWNER, f"there is no client {client}, only {plan.clients} from 0")
    config = _config(asked, plan)
    if not own_data.is_own(config.data):
        return _of_source(config, plan, client, part or known.client_names[client])
    dataset = _read(config, known, part)
    shares = {name: getattr(plan.config, name) for name in ("test", "validation", "seed")}
    weights = bool(plan.config.class_weights)
    found = federate(dataset, Natural(), first=client, class_weights=weights, **shares)
    found = replace(found, name=known.name, pictures=known.pictures, target=known.target, declared=known.declared)
    return seated(found, client, known.client_names)


def _config(asked: Mapping[str, Any], plan: Plan) -> RunConfig:
    shared = {
        key: plan.settings[key] for key in ("test", "validation", "seed", "class_weights") if key in plan.settings
    }
    model = {"model": plan.settings["model"]} if str(plan.settings["model"]).startswith("encoder") else {}
    return RunConfig.from_values({**shared, **model, **asked, "cohort": "all", "split": "iid", "clients": 1})


def _of_source(config: RunConfig, plan: Plan, client: int, part: str) -> Federation:
    """One client of a data set that has clients of its own."""
    natural = SOURCES[config.data].natural
    require(natural, OWNER, f"data={config.data} has no clients of its own; give a file of the rows of this one")
    whole = config.with_values(split="natural", clients="all").federation()
    place = number_of(whole, part)
    if whole.client_names == plan.outline.client_names:
        return alone(whole, place)
    return seated(whole.only([place]), client, plan.outline.client_names)


def _read(config: RunConfig, known: Federation, part: str) -> DataSet:
    """The rows of a file or folder in the form that the plan's data have."""
    path = Path(config.data).expanduser()
    if path.is_dir():
        x, y = _folder(config, known)
    else:
        found = read_rows(config, known, path)
        x, y = found.rows.x, labelled(found, str(path), label_of(config), "training")
        if part:
            theirs = [] if found.clients is None else found.clients
            rows = torch.tensor([row for row, name in enumerate(theirs) if name == part], dtype=torch.int64)
            require(bool(len(rows)), str(path), f"has no row of client {part!r}")
            x, y = x[rows], y[rows]
    return DataSet(
        known.name,
        {"x": x, "y": y},
        known.classes,
        groups=torch.zeros(len(y), dtype=torch.int64),
        scaled=None if known.scaling is None else known.scaling.scaled,
        blocks=known.blocks,
        class_names=known.class_names,
        features=known.features,
    )


def _folder(config: RunConfig, known: Federation) -> tuple[Tensor, Tensor]:
    """Pictures in folders that are named by their classes, which are the plan's."""
    found = own_data.read(config)
    names = class_names(known)
    strange = [name for name in found.class_names if name not in names]
    if strange:
        raise fail(config.data, f"has a class {strange[0]!r} that the plan does not have")
    places = torch.tensor([names.index(name) for name in found.class_names], dtype=torch.int64)
    return found.columns["x"], places[found.columns["y"]]
