"""A number for every client, of which a round changes few: copies share all but the pieces that were changed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PIECE = 1024
"""Clients to a piece."""


class PerClient:
    """A vector over clients that is never changed in place; what a change costs does not grow with the clients.

    Pieces nobody has touched are one and the same, so that a million clients cost memory when they are sampled.
    """

    def __init__(self, pieces: Sequence[Tensor], count: int) -> None:
        self._pieces, self._count = tuple(pieces), count

    @staticmethod
    def filled(count: int, value: int, dtype: torch.dtype) -> PerClient:
        """The same number for everyone."""
        return PerClient([torch.full((PIECE,), value, dtype=dtype)] * -(-count // PIECE), count)

    @staticmethod
    def of(values: Tensor) -> PerClient:
        """From a vector, which is copied."""
        return PerClient(values.detach().clone().split(PIECE), len(values))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, client: int) -> int:
        if not 0 <= client < self._count:
            raise IndexError(f"there is no client {client} of {self._count}")
        return int(self._pieces[client // PIECE][client % PIECE])

    def tensor(self) -> Tensor:
        """All numbers, as a new vector."""
        return torch.cat(self._pieces)[: self._count].clone() if self._count else torch.zeros(0, dtype=torch.int64)

    def tolist(self) -> list[int]:
        """All numbers."""
        found: list[int] = self.tensor().tolist()
        return found

    def added(self, clients: Sequence[int], more: int) -> PerClient:
        """With something added to the numbers of some clients."""
        return self._changed({client: self[client] + more for client in clients})

    def replaced(self, clients: Sequence[int], value: int) -> PerClient:
        """With another number for some clients."""
        return self._changed(dict.fromkeys(clients, value))

    def _changed(self, values: dict[int, int]) -> PerClient:
        pieces, new = list(self._pieces), set[int]()
        for client, value in values.items():
            at = client // PIECE
            if at not in new:
                pieces[at] = pieces[at].clone()
                new.add(at)
            pieces[at][client % PIECE] = value
        return PerClient(pieces, self._count)
