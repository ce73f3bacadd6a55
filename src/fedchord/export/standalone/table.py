"""Rows of a table: a csv file with named columns, or an .npz file with an array x of the features."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fedchord.check import require
from fedchord.data.features import Feature, encode, words_of
from fedchord.data.formats.csv_file import read_csv
from fedchord.data.scaling import Scaling
from fedchord.export.standalone.arrays import read_npz
from fedchord.export.standalone.shared import Asked, Told, counted


def read(path: Path, told: Told) -> Asked:
    """The rows of a file; columns that are no feature are not looked at."""
    require(path.is_file(), str(path), "no such file")
    if path.suffix == ".npz":
        return read_npz(path, told)
    table = read_csv(path, told["delimiter"])
    features = [Feature(part["name"], tuple(part["categories"])) for part in told["features"]]
    found = encode(path.name, features, table.columns, table.place)
    cells = table.columns.get(told["columns"]["client"])
    clients = None if cells is None else words_of(cells)
    return Asked(torch.from_numpy(found.x), counted(len(found.x)), clients, unseen=found.unseen)


def ready(x: Tensor, told: Told) -> tuple[Tensor, str]:
    """Rows with gaps filled and features scaled, and by whose rows: the client's of this model, or, for the global one,
    a new client's own, from 20 rows on; with fewer, all training rows together."""
    mean, std = (torch.tensor(told["scaling"][part], dtype=torch.float64) for part in ("mean", "std"))
    scaling = Scaling(torch.tensor(told["scaling"]["scaled"]), mean[None], std[None], torch.stack([mean, std]))
    if told["client"] is None:
        return scaling.newcomer(x)
    return scaling.rows(x, 0), f"the training rows of client {told['client']}"
