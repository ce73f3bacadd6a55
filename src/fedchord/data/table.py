"""A table with named columns, such as a csv file or a pandas DataFrame, as a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedchord.check import one_of, require, unknown
from fedchord.data.features import Column, Feature, Place, as_column, blocks_of, encode, infer, numbers
from fedchord.data.federation import DataSet
from fedchord.data.labels import answers, told
from fedchord.data.validate import check_data

SCALES = ("client", "none")


def from_table(
    columns: Any,
    label: str | None = None,
    client: str | None = None,
    *,
    target: str | None = None,
    drop: Sequence[str] = (),
    category: Sequence[str] = (),
    scale: str = "client",
    classes: Sequence[str] | None = None,
    features: Sequence[Feature] | None = None,
    name: str = "table",
    origin: str = "",
    place: Place = "row {}".format,
) -> DataSet:
    """A data set from named columns: a pandas DataFrame, or a dict from names to arrays.

    `label` names the column of classes (words, or whole numbers), or `target` that of numbers to predict (regression);
    `client` the column of client keys, where there is one; `drop` columns to leave out. All others are features:
    numbers, or categories where they hold words or are named in `category`, which become one feature per word. With
    `scale="client"` numbers are scaled by each client with its own training rows; missing values are filled by the mean
    of these rows either way. Class c is the c-th word in sorted order, or of `classes` if given; `features` (of another
    data set) fixes what the columns are, so that several tables agree.
    """
    one_of(name, "scale", scale, SCALES)
    table = _columns(name, columns)
    found = answers(name, table, label, target, client, classes, place)
    taken = {label or target, client}
    for column in (*drop, *category):
        if column not in table:
            raise unknown(f"column of {name}", column, table)
        require(column not in taken, name, f"column {column!r} is the label or the client, and no feature")
    rest = {column: cells for column, cells in table.items() if column not in taken and column not in drop}
    require(bool(rest), name, "has no feature column")
    known = infer(name, rest, category, place) if features is None else tuple(features)
    encoded = encode(name, known, rest, place)
    dataset = DataSet(
        name,
        {"x": torch.from_numpy(encoded.x), "y": found.y},
        found.classes,
        found.groups,
        found.group_names,
        origin=_told(origin, found.class_names, encoded.unseen, _counters(rest, known) if features is None else []),
        scaled=_scaled(known, scale),
        blocks=blocks_of(known),
        class_names=found.class_names,
        features=known,
    )
    check_data(dataset)
    return dataset


def _columns(name: str, columns: Any) -> dict[str, Column]:
    """Every column by its name, all of one length."""
    mapping = isinstance(columns, Mapping) or (hasattr(columns, "columns") and hasattr(columns, "__getitem__"))
    require(mapping, name, f"needs a DataFrame or a dict of columns, got {type(columns).__name__}")
    names = list(columns if isinstance(columns, Mapping) else columns.columns)
    require(bool(names), name, "has no columns")
    found: dict[str, Column] = {}
    for key in names:
        column = str(key).strip()
        require(column not in found, name, f"column {column!r} occurs twice")
        found[column] = as_column(name, column, columns[key])
    rows = {column: len(cells) for column, cells in found.items()}
    first = next(iter(rows))
    for column, count in rows.items():
        require(count == rows[first], name, f"column {column!r} has {count} rows, column {first!r} has {rows[first]}")
    require(rows[first] > 0, name, "data have no rows")
    return found


def _scaled(features: Sequence[Feature], scale: str) -> Tensor:
    """Which features are scaled: the numbers, where that is asked for."""
    marks = [scale == "client" and not feature.categories for feature in features for _ in range(feature.width)]
    return torch.tensor(marks, dtype=torch.bool)


def _told(origin: str, names: Sequence[str], unseen: Mapping[str, int], counters: Sequence[str]) -> str:
    parts = [origin.rstrip("."), told(names) if names else ""]
    parts += [f"column {column!r} counts the rows (data.drop={column} leaves it out)" for column in counters]
    parts += [f"{count} cells of {column} hold an unknown word" for column, count in unseen.items()]
    found = "; ".join(part for part in parts if part)
    return f"{found}." if found else ""


def _counters(columns: Mapping[str, Column], features: Sequence[Feature]) -> list[str]:
    """Columns that count the rows: numbers of the rows, which tell nothing about them."""
    found = []
    for feature in features:
        values = None if feature.categories else numbers(columns[feature.name])
        if values is not None and len(values) > 2 and bool((np.diff(values) == 1).all()):
            found.append(feature.name)
    return found
