"""Pictures of your own: a folder with a folder per class, or a csv file that names the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedchord.check import require, unknown, whole
from fedchord.data.features import Column, Place, words_of
from fedchord.data.federation import DataSet
from fedchord.data.formats.csv_file import read_csv
from fedchord.data.formats.images import BICUBIC, decoded
from fedchord.data.labels import answers, told
from fedchord.data.validate import check_data
from fedchord.paths import expanded

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
GREY = ("1", "L", "LA", "I", "I;16", "F")
MOST = 8_000_000_000
"""How many bytes of pictures are read into memory."""


def from_folder(folder: str | Path, size: int | None = None, name: str | None = None) -> DataSet:
    """Pictures in a folder per class, FOLDER/CLASS/PICTURE.png, at any depth below the class.

    They become bytes (n, 1 or 3, height, width): one channel if all of them are grey. With `size` they are squeezed to
    size x size; without, all must have the same size.
    """
    root = Path(folder)
    require(root.is_dir(), str(folder), "no such folder")
    names = sorted(part.name for part in root.iterdir() if part.is_dir() and not part.name.startswith("."))
    files = {name: sorted(p for p in (root / name).rglob("*") if p.suffix.lower() in SUFFIXES) for name in names}
    names = [name for name in names if files[name]]
    owner = name or root.resolve().name
    needs = f"needs a folder per class with pictures in it ({', '.join(SUFFIXES)})"
    require(len(names) > 1, str(folder), f"{needs}, found {len(names)} such folder{'' if len(names) == 1 else 's'}")
    every = [path for name in names for path in files[name]]
    y = torch.tensor([label for label, name in enumerate(names) for _ in files[name]])
    origin = f"Read from {root.name}/; {told(names)}."
    dataset = DataSet(
        owner, {"x": read_pictures(owner, every, size), "y": y}, len(names), origin=origin, class_names=tuple(names)
    )
    check_data(dataset)
    return dataset


def from_picture_list(
    path: str | Path,
    picture: str,
    label: str | None = None,
    client: str | None = None,
    *,
    target: str | None = None,
    classes: Sequence[str] | None = None,
    size: int | None = None,
    delimiter: str | None = None,
    name: str | None = None,
) -> DataSet:
    """Pictures that a csv file names, in the column `picture`, from its own folder on; other columns are not used."""
    file = Path(path)
    require(file.is_file(), str(path), "no such file")
    read = read_csv(file, delimiter)
    found = answers(file.name, read.columns, label, target, client, classes, read.place)
    if picture not in read.columns:
        raise unknown(f"column of {file.name}", picture, read.columns)
    x = read_pictures(file.name, paths_of(file, picture, read.columns[picture], read.place), size)
    dataset = DataSet(
        name or file.stem,
        {"x": x, "y": found.y},
        found.classes,
        found.groups,
        found.group_names,
        origin=f"Read from {file.name}{f'; {told(found.class_names)}' if found.class_names else ''}.",
        class_names=found.class_names,
    )
    check_data(dataset)
    return dataset


def read_pictures(owner: str, paths: Sequence[Path], size: int | None = None, channels: int | None = None) -> Tensor:
    """Pictures as bytes (n, channels, height, width); the channels are 1 if all are grey, unless they are given."""
    if size is not None:
        whole(owner, "data.size", size, 1, 10_000)
    first = decoded(owner, paths[0])
    sides = first.size if size is None else (size, size)
    wanted = channels or 1
    most = len(paths) * wanted * sides[0] * sides[1]
    require(most <= MOST, owner, f"{len(paths)} pictures take {most / 1e9:.0f} GB; make them smaller with data.size")
    found = np.empty((len(paths), wanted, sides[1], sides[0]), dtype=np.uint8)
    for row, path in enumerate(paths):
        picture = decoded(owner, path)
        if channels is None and picture.mode not in GREY:
            return read_pictures(owner, paths, size, channels=3)
        plain = picture if picture.mode in ("L", "RGB") else _plain(picture)
        plain = plain.convert("L" if wanted == 1 else "RGB")
        if plain.size != sides:
            got, expected = (f"{width}x{height}" for width, height in (plain.size, sides))
            alike = f"{path} has {got} pixels, {paths[0].name} has {expected}; data.size=SIDE makes them alike"
            require(size is not None, owner, alike)
            plain = plain.resize(sides, BICUBIC)
        pixels = np.asarray(plain, dtype=np.uint8)
        found[row] = pixels[None] if wanted == 1 else pixels.transpose(2, 0, 1)
    return torch.from_numpy(found)


def _plain(picture: Image) -> Image:
    """A picture of 16 or 32 bits as one of 8, its range kept; others as they are."""
    if picture.mode not in ("I", "I;16", "F"):
        return picture
    from PIL.Image import fromarray

    values = np.asarray(picture, dtype=np.float64)
    high = 65535.0 if picture.mode != "F" else max(float(values.max()), 1.0)
    return fromarray((values.clip(0, high) / high * 255).round().astype(np.uint8))


def paths_of(file: Path, column: str, cells: Column, place: Place) -> list[Path]:
    """The files that a column names, from the folder of the csv file on; one that is not there is refused."""
    found = []
    for row, word in enumerate(words_of(cells)):
        require(bool(word), file.name, f"{place(row)}, column {column!r} is empty")
        path = expanded(word)
        path = path if path.is_absolute() else file.parent / path
        require(path.is_file(), file.name, f"{place(row)}, column {column!r}: {word}: no such file")
        found.append(path)
    return found
