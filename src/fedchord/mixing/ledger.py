"""Sums by client number, held for the clients seen so far only: a change costs what the cohort costs, not what K costs.

A ledger is two tables of two rows, client numbers and their sums: `seen`, sorted, which is passed on as it is, and
`late`, the newest entries in the order in which they came (the last one of a client counts). When `late` has grown long
it is merged into `seen`. No table that was given is changed. A client in neither has the sum 0.

A `late` made here carries an index of the whole ledger, a dictionary, as an attribute: it is handed on from one ledger
to the next, and made anew from the tables where it is not there (a ledger that was read from a file, or used twice).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedchord.tensors import Tensors

Numbers = NDArray[np.float64]
PATIENCE = 256
"""How long `late` may grow; with many clients seen, four times the square root of their number if that is more."""


def empty() -> Tensors:
    """The ledger in which nothing is written."""
    return {"seen": _none(), "late": _none()}


def add(ledger: Tensors, clients: list[int], changes: list[float]) -> tuple[list[float], Tensors]:
    """The sums of these clients (each given once) after the changes, and the ledger after them."""
    seen, late = ledger["seen"], ledger["late"]
    index: dict[int, float] | None = late.__dict__.pop("index", None)
    if index is None:
        numbers, sums = written(ledger)
        index = dict(zip(map(int, numbers.tolist()), sums.tolist(), strict=True))
    after = [index.get(client, 0.0) + change for client, change in zip(clients, changes, strict=True)]
    index.update(zip(clients, after, strict=True))
    old = late.shape[1]
    table = np.empty((2, old + len(clients)))
    table[:, :old], table[0, old:], table[1, old:] = late.numpy(), clients, after
    if table.shape[1] > max(PATIENCE, 4 * math.isqrt(seen.shape[1])):
        seen, table = torch.from_numpy(_merged(seen.numpy(), table)), np.empty((2, 0))
    late = torch.from_numpy(table)
    late.__dict__["index"] = index
    return after, {"seen": seen, "late": late}


def written(ledger: Tensors) -> Numbers:
    """Client numbers and sums of all clients seen, sorted by number."""
    return _merged(ledger["seen"].numpy(), ledger["late"].numpy())


def _none() -> Tensor:
    return torch.zeros(2, 0, dtype=torch.float64)


def _merged(seen: Numbers, late: Numbers) -> Numbers:
    """Both tables as one, sorted, with the last sum of each client."""
    both = np.concatenate((seen, late), axis=1)
    both = both.take(both[0].argsort(kind="stable"), axis=1)
    last = np.ones(len(both[0]), dtype=bool)
    last[:-1] = both[0, 1:] != both[0, :-1]
    return np.ascontiguousarray(both[:, last])
