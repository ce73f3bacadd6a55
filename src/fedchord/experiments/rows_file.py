"""Rows in a file that came after training, read as the training rows of a run were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedchord.check import FedchordError, fail, require
from fedchord.data.features import Column, Feature, Place, encode, words_of
from fedchord.data.federation import Federation
from fedchord.data.formats.csv_file import read_csv
from fedchord.data.formats.npz import read_arrays
from fedchord.data.formats.pictures import SUFFIXES, paths_of, read_pictures
from fedchord.data.formats.texts import LENGTH, tokens
from fedchord.data.labels import answers
from fedchord.data.new_rows import Rows, rows_of
from fedchord.evaluation.prediction import class_names
from fedchord.experiments import own_data
from fedchord.experiments.config import RunConfig


@final
@dataclass(frozen=True)
class Asked:
    """Rows of a file: how each is named, and, where the file tells, its label and its client."""

    rows: Rows
    names: Sequence[str]
    y: Tensor | None = None
    clients: Sequence[str] | None = None
    head: str = "row"
    problem: str = ""
    """Why a label column that is there is not used."""


def read_rows(config: RunConfig, federation: Federation, path: Path) -> Asked:
    """The rows of a file, in the form the training rows had before they were scaled."""
    require(path.exists(), str(path), "no such file")
    pictures = len(federation.columns["x"].shape) == 4
    if pictures and (path.is_dir() or path.suffix.lower() in SUFFIXES):
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES)
        require(bool(files), str(path), f"holds no pictures ({', '.join(SUFFIXES)})")
        return Asked(_pictures(federation, files), [str(file) for file in files], head="picture")
    require(path.is_file(), str(path), "is a folder; a file of rows was expected")
    if path.suffix == ".npz":
        return _arrays(federation, path)
    require(path.suffix in own_data.TABLES, str(path), f"must end in {', '.join(own_data.FILES)}")
    return _table(config, federation, path)


def labelled(found: Asked, owner: str, label: str) -> Tensor:
    """The labels of rows that must have them."""
    if found.problem:
        raise FedchordError(found.problem)
    if found.y is None:
        raise fail(owner, f"has no label column {label!r}, which tuning needs")
    return found.y


def _arrays(federation: Federation, path: Path) -> Asked:
    try:
        arrays = read_arrays(path, ("x", "y", "client"))
    except ValueError as error:
        raise fail(str(path), f"is not a readable .npz file of plain arrays ({error})") from None
    require("x" in arrays, str(path), "array x is missing")
    rows = rows_of(federation, arrays["x"], str(path))
    table = {"y": np.asarray(arrays["y"]).reshape(len(rows), -1)[:, 0]} if "y" in arrays else {}
    y, problem = _labels(federation, str(path), table, "y", "row {}".format)
    clients = [str(key) for key in arrays["client"].tolist()] if "client" in arrays else None
    return Asked(rows, _numbers(len(rows)), y, clients, problem=problem)


def _table(config: RunConfig, federation: Federation, path: Path) -> Asked:
    read = read_csv(path, config.data_delimiter)
    columns: Mapping[str, Column] = read.columns
    label, client = label_of(config), config.data_client or own_data.CLIENT
    y, problem = _labels(federation, path.name, columns, label, read.place)
    clients = words_of(columns[client]) if client in columns else None
    count = len(next(iter(columns.values())))
    if config.data_text:
        _present(path, columns, config.data_text)
        texts = [columns[column] for column in config.data_text]
        x, _ = tokens(path.name, texts, own_data.encoder_of(config), config.data_length or LENGTH)
        return Asked(Rows(x), _numbers(count), y, clients, problem=problem)
    if config.data_picture:
        _present(path, columns, (config.data_picture,))
        files = paths_of(path, config.data_picture, columns[config.data_picture], read.place)
        return Asked(_pictures(federation, files), [str(file) for file in files], y, clients, "picture", problem)
    if federation.features:
        found = encode(path.name, federation.features, columns, read.place)
        return Asked(Rows(torch.from_numpy(found.x), found.unseen), _numbers(count), y, clients, problem=problem)
    rest = [column for column in columns if column not in (label, client)]
    plain = encode(path.name, [Feature(column) for column in rest], columns, read.place)
    shape = federation.columns["x"].shape[1:]
    fits = plain.x.shape[1] == shape.numel()
    require(fits, path.name, f"has {plain.x.shape[1]} columns of numbers, {federation.name} has {shape.numel()}")
    rows = rows_of(federation, plain.x.reshape(count, *shape), path.name)
    return Asked(rows, _numbers(count), y, clients, problem=problem)


def _pictures(federation: Federation, files: Sequence[Path]) -> Rows:
    """Pictures in the size and colours of the training pictures."""
    channels, height, width = federation.columns["x"].shape[1:]
    require(height == width, "predict", f"pictures of {width}x{height} pixels cannot be made; give an .npz file")
    return Rows(read_pictures("predict", files, height, channels))


def _labels(
    federation: Federation, owner: str, table: Mapping[str, Column], label: str, place: Place
) -> tuple[Tensor | None, str]:
    """Labels as the numbers of the run's classes, or numbers to predict; or why they cannot be used."""
    if label not in table:
        return None, ""
    try:
        if federation.regression:
            return answers(owner, table, None, label, None, None, place).y, ""
        return answers(owner, table, label, None, None, class_names(federation), place).y, ""
    except FedchordError as error:
        return None, str(error)


def label_of(config: RunConfig) -> str:
    """The column that holds the label."""
    return config.data_target or config.data_label or own_data.LABEL


def _present(path: Path, columns: Mapping[str, Column], wanted: Sequence[str]) -> None:
    for column in wanted:
        require(column in columns, path.name, f"has no column {column!r} (columns: {', '.join(columns)[:200]})")


def _numbers(count: int) -> list[str]:
    return [str(row) for row in range(1, count + 1)]
