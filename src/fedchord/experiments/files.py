"""A user's own data file in a run: data=PATH.npz or data=PATH.csv."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import torch

from fedchord.check import require
from fedchord.data import DataSet, from_csv, from_npz

LABEL, CLIENT = "label", "client"


def is_file(data: str) -> bool:
    """Whether `data` names a file rather than a public data set."""
    return data.endswith((".npz", ".csv"))


def read_file(data: str) -> DataSet:
    """The rows of an .npz file (arrays x, y, client) or a .csv file (columns label and client, the others features)."""
    path = Path(data).expanduser()
    require(path.is_file(), "data", f"{data}: no such file")
    dataset = from_npz(path) if path.suffix == ".npz" else from_csv(path, LABEL, CLIENT if _has_client(path) else None)
    x = dataset.columns["x"]
    if x.is_floating_point() or x.dtype == torch.uint8:
        return dataset
    return replace(dataset, columns=dataset.columns | {"x": x.to(torch.float32)})


def _has_client(path: Path) -> bool:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            return CLIENT in [column.strip() for column in next(csv.reader(stream), [])]
    except (csv.Error, UnicodeDecodeError):
        return False  # the reader says what is wrong
