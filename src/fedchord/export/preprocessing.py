"""How rows become what the network takes, as plain facts: preprocessing.json of an exported folder."""

from __future__ import annotations

from typing import Any

import torch

from fedchord.check import require
from fedchord.data.augment import Pictures
from fedchord.data.federation import Federation
from fedchord.data.formats.texts import LENGTH
from fedchord.data.scaling import FEW
from fedchord.evaluation.prediction import class_names
from fedchord.experiments import own_data
from fedchord.experiments.rows_file import label_of
from fedchord.export.chosen import Chosen

Told = dict[str, Any]
ROWS = {
    "table": "rows.csv",
    "texts": "rows.csv",
    "pictures": "PICTURES",
    "arrays": "rows.npz",
    "scaled arrays": "rows.npz",
}
"""The kinds of rows, and what a file of them may be called."""
BECOMES = {
    torch.uint8: "float32 in [0, 1]: the byte / 255",
    torch.int16: "float32 in [-1, 1): the number / 32768",
    torch.int8: "int64, the number of a token",
    torch.int32: "int64, the number of a token",
    torch.int64: "int64, the number of a token",
}
"""What a network takes, by the type that rows are stored in."""


def kind(chosen: Chosen) -> str:
    """What the rows are: table, scaled arrays, arrays, pictures or texts."""
    federation = chosen.federation
    if chosen.config.data_text:
        return "texts"
    if len(federation.columns["x"].shape) == 4:
        return "pictures"
    if federation.features:
        return "table"
    return "arrays" if federation.scaling is None else "scaled arrays"


def preprocessing(chosen: Chosen) -> Told:
    """Everything that predict.py has to know."""
    federation, config = chosen.federation, chosen.config
    advice = "--to FILE.safetensors writes the weights alone"
    require(federation.columns["y"].ndim == 1, "export", f"{federation.name} has several labels per row; {advice}")
    x = federation.columns["x"]
    told: Told = {
        "kind": kind(chosen),
        "client": chosen.client,
        "x": {"shape": list(x.shape[1:]), "dtype": _kind(x.dtype), "becomes": BECOMES.get(x.dtype, "float32")},
        "network": _network(chosen),
        "columns": {"label": label_of(config), "client": config.data_client or own_data.CLIENT},
        "delimiter": config.data_delimiter,
        "classes": list(class_names(federation)),
        "target": None,
        "features": [{"name": feature.name, "categories": list(feature.categories)} for feature in federation.features],
        "scaling": _scaling(federation, chosen.number),
    }
    if federation.target is not None:
        told["target"] = dict(zip(("mean", "std"), federation.target, strict=True))
    if told["kind"] == "pictures":
        shown = federation.pictures or Pictures()
        told["pictures"] = {"side": shown.side, "mean": list(shown.mean), "std": list(shown.std)}
        told["columns"]["picture"] = config.data_picture
    if told["kind"] == "texts":
        told["columns"]["text"] = list(config.data_text or ())
        told["length"] = config.data_length or LENGTH
    return told


def _network(chosen: Chosen) -> Told:
    """What the network takes, and how many numbers it gives for a row."""
    task, rows = chosen.fitted.work.task, chosen.federation.example(2)
    outputs = task.outputs(chosen.model["theta"], chosen.model["buffers"], rows).reshape(2, -1)
    return {"shape": list(rows["x"].shape[1:]), "dtype": _kind(rows["x"].dtype), "outputs": outputs.shape[1]}


def _scaling(federation: Federation, client: int | None) -> Told | None:
    """The statistics that rows of the model's client are scaled by, or, for the global model, the pooled ones."""
    scaling = federation.scaling
    if scaling is None:
        return None
    mean, std = scaling.pooled if client is None else (scaling.mean[client], scaling.std[client])
    own = (
        "training rows of all clients"
        if client is None
        else f"training rows of client {federation.client_names[client]}"
    )
    labels = [label for feature in federation.features for label in feature.labels]
    return {
        "features": labels or [str(number) for number in range(len(mean))],
        "scaled": scaling.scaled.tolist(),
        "mean": mean.tolist(),
        "std": std.tolist(),
        "of": own,
        "own_rows_from": FEW if client is None else None,
    }


def _kind(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
