"""Rows that come after training, treated as the training rows were: the same features, scaled alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedchord.check import fail, require
from fedchord.data.features import as_column, encode
from fedchord.data.federation import Federation
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Rows:
    """Rows in the form they are stored in before they are scaled, and words of categories that training never met."""

    x: Tensor
    unseen: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.x)


def rows_of(federation: Federation, given: Any, owner: str = "predict") -> Rows:
    """Rows from arrays of the federation's shape, or, for a table, from named columns (a DataFrame, a dict of arrays).

    Columns beyond the features are not looked at.
    """
    if isinstance(given, Rows):
        return given
    named = isinstance(given, Mapping) or hasattr(given, "columns")
    if not named:
        x = federation.columns["x"]
        return Rows(stored(owner, given, tuple(x.shape[1:]), x.dtype, federation.scaling is not None))
    require(bool(federation.features), owner, f"{federation.name} has no named columns; give an array")
    names = list(given if isinstance(given, Mapping) else given.columns)
    columns = {str(name).strip(): as_column(owner, str(name), given[name]) for name in names}
    found = encode(owner, federation.features, columns, "row {}".format)
    return Rows(torch.from_numpy(found.x), found.unseen)


def stored(owner: str, given: Any, shape: tuple[int, ...], kind: torch.dtype, scaled: bool) -> Tensor:
    """An array (n, ...) as rows of a shape are kept: in float64 where they are to be scaled, else in the type of the
    training rows."""
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    require(array.dtype.kind in "biuf", owner, f"rows must hold numbers, got an array of {array.dtype}")
    fits = array.ndim == len(shape) + 1 and tuple(array.shape[1:]) == shape
    require(fits, owner, f"rows must have shape (n, {', '.join(map(str, shape))}), got {array.shape}")
    if scaled:
        return torch.from_numpy(array.astype(np.float64))
    values = torch.from_numpy(np.ascontiguousarray(array))
    if not values.is_floating_point() or kind.is_floating_point:
        return values.to(kind)
    raise fail(owner, f"rows must be {str(kind).removeprefix('torch.')} as in training, got {array.dtype}")


def prepared(federation: Federation, rows: Rows, client: int | None, known: Rows | None = None) -> tuple[Tensors, str]:
    """New rows ready for a model, and by what they were scaled ("" where nothing is): a known client's statistics, or
    those of a new client (`known` are rows of its own that came with labels)."""
    x, by = rows.x, ""
    if federation.scaling is not None:
        if client is not None:
            x, by = federation.scaling.rows(x, client), f"the training rows of client {federation.client_names[client]}"
        else:
            x, by = federation.scaling.newcomer(x, None if known is None else known.x)
    return federation.ready({"x": x}), by
