"""Visits in two pieces, so that no process waits while another has a whole client left.

Five equal clients on two processes take as long as six, one of them alone at the end. If the first half of one visit is
made before all others and the second half after them, by whichever process is free, they take as long as five. At
most as many clients are cut as there are processes, less one (McNaughton's wrap-around rule), and nothing else changes:
a visit between two steps is its trained entries, the optimiser's memory and the number of steps made.
"""

from __future__ import annotations

import heapq
import json
import math
import mmap
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedchord.core.local import Begun

GAIN = 1.03
"""Visits are cut where whole ones would take at least this many times as long."""
_HEAD = 8  # bytes that say how long the list of entries is
_STEP = 64  # where tensors begin: torch's own do so at multiples of it


class Piece(NamedTuple):
    """A client's visit by its slot in the cohort, or one end of it: up to a share of its steps, or from there on."""

    slot: int
    until: float | None = None
    since: float | None = None
    place: int = 0
    """Where a begun visit is left."""


def pieces(costs: Sequence[float], processes: int) -> list[Piece]:
    """The visits of a cohort in the order in which free processes should take them."""
    order = sorted(range(len(costs)), key=lambda slot: -costs[slot])
    height = max(sum(costs) / processes, max(costs, default=0.0))
    if processes < 2 or height <= 0 or _tallest(costs, order, processes) < GAIN * height:
        return [Piece(slot) for slot in order]
    planned, used, place = list[tuple[float, Piece]](), 0.0, 0
    for slot in order:  # processes are filled one after another to an equal height
        start, used = used, used + costs[slot]
        if used > height * (1 + 1e-9):
            used -= height  # what does not fit at the end of one process comes first in the next
            share = used / costs[slot]
            planned += [(0.0, Piece(slot, share, None, place)), (start, Piece(slot, None, share, place))]
            place += 1
        else:
            planned.append((start, Piece(slot)))
            used = 0.0 if used > height * (1 - 1e-9) else used
    return [piece for _, piece in sorted(planned, key=lambda one: one[0])]


def _tallest(costs: Sequence[float], order: list[int], processes: int) -> float:
    """When the last process would end with whole visits, the largest first."""
    ends = [0.0] * processes
    for slot in order:
        heapq.heapreplace(ends, ends[0] + costs[slot])
    return max(ends)


class Halves:
    """Places for begun visits in memory that forked processes share; pages that nobody wrote take no room."""

    def __init__(self, places: int, room: int) -> None:
        self._held = [torch.frombuffer(mmap.mmap(-1, room), dtype=torch.uint8) for _ in range(places)]

    def put(self, place: int, begun: Begun) -> bool:
        """Leave a visit for others; false where there is no room for it."""
        parts = [*begun.trained.items(), *begun.memory.items()]
        told = [(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for name, tensor in parts]
        head = json.dumps((told, len(begun.trained), begun.steps)).encode()
        held, at = self._held[place], _HEAD + len(head)
        if at + sum(_bytes(tensor) + _STEP for _, tensor in parts) > len(held):
            return False
        held[:at] = torch.frombuffer(bytearray(len(head).to_bytes(_HEAD, "little") + head), dtype=torch.uint8)
        for _, tensor in parts:
            at += -at % _STEP
            held[at : at + _bytes(tensor)] = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            at += _bytes(tensor)
        return True

    def get(self, place: int) -> Begun:
        """Go on with a visit that was left here, in its place: it is whoever gets it who may change it."""
        held = self._held[place]
        at = _HEAD + int.from_bytes(held[:_HEAD].numpy().tobytes(), "little")
        told, trained, steps = json.loads(held[_HEAD:at].numpy().tobytes())
        parts = []
        for name, kind, shape in told:
            dtype = getattr(torch, kind)
            at += -at % _STEP
            size = math.prod(shape) * dtype.itemsize
            parts.append((name, held[at : at + size].view(dtype).reshape(shape)))
            at += size
        return Begun(dict(parts[:trained]), dict(parts[trained:]), steps)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
