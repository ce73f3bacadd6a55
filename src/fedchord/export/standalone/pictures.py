"""Rows that are pictures: a folder of them, one picture, a csv file that names them, or an .npz file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fedchord.check import require
from fedchord.data.augment import Pictures
from fedchord.data.features import words_of
from fedchord.data.federation import prepare
from fedchord.data.formats.csv_file import read_csv
from fedchord.data.formats.pictures import SUFFIXES, paths_of, read_pictures
from fedchord.export.standalone.arrays import read_npz, read_numbers
from fedchord.export.standalone.shared import Asked, Told


def read(path: Path, told: Told) -> Asked:
    """The pictures of a place, in the size and colours of the training pictures."""
    require(path.exists(), str(path), "no such file")
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES)
        require(bool(files), str(path), f"holds no pictures ({', '.join(SUFFIXES)})")
        return read_files(files, told)
    if path.suffix == ".npz":
        return read_npz(path, told)
    column = told["columns"].get("picture")
    if column is None:
        return read_numbers(path, told)
    table = read_csv(path, told["delimiter"])
    require(column in table.columns, path.name, f"has no column {column!r} (columns: {', '.join(table.columns)[:200]})")
    asked = read_files(paths_of(path, column, table.columns[column], table.place), told)
    cells = table.columns.get(told["columns"]["client"])
    asked.clients = None if cells is None else words_of(cells)
    return asked


def read_files(files: Sequence[Path], told: Told) -> Asked:
    """Pictures by their files."""
    channels, height, width = told["x"]["shape"]
    require(height == width, "predict", f"pictures of {width}x{height} pixels cannot be made; give an .npz file")
    return Asked(read_pictures("predict", files, height, channels), [str(file) for file in files], head="picture")


def ready(x: Tensor, told: Told) -> tuple[Tensor, str]:
    """Pictures as the network takes them: numbers in [0, 1], the middle square, each colour scaled."""
    shown = told["pictures"]
    return Pictures(shown["side"], tuple(shown["mean"]), tuple(shown["std"])).show(prepare({"x": x})["x"]), ""
