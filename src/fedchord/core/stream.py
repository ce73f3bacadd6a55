"""One client's training examples, as the loop reads them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from torch import Tensor

from fedchord import check, rng
from fedchord.core.objective import Batch
from fedchord.core.rules import Phase

BLOCK_BYTES = 16 << 20
"""How many bytes of examples are gathered at a time."""
VARIED = 1
"""The fold of an epoch's key that training pictures are varied by."""


class Rows(Protocol):
    """Row numbers by client."""

    def __getitem__(self, client: int, /) -> Tensor: ...


class Examples(Protocol):
    """What a stream reads: rows by client, and their columns (a `Federation`)."""

    @property
    def name(self) -> str: ...
    @property
    def client_names(self) -> Sequence[str]: ...
    @property
    def train(self) -> Rows: ...
    @property
    def row_bytes(self) -> int: ...
    def batch(self, rows: Tensor, key: int | None = None) -> Batch:
        """The columns of some rows, ready for a model; with a key they may be varied."""


class Stream(Protocol):
    """One client's training examples, as the loop reads them."""

    @property
    def size(self) -> int | Tensor:
        """How many examples there are."""

    def steps(self, phase: Phase) -> int | Tensor:
        """How many batches a phase has."""

    def batches(self, index: int, phase: Phase) -> Iterator[Batch]:
        """The batches of the phase with this index."""

    def whole(self) -> Iterator[Batch]:
        """All examples once, in order, in large pieces."""


class ClientStream:
    """The examples of one client of a federation: shuffled anew in every epoch, gathered in blocks, then sliced.

    The last batch of an epoch may be short; one below `least` rows is left out of that epoch. With `rows` it is these
    that are read in place of the client's own.
    """

    def __init__(
        self, federation: Examples, client: int, batch: int, key: int, least: int = 1, rows: Tensor | None = None
    ) -> None:
        self._federation, self._key = federation, key
        self._rows = federation.train[client] if rows is None else rows
        self.size = len(self._rows)
        self.batch = batch or max(self.size, 1)
        short = self.size % self.batch
        self._used = self.size - short if 0 < short < least else self.size
        if self.size and not self._used:
            name = federation.client_names[client]
            raise check.fail(
                federation.name, f"{name} has {self.size} training row; BatchNorm needs {least}: use GroupNorm"
            )
        self._per_epoch = math.ceil(self._used / self.batch)
        self._block = max(1, BLOCK_BYTES // max(1, federation.row_bytes * self.batch)) * self.batch

    def steps(self, phase: Phase) -> int:
        """How many batches a phase has."""
        return phase.steps if phase.steps is not None else phase.epochs * self._per_epoch

    def order(self, index: int, phase: Phase) -> Iterator[Tensor]:
        """The row numbers of each epoch of a phase, in their shuffled order."""
        return (rows for _, rows in self._epochs(index, phase))

    def _epochs(self, index: int, phase: Phase, piece: slice | None = None) -> Iterator[tuple[int, Tensor]]:
        """The epochs of a phase with their row numbers, or those of these batches."""
        key, per = rng.fold(self._key, index), self._per_epoch
        steps = self.steps(phase) if per else 0
        for epoch in range(math.ceil(steps / max(per, 1))):
            first = epoch * per
            if piece is None or (first < piece.stop and first + per > piece.start):
                order = rng.permutation(rng.fold(key, epoch), self.size)
                rows = self._rows.index_select(0, order[: min(self._used, (steps - first) * self.batch)])
                if piece is not None:
                    rows = rows[max(piece.start - first, 0) * self.batch : (piece.stop - first) * self.batch]
                yield epoch, rows

    def blocks(self, index: int, phase: Phase, piece: slice | None = None) -> Iterator[Batch]:
        """The rows of a phase in blocks of whole batches; only the last batch of an epoch may be short.

        With `piece` only those of its batches with these numbers.
        """
        for epoch, rows in self._epochs(index, phase, piece):
            key = rng.fold(rng.fold(rng.fold(self._key, index), epoch), VARIED)
            assert isinstance(key, int)
            for start in range(0, len(rows), self._block):
                yield self._federation.batch(rows[start : start + self._block], key)

    def batches(self, index: int, phase: Phase, piece: slice | None = None) -> Iterator[Batch]:
        """The batches of a phase, or those with these numbers."""
        for block in self.blocks(index, phase, piece):
            for first in range(0, len(block["y"]), self.batch):
                yield {name: column[first : first + self.batch] for name, column in block.items()}

    def whole(self) -> Iterator[Batch]:
        """All examples once, in order, in large pieces."""
        for start in range(0, self.size, self._block):
            yield self._federation.batch(self._rows[start : start + self._block])
