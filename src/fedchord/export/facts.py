"""The facts behind the model card: run.json of an exported folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedchord.data import SOURCES
from fedchord.data.federation import Federation
from fedchord.experiments.summary import method_line, versions
from fedchord.export.chosen import Chosen
from fedchord.export.network import Network
from fedchord.export.preprocessing import Told

FORMAT = 1
COLUMNS = ("mean", "std", "worst10", "best10", "clients", "undefined")
"""The numbers over clients that leave with the model."""
FEW_TRAIN, FEW_TEST = 20, 10
"""Clients with fewer rows are counted."""

Facts = dict[str, Any]


def facts(chosen: Chosen, made: Network, told: Told) -> Facts:
    """What is true of an exported model; numbers of single clients are those of the exported one alone."""
    config, state = chosen.config, chosen.fitted.state
    summary = chosen.folder.read_summary() if chosen.folder.finished else None
    return {
        "export": FORMAT,
        "whose": chosen.words,
        "client": None if chosen.number is None else _client(chosen, summary),
        "model": {
            "class": made.name,
            "arguments": dict(made.arguments),
            "parameters": chosen.fitted.work.task.layout.size,
            "objective": chosen.fitted.work.task.objective.name,
        },
        "needs": list(needs(made, told)),
        "run": {
            "method": config.method,
            "rules": method_line(config.algorithm()),
            "deploys": config.algorithm().client.deploys.words,
            "round": state.round,
            "rounds": config.rounds,
            "seed": config.seed,
            "newcomers": None if summary is None else _newcomers(summary["newcomers"]),
        },
        "data": _data(chosen, told),
        "protocol": None if summary is None else summary["protocol"],
        "metrics": None if summary is None else _over_clients(summary["metrics"]),
        "versions": versions(),
        "trained_with": None if summary is None else summary["versions"],
    }


def needs(made: Network, told: Told) -> tuple[str, ...]:
    """The packages that the folder needs."""
    pictures = ("pillow",) if told["kind"] == "pictures" else ()
    return tuple(dict.fromkeys(("torch", "numpy", "safetensors", *pictures, *made.needs)))


def _data(chosen: Chosen, told: Told) -> Facts:
    federation, config = chosen.federation, chosen.config
    source = SOURCES.get(config.data)
    told_of = None if source is None else {"title": source.title, "licence": source.licence, "home": source.home}
    return {
        "name": federation.name,
        "source": told_of,
        "kind": told["kind"],
        "classes": told["classes"],
        "target": None if not federation.regression else told["columns"]["label"],
        "split": config.choices()["split"],
        "synthetic": config.synthetic,
        "clients": list(federation.client_names),
        "rows": {part: int(federation.part(part).sizes.sum()) for part in ("train", "validation", "test")},
        "train": _sizes(federation.train.sizes, FEW_TRAIN),
        "test": _sizes(federation.test.sizes, FEW_TEST),
        "never_sampled": int((chosen.fitted.state.visits.tensor() == 0).sum()),
        "notes": list(federation.notes),
    }


def _sizes(sizes: Tensor, few: int) -> Facts:
    """How rows are spread over clients, without saying whose they are."""
    return {
        "smallest": int(sizes.min()),
        "median": float(sizes.double().quantile(0.5)),
        "largest": int(sizes.max()),
        "below": few,
        "few": int((sizes < few).sum()),
    }


def _client(chosen: Chosen, summary: Mapping[str, Any] | None) -> Facts:
    number, federation = chosen.number, chosen.federation
    assert number is not None
    return {
        "name": chosen.client,
        "rows": _rows_of(federation, number),
        "rounds": chosen.fitted.state.visits[number],
        "metrics": None if summary is None else _of_client(summary["per_client"], str(chosen.client)),
    }


def _rows_of(federation: Federation, client: int) -> dict[str, int]:
    return {part: int(federation.part(part).sizes[client]) for part in ("train", "validation", "test")}


def _of_client(table: Mapping[str, list[Any]], name: str) -> Facts | None:
    """What a client measured; None if it has no test rows."""
    if name not in table["client"]:
        return None
    place = table["client"].index(name)
    return {metric: values[place] for metric, values in table.items() if metric not in ("client", "size")}


def _over_clients(metrics: Mapping[str, Mapping[str, Any]]) -> Facts:
    return {name: {column: values[column] for column in COLUMNS} for name, values in metrics.items()}


def _newcomers(found: Mapping[str, Any] | None) -> Facts | None:
    """What clients that came later measured."""
    if found is None:
        return None
    parts = {part: _over_clients(found[part]) for part in ("global", "tuned")}
    return {"clients": found["clients"], "model": found["model"], "epochs": found["epochs"], **parts}
