"""Rows that are texts: one column or two of a csv file, or an .npz file of tokens."""

from __future__ import annotations

from pathlib import Path

from fedchord.check import require
from fedchord.data.features import words_of
from fedchord.data.formats.csv_file import read_csv
from fedchord.data.formats.texts import tokens
from fedchord.export.standalone.arrays import read_npz, ready
from fedchord.export.standalone.shared import HERE, Asked, Told, counted

__all__ = ["read", "ready"]


def read(path: Path, told: Told) -> Asked:
    """The texts of a file as tokens of the encoder's vocabulary."""
    require(path.is_file(), str(path), "no such file")
    if path.suffix == ".npz":
        return read_npz(path, told)
    table = read_csv(path, told["delimiter"])
    for column in told["columns"]["text"]:
        told_of = f"has no column {column!r} (columns: {', '.join(table.columns)[:200]})"
        require(column in table.columns, path.name, told_of)
    texts = [table.columns[column] for column in told["columns"]["text"]]
    x, _ = tokens(path.name, texts, HERE / "encoder", told["length"])
    cells = table.columns.get(told["columns"]["client"])
    return Asked(x, counted(len(x)), None if cells is None else words_of(cells))
