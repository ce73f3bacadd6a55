"""The clients' data: rows of one data set, and which client holds which rows.

All rows lie in one set of columns (`x`, `y`, masks ...), so nothing is copied per client; a client is three lists of
row numbers (train, validation, test). Images stay bytes until they are batched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedchord.check import one_of, require
from fedchord.tensors import Tensors


@dataclass(frozen=True)
class Ragged:
    """Lists of row numbers of different lengths, one per client, in two flat tensors."""

    rows: Tensor
    offsets: Tensor

    @staticmethod
    def of(lists: Iterable[Tensor]) -> Ragged:
        """From one row-number tensor per client."""
        parts = [torch.as_tensor(part, dtype=torch.int64) for part in lists]
        lengths = torch.tensor([0] + [len(part) for part in parts], dtype=torch.int64)
        rows = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
        return Ragged(rows, torch.cumsum(lengths, 0))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def _bounds(self) -> Any:
        """The offsets as a NumPy array, which gives single numbers ten times faster."""
        return self.offsets.cpu().numpy()

    def __getitem__(self, client: int) -> Tensor:
        return self.rows[self._bounds[client] : self._bounds[client + 1]]

    @property
    def sizes(self) -> Tensor:
        """How many rows each client has."""
        return self.offsets[1:] - self.offsets[:-1]


@dataclass(frozen=True)
class DataSet:
    """Rows before they are given to clients; what a source returns.

    `groups` holds a client number per row where the data have natural clients (a writer, a hospital), named by
    `group_names`. `holdout` is the official test part, kept apart from the clients. `scaled` marks the features (of
    rows that are vectors) that every client standardises with its own training rows; NaN is a missing value there.
    `parts` tells, for data that come with a split of every client's rows, the part of each row: 0 training, 1
    validation, 2 test.
    """

    name: str
    columns: Tensors
    classes: int
    groups: Tensor | None = None
    group_names: tuple[str, ...] = ()
    holdout: Tensors | None = None
    origin: str = ""
    scaled: Tensor | None = None
    parts: Tensor | None = None


@dataclass(frozen=True)
class Federation:
    """K clients with their training, validation and test rows."""

    name: str
    columns: Tensors
    classes: int
    train: Ragged
    validation: Ragged
    test: Ragged
    client_names: tuple[str, ...]
    holdout: Tensors | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def num_clients(self) -> int:
        return len(self.train)

    def part(self, split: str) -> Ragged:
        """The rows of one split by its name: train, validation or test."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return parts[one_of("evaluate", "split", split, parts)]

    def only(self, clients: Sequence[int]) -> Federation:
        """Some of the clients, numbered anew from 0 in the given order; names stay, and the rows are shared."""
        for client in clients:
            require(0 <= client < self.num_clients, self.name, f"there is no client {client}")
        require(len(clients) > 0, self.name, "a federation needs at least one client")
        require(len(set(clients)) == len(clients), self.name, "a client is named twice")
        train, validation, test = (
            Ragged.of(part[client] for client in clients) for part in (self.train, self.validation, self.test)
        )
        names = tuple(self.client_names[client] for client in clients)
        return replace(self, train=train, validation=validation, test=test, client_names=names)

    def batch(self, rows: Tensor) -> Tensors:
        """The columns of some rows, ready for a model."""
        return prepare({name: column.index_select(0, rows) for name, column in self.columns.items()})

    @cached_property
    def row_bytes(self) -> int:
        """How many bytes a row takes once it is ready for a model."""
        return sum(4 * column[:1].numel() for column in self.columns.values())


def prepare(batch: Tensors) -> Tensors:
    """Stored numbers to what a model takes: bytes to float32 in [0, 1], 16-bit sound to float32 in [-1, 1), other short
    whole numbers (letters and words) to int64."""
    return {name: _ready(column) for name, column in batch.items()}


def _ready(column: Tensor) -> Tensor:
    if column.dtype == torch.uint8:
        return column.to(torch.float32).mul_(1 / 255)
    if column.dtype == torch.int16:
        return column.to(torch.float32).mul_(1 / 32768)
    return column.to(torch.int64) if column.dtype in (torch.int8, torch.int32) else column
