"""What a run will need before it starts: files that are missing, and about how many seconds of one core."""

from __future__ import annotations

from pathlib import Path

from fedchord.core.rules import LINE
from fedchord.data import SOURCES, data_root
from fedchord.data.official.facts import FACTS, Facts
from fedchord.experiments.config import RunConfig

MILLISECONDS = {
    "logreg": 0.03,
    "twonn": 0.06,
    "twocnn": 1.8,
    "smallconv": 0.5,
    "resnet9": 6.6,
    "resnet10": 24.0,
    "resnet18": 40.0,
    "mobilenet": 16.0,
    "mobilenet-short": 3.8,
    "vgg9": 2.2,
    "leafconv": 7.6,
    "efficientnet-b0": 138.0,
    "m5": 9.0,
    "lstm-characters": 5.9,
    "lstm-words": 5.0,
    "encoder": 60.0,
    "encoder-mean": 60.0,
    "cvae": 0.12,
    "cgan": 0.22,
}
"""One training step of one row on one core, batches of 10, as measured; a model that is not named takes 1."""
WIDTHS = {"resnet9": 64, "resnet10": 64, "resnet18": 64, "smallconv": 16, "cvae": 16, "cgan": 16}
"""The width a model was measured with; the time grows with its square or less, taken as linear in between."""
SIDES = {"smallconv": 28, "cvae": 28, "cgan": 28, "resnet10": 32}
"""The side of the pictures a model was measured with; the time grows with their area. Others are taken as they are."""
PICTURES = {"cifar10": 32, "cifar100": 32, "tinyimagenet": 64}
"""The side of pictures that is not 28 and not told by the name's end, as in dermamnist_64."""
PASSES = {
    "apfl": 2.0,
    "superfed-mm": 1.5,
    "superfed-lm": 1.5,
    "scaffold": 1.2,
    "pfedme": 6.0,
    "fedevg-witness": 0.33,
    "fedevg": 3.0,
}
"""How many plain steps a step of a method costs, where it is not one; the first that a method's name begins with."""
LOOK = 1 / 3
"""A forward pass, as a share of a training step."""
START = 1.0
"""Seconds to read data and build the model."""


def missing(config: RunConfig) -> list[str]:
    """The files a run needs and that are not there: of its data, its model and its judge."""
    root = Path(config.data_root) if config.data_root else data_root()
    source = SOURCES.get(config.data)
    found = [] if source is None or source.embedded else [str(root / file) for file in source.missing(root)]
    for name in (str(config.model or ""), str(config.judge_features or "")):
        path = name.partition(":")[2]
        if path and not path.isdecimal() and ".py:" not in name and not Path(path).exists():
            found.append(path)
    return found


def seconds(config: RunConfig) -> float:
    """About how long a run takes on one core: training rows and evaluated rows times what the model takes a row.

    The official number of rows counts, also where the files hold fewer. Within a factor of two or three.
    """
    rows, clients = _size(config)
    train = rows / clients * (1 - config.test - config.validation)
    choices = config.choices()
    each = _milliseconds(str(choices["model"]), _side(config.data)) / 1000
    cohort = config.plan().size(clients)
    steps = config.rounds * cohort * _trained(config, train)
    points = len(config.lambdas()) if config.algorithm().client.deploys.kind == LINE else 1
    often = -(-config.rounds // choices["eval_every"]) if choices["eval_every"] else 1
    looked = rows * config.test * (often + points)
    mixing = config.algorithm().mixing
    losses = config.rounds * cohort * train if "loss" in mixing.needs else 0.0
    return START + each * (steps + LOOK * (looked + losses))


def _size(config: RunConfig) -> tuple[float, int]:
    """Rows and clients, as far as they are known without reading."""
    source, facts = SOURCES.get(config.data), FACTS.get(config.data, Facts())
    rows = float(source.rows if source is not None and source.rows else 10_000)
    clients = config.choices()["clients"]
    if isinstance(clients, int):
        known = facts.thesis.clients[0] if facts.thesis and config.choices()["split"] == "natural" else clients
        return rows * min(1.0, clients / known), clients
    return rows, facts.thesis.clients[0] if facts.thesis else 20


def _trained(config: RunConfig, train: float) -> float:
    """Rows that a client trains on in a visit, a row in every pass counted anew."""
    keys = dict(config.parameters)
    name, epochs = config.method, float(config.epochs)
    if name == "ditto":
        epochs += float(keys.get("method.own_epochs", config.epochs))
    if name == "fedrep":
        epochs = float(keys.get("method.head_epochs", config.epochs)) + float(keys.get("method.body_epochs", 1))
    iterations = float(getattr(config.algorithm().client, "iterations", 0))
    rows = iterations * float(getattr(config.algorithm().client, "batch", 32)) if iterations else epochs * train
    known = next((passes for start, passes in PASSES.items() if name.startswith(start)), 1.0)
    return rows * known


def _milliseconds(model: str, side: int) -> float:
    kind, _, width = model.partition(":")
    times = int(width) / WIDTHS.get(kind, int(width)) if width.isdecimal() else 1.0
    return MILLISECONDS.get(kind, 1.0) * times * (side / SIDES.get(kind, side)) ** 2


def _side(data: str) -> int:
    """The side of the pictures of a data set, by its name."""
    name, _, side = data.rpartition("_")
    return int(side) if name and side.isdecimal() else PICTURES.get(data, 28)


def told(total: float) -> str:
    """Seconds in words that fit their size."""
    for unit, size in (("days", 172_800.0), ("hours", 5_400.0), ("min", 90.0)):
        if total >= size:
            return f"{total / {'days': 86_400, 'hours': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{total:.0f} s"
