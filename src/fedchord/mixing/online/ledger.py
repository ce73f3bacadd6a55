"""Sums by client number, held for the clients seen so far only: a change costs what the cohort costs, not what K costs.

A ledger is two tables of two rows, client numbers and their sums: `seen`, sorted, which is passed on as it is, and
`late`, the newest entries in the order in which they came (the last one of a client counts). When `late` has grown long
it is merged into `seen`. No table that was given is changed. A client in neither has the sum 0.

The tables are searched in microseconds. Ledgers that follow one another from an empty one share a dictionary besides,
which is quicker still and holds the sums of the newest of them: `late` carries it, with the number of the ledger in
that line. An older ledger finds the line gone on without it, and is searched; so is one that was read from a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from operator import add as plus

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedchord.tensors import Tensors

Numbers = NDArray[np.float64]
PATIENCE = 256
"""How long `late` may grow; with many clients seen, four times the square root of their number if that is more."""


@dataclass(eq=False)
class _Line:
    """The sums of the newest of the ledgers that follow one another, and how many there are."""

    sums: dict[int, float] = field(default_factory=dict)
    ledgers: int = 0


def empty() -> Tensors:
    """The ledger in which nothing is written."""
    return {"seen": _none(), "late": _none()}


def sums(ledger: Tensors, clients: list[int]) -> list[float]:
    """The sums of these clients, each given once."""
    line = _line(ledger)
    return _searched(ledger, clients) if line is None else [line.sums.get(client, 0.0) for client in clients]


def add(ledger: Tensors, clients: list[int], changes: list[float]) -> tuple[list[float], Tensors]:
    """The sums of these clients (each given once) after the changes, and the ledger after them."""
    seen, late, line = ledger["seen"], ledger["late"], _line(ledger)
    if line is None:
        after = list(map(plus, _searched(ledger, clients), changes))
    else:
        held = line.sums
        after = [held.get(client, 0.0) + change for client, change in zip(clients, changes, strict=True)]
        held.update(zip(clients, after, strict=True))
        line.ledgers += 1
    old = late.shape[1]
    table = np.empty((2, old + len(clients)))
    table[:, :old], table[0, old:], table[1, old:] = late.numpy(), clients, after
    if table.shape[1] > max(PATIENCE, 4 * math.isqrt(seen.shape[1])):
        seen, table = torch.from_numpy(_merged(seen.numpy(), table)), np.empty((2, 0))
    late = torch.from_numpy(table)
    if line is not None:
        late.__dict__["line"] = line, line.ledgers
    return after, {"seen": seen, "late": late}


def written(ledger: Tensors) -> Numbers:
    """Client numbers and sums of all clients seen, sorted by number."""
    return _merged(ledger["seen"].numpy(), ledger["late"].numpy())


def _none() -> Tensor:
    return torch.zeros(2, 0, dtype=torch.float64)


def _line(ledger: Tensors) -> _Line | None:
    """The line whose newest ledger this is; a new one for an empty ledger."""
    late = ledger["late"]
    line, number = late.__dict__.get("line", (None, 0))
    if line is not None and line.ledgers == number:
        found: _Line = line
        return found
    return None if late.shape[1] or ledger["seen"].shape[1] else _Line()


def _searched(ledger: Tensors, clients: list[int]) -> list[float]:
    """The sums of these clients from the tables: by halving in `seen`, then by one look through `late`."""
    (numbers, values), (later, newer) = ledger["seen"].numpy(), ledger["late"].numpy()
    wanted = np.array(clients, dtype=np.float64)
    found = np.zeros(len(wanted))
    if len(numbers):
        at = numbers.searchsorted(wanted).clip(max=len(numbers) - 1)
        found = np.where(numbers[at] == wanted, values[at], 0.0)
    order = wanted.argsort()
    at = order[wanted[order].searchsorted(later).clip(max=len(wanted) - 1)]
    hits = (wanted[at] == later).nonzero()[0]
    found[at[hits]] = newer[hits]  # of several entries of a client the last one stays
    read: list[float] = found.tolist()
    return read


def _merged(seen: Numbers, late: Numbers) -> Numbers:
    """Both tables as one, sorted, with the last sum of each client."""
    both = np.concatenate((seen, late), axis=1)
    both = both.take(both[0].argsort(kind="stable"), axis=1)
    last = np.ones(len(both[0]), dtype=bool)
    last[:-1] = both[0, 1:] != both[0, :-1]
    return np.ascontiguousarray(both[:, last])
