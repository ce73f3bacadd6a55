"""Checks of a data set before anything is made from it; every error names the data set, the column and the row."""

from __future__ import annotations

import torch
from torch import Tensor

from fedchord.check import fail, require, whole
from fedchord.data.federation import DataSet
from fedchord.tensors import Tensors


def check_data(dataset: DataSet) -> None:
    """Refuse data that cannot be trained on: no rows, labels out of range, NaN, columns that do not fit."""
    name = dataset.name
    whole(name, "classes", dataset.classes, 1)
    _check_columns(name, "", _whole(dataset), dataset.classes)
    if dataset.holdout is not None:
        _check_columns(name, "holdout ", dataset.holdout, dataset.classes)
        missing = sorted(set(dataset.columns) - set(dataset.holdout))
        require(not missing, name, f"the holdout has no column {', '.join(missing)}")
    if dataset.groups is not None:
        _check_groups(dataset, dataset.groups)
    if dataset.parts is not None:
        parts, rows = dataset.parts, len(dataset.columns["x"])
        fits = parts.shape == (rows,) and bool(((parts >= 0) & (parts <= 2)).all())
        require(fits, name, f"parts must hold 0, 1 or 2 for each of the {rows} rows")


def _whole(dataset: DataSet) -> Tensors:
    """The columns without the gaps, where they are filled (`scaled` is given)."""
    columns, scaled, name = dataset.columns, dataset.scaled, dataset.name
    if scaled is None or "x" not in columns:
        return columns
    x = columns["x"]
    fits = x.ndim == 2 and x.is_floating_point() and scaled.dtype == torch.bool and scaled.shape == x.shape[1:]
    require(fits, name, "scaled must be one bool per feature of rows that are vectors of floats")
    require(dataset.holdout is None, name, "a holdout belongs to no client and cannot be scaled")
    return {**columns, "x": torch.where(x.isnan(), 0.0, x)}


def _check_columns(name: str, part: str, columns: Tensors, classes: int) -> None:
    for needed in ("x", "y"):
        require(needed in columns, name, f"{part}column {needed} is missing (columns: {', '.join(columns)})")
    rows = len(columns["x"])
    require(rows > 0, name, f"{part}data have no rows".strip())
    for column, values in columns.items():
        require(len(values) == rows, name, f"{part}column {column} has {len(values)} rows, {part}column x has {rows}")
        if values.is_floating_point() and column != "y":
            _check_finite(name, f"{part}column {column}", values)
    _check_labels(name, part, columns["y"], classes)


def _check_finite(name: str, column: str, values: Tensor) -> None:
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        row = int((~finite).reshape(len(values), -1).any(dim=1).nonzero()[0])
        bad = values[row].reshape(-1)[~finite[row].reshape(-1)][0]
        raise fail(name, f"{column} holds {float(bad)} at row {row}")


def _check_labels(name: str, part: str, labels: Tensor, classes: int) -> None:
    if labels.dtype == torch.float32 and labels.ndim == 1 and classes == 1:
        _check_finite(name, f"{part}column y", labels)
        return
    if labels.dtype != torch.int64:
        kind = str(labels.dtype).removeprefix("torch.")
        told = "whole numbers (int64), or for regression float32 with classes=1"
        raise fail(name, f"{part}column y must hold {told}, got {kind}")
    wrong = (labels < 0) | (labels >= classes)
    if bool(wrong.any()):
        at = wrong.nonzero()[0]
        label = int(labels[tuple(at.tolist())])
        raise fail(name, f"{part}label {label} at row {int(at[0])} is out of range 0..{classes - 1}")


def _check_groups(dataset: DataSet, groups: Tensor) -> None:
    name, rows = dataset.name, len(dataset.columns["x"])
    require(groups.dtype == torch.int64 and groups.ndim == 1, name, "groups must be one int64 client number per row")
    require(len(groups) == rows, name, f"groups has {len(groups)} rows, column x has {rows}")
    known = len(dataset.group_names) or int(groups.max()) + 1
    wrong = ((groups < 0) | (groups >= known)).nonzero().flatten()
    if len(wrong):
        row = int(wrong[0])
        raise fail(name, f"client number {int(groups[row])} at row {row} is out of range 0..{known - 1}")
