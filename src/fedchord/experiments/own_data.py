"""Data of your own in a run: a table (csv), arrays (npz), pictures (a folder, or a csv of paths) or texts (csv)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedchord.check import fail, one_of, require
from fedchord.data import DataSet, from_csv, from_folder, from_npz, from_picture_list, from_texts
from fedchord.data.features import Feature
from fedchord.data.formats.csv_file import header_of
from fedchord.data.formats.npz import array_names
from fedchord.data.formats.texts import LENGTH
from fedchord.data.table import SCALES
from fedchord.paths import expanded

if TYPE_CHECKING:
    from fedchord.experiments.config import RunConfig

LABEL, CLIENT = "label", "client"
"""The columns that are the label and the client unless others are named."""
TABLES = (".csv", ".tsv", ".txt")
FILES = (*TABLES, ".npz")
TAKES = {
    "table": ("label", "target", "client", "drop", "category", "scale", "delimiter"),
    "texts": ("label", "target", "client", "text", "length", "delimiter"),
    "list of pictures": ("label", "target", "client", "picture", "size", "delimiter"),
    "arrays": ("scale",),
    "folder of pictures": ("size",),
}
"""The keys data.x by what the data are."""
KEYS = tuple(dict.fromkeys(key for keys in TAKES.values() for key in keys))
MISSING = "missing"


def is_own(data: str) -> bool:
    """Whether `data` names a file or folder of your own rather than a public data set."""
    return data.endswith(FILES) or ("/" in data and os.path.isdir(expanded(data))) or data in (".", "..")


def kind(config: RunConfig) -> str:
    """What the data of your own are."""
    if config.data.endswith(".npz"):
        return "arrays"
    if not config.data.endswith(TABLES):
        return "folder of pictures"
    return "texts" if config.data_text else "list of pictures" if config.data_picture else "table"


def regression(config: RunConfig) -> bool:
    """Whether numbers are predicted, as far as the settings tell."""
    return config.data_target is not None


def read(config: RunConfig, features: Sequence[Feature] | None = None) -> DataSet:
    """The rows of the data; `features` says what the columns of a table are, where that was agreed elsewhere."""
    what, path = kind(config), expanded(config.data)
    there = path.is_dir() if what == "folder of pictures" else path.is_file()
    require(there, "data", f"{config.data}: no such {'folder' if what == 'folder of pictures' else 'file'}")
    if what == "arrays":
        return from_npz(path, scale=config.data_scale)
    if what == "folder of pictures":
        return from_folder(path, config.data_size)
    asked: dict[str, Any] = {
        "label": None if config.data_target else config.data_label or LABEL,
        "target": config.data_target,
        "client": config.data_client or (CLIENT if has_clients(config) else None),
        "delimiter": config.data_delimiter,
    }
    if what == "texts":
        assert config.data_text is not None
        return from_texts(path, config.data_text, encoder_of(config), length=config.data_length or LENGTH, **asked)
    if what == "list of pictures":
        return from_picture_list(path, str(config.data_picture), size=config.data_size, **asked)
    drop, category = config.data_drop or (), config.data_category or ()
    scale = config.data_scale or "client"
    return from_csv(path, drop=drop, category=category, scale=scale, features=features, **asked)


def has_clients(config: RunConfig) -> bool:
    """Whether the data have a client column; a file that cannot be read has none, and its reader tells."""
    what, path = kind(config), expanded(config.data)
    if what == "folder of pictures":
        return False
    if config.data_client is not None:
        return True
    return CLIENT in _columns(path, _stamp(path), config.data_delimiter)


def encoder_of(config: RunConfig) -> str:
    """The folder of the encoder that reads the texts."""
    name, _, folder = (config.model or "").partition(":")
    good = name in ("encoder", "encoder-mean") and bool(folder)
    require(good, "run", f"data.text needs model=encoder:FOLDER (or encoder-mean:FOLDER), got model={config.model}")
    return folder


def check(config: RunConfig) -> None:
    """Refuse keys data.x that the data do not take."""
    given = [key for key in KEYS if getattr(config, f"data_{key}") is not None]
    if not is_own(config.data):
        if given:
            raise fail("run", f"data.{given[0]} is for data of your own (a file or a folder), got data={config.data}")
        return
    what = kind(config)
    for key in given:
        takes = " and ".join(f"data.{name}" for name in TAKES[what])
        require(key in TAKES[what], "run", f"a {what} takes {takes}, got data.{key}".replace("a arrays", "an npz file"))
    both = config.data_label is not None and config.data_target is not None
    require(not both, "run", "data.label (classes) and data.target (numbers) cannot both be given")
    if config.data_scale is not None:
        one_of("run", "data.scale", config.data_scale, SCALES)
    if what == "texts":
        encoder_of(config)


def mark(data: str) -> str:
    """What tells two versions of the data apart: the SHA-256 of a file, or of the names and sizes in a folder."""
    path = expanded(data)
    return _mark(path, _stamp(path))


@lru_cache(maxsize=64)
def _mark(path: Path, stamp: tuple[int, int]) -> str:
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    inside = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else []
    told = "\n".join(f"{part.relative_to(path)} {part.stat().st_size}" for part in inside)
    return hashlib.sha256(told.encode()).hexdigest() if inside else MISSING


def _stamp(path: Path) -> tuple[int, int]:
    """When a file was last changed, and its size; a folder's change is that of its newest part."""
    try:
        parts = [path, *path.iterdir()] if path.is_dir() else [path]
        found = [part.stat() for part in parts]
    except OSError:
        return 0, 0
    return max(part.st_mtime_ns for part in found), sum(part.st_size for part in found)


@lru_cache(maxsize=64)
def _columns(path: Path, stamp: tuple[int, int], delimiter: str | None) -> tuple[str, ...]:
    if path.suffix != ".npz":
        return tuple(header_of(path, delimiter))
    try:
        return tuple(array_names(path))
    except ValueError:  # the reader says what is wrong
        return ()
