"""Rows that are arrays: an .npz file with an array x, or a csv file with a column for each number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedchord.check import fail, require
from fedchord.data.features import Feature, encode, words_of
from fedchord.data.federation import prepare
from fedchord.data.formats.csv_file import read_csv
from fedchord.data.formats.npz import read_arrays
from fedchord.data.new_rows import stored
from fedchord.export.standalone.shared import Asked, Told, counted


def read(path: Path, told: Told) -> Asked:
    """The rows of a file."""
    require(path.is_file(), str(path), "no such file")
    return read_npz(path, told) if path.suffix == ".npz" else read_numbers(path, told)


def read_npz(path: Path, told: Told) -> Asked:
    """The array x of a file and, where it has one, the array client."""
    try:
        arrays = read_arrays(path, ("x", "client"))
    except (OSError, ValueError):
        raise fail(str(path), "is not a readable .npz file of plain arrays") from None
    require("x" in arrays, str(path), "array x is missing")
    x = as_stored(str(path), arrays["x"], told)
    clients = [str(key) for key in arrays["client"].tolist()] if "client" in arrays else None
    return Asked(x, counted(len(x)), clients)


def read_numbers(path: Path, told: Told) -> Asked:
    """The columns of a csv file, without those of the label and the client, as one row of numbers each."""
    table = read_csv(path, told["delimiter"])
    others = (told["columns"]["label"], told["columns"]["client"])
    features = [Feature(name) for name in table.columns if name not in others]
    x = encode(path.name, features, table.columns, table.place).x
    shape = told["x"]["shape"]
    fits = x.shape[1] == int(np.prod(shape))
    require(fits, path.name, f"has {x.shape[1]} columns of numbers, {int(np.prod(shape))} were expected")
    cells = table.columns.get(told["columns"]["client"])
    clients = None if cells is None else words_of(cells)
    return Asked(as_stored(path.name, x.reshape(-1, *shape), told), counted(len(x)), clients)


def as_stored(owner: str, values: Any, told: Told) -> Tensor:
    """Rows in the shape and the type of the training rows."""
    kind = getattr(torch, told["x"]["dtype"])
    return stored(owner, values, tuple(told["x"]["shape"]), kind, told["scaling"] is not None)


def ready(x: Tensor, told: Told) -> tuple[Tensor, str]:
    """Rows as the network takes them: bytes as numbers in [0, 1], sound in [-1, 1), tokens as they are."""
    return prepare({"x": x})["x"], ""
