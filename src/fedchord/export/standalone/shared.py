"""What every predict.py does: read rows, make them ready, ask the network, write a csv file."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedchord.check import FedchordError
from fedchord.evaluation.prediction import ROWS, probabilities

HERE = Path(__file__).parent
"""This folder."""
Told = Mapping[str, Any]
"""What preprocessing.json says."""


@dataclass
class Asked:
    """Rows of a file: how each is named, and whose it is where the file tells."""

    x: Tensor
    names: list[str]
    clients: list[str] | None = None
    head: str = "row"
    unseen: Mapping[str, int] = field(default_factory=dict)


Read = Callable[[Path, Told], Asked]
Ready = Callable[[Tensor, Told], tuple[Tensor, str]]


def main(read: Read, ready: Ready, build: Callable[[], nn.Module]) -> None:
    """Predict the rows of the file that the command names, and write them to the standard output."""
    told = json.loads((HERE / "preprocessing.json").read_text(encoding="utf-8"))
    if len(sys.argv) != 2:
        sys.exit("usage: python predict.py ROWS > out.csv")
    try:
        asked = read(Path(sys.argv[1]), told)
        values = predict(asked, told, ready, build)
    except FedchordError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    for column, cells in asked.unseen.items():
        print(f"{cells} cells of column {column!r} hold a word that training never met", file=sys.stderr)
    write(asked, values, told["classes"])


def predict(asked: Asked, told: Told, ready: Ready, build: Callable[[], nn.Module]) -> Tensor:
    """Probabilities (rows, classes), or predicted numbers (rows, 1) where there are no classes."""
    network = build()
    network.load_state_dict(load_file(HERE / "weights.safetensors"))
    network.eval()
    values = torch.empty(len(asked.names), len(told["classes"]) or 1)
    for client, places in by_client(asked, told).items():
        x, how = ready(asked.x[places], told)
        values[places] = answers(network, x, told)
        who = f" of {client}" if client else ""
        print(f"{len(places)} rows{who}{f': scaled by {how}' if how else ''}", file=sys.stderr)
    return values


def by_client(asked: Asked, told: Told) -> dict[str, list[int]]:
    """The rows to treat together: each new client's, where this is the global model; else all."""
    if told["client"] is not None or asked.clients is None:
        return {"": list(range(len(asked.names)))}
    found: dict[str, list[int]] = {}
    for place, client in enumerate(asked.clients):
        found.setdefault(client, []).append(place)
    return found


def answers(network: nn.Module, x: Tensor, told: Told) -> Tensor:
    """What the network says of rows that are ready."""
    with torch.no_grad():
        scores = torch.cat([network(part).reshape(len(part), -1) for part in x.split(ROWS)])
    if told["target"] is None:
        return probabilities(scores)
    mean, std = float(told["target"]["mean"]), float(told["target"]["std"])  # the network predicts (y - mean) / std
    return scores * std + mean


def write(asked: Asked, values: Tensor, classes: list[str]) -> None:
    """A line per row: its name, its client where the file tells, the label and the probabilities, or the number."""
    answer = ["label", *(f"p({name})" for name in classes)] if classes else ["prediction"]
    lines = [[asked.head, *(["client"] if asked.clients is not None else []), *answer]]
    best = values.argmax(1).tolist()
    for row, numbers in enumerate(values.tolist()):
        client = [] if asked.clients is None else [asked.clients[row]]
        label = [classes[best[row]]] if classes else []
        lines.append([asked.names[row], *client, *label, *(f"{number:.6g}" for number in numbers)])
    csv.writer(sys.stdout, lineterminator="\n").writerows(lines)


def counted(rows: int) -> list[str]:
    """The names of rows that have none."""
    return [str(row) for row in range(1, rows + 1)]
