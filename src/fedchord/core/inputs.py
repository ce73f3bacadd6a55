"""What one example looks like, for rules that make examples of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


class Block(NamedTuple):
    """A category of a table: one feature per code, of which one is high (or none, where that is a code too). A block of
    one feature is a mark that is there or not."""

    start: int
    stop: int
    none: bool = False


@dataclass(frozen=True)
class Inputs:
    """What one example looks like: its shape, the number of classes, and the range of its numbers.

    `low` and `high` are one number each, or one per feature. A rule that makes examples works in unit coordinates u,
    x = low + (high - low) u, in which every range is [0, 1]. `blocks` are the categories of a table. `observed` tells
    that the range was read off training rows; otherwise every row lies inside.
    """

    shape: tuple[int, ...]
    classes: int
    low: float | Tensor = 0.0
    high: float | Tensor = 1.0
    blocks: tuple[Block, ...] = ()
    observed: bool = False

    def from_unit(self, u: Tensor) -> Tensor:
        """x = low + (high - low) u."""
        return u if self._unit else self.low + self.span * u

    def to_unit(self, x: Tensor) -> Tensor:
        """u = (x - low) / (high - low)."""
        return x if self._unit else (x - self.low) / self.span

    def clip(self, x: Tensor) -> Tensor:
        """x within its range."""
        return torch.maximum(torch.minimum(x, torch.as_tensor(self.high)), torch.as_tensor(self.low))

    def settle(self, u: Tensor) -> Tensor:
        """Unit coordinates (rows, features) in which every category is one of its codes: the largest feature of a block
        becomes 1 (its `high`) and the others 0; where none is a code, all are 0 if the largest is below 1/2."""
        settled = u.clone()
        for start, stop, none in self.blocks:
            part = u[:, start:stop]
            best, place = part.max(1)
            one = torch.nn.functional.one_hot(place, stop - start).to(u.dtype)
            settled[:, start:stop] = torch.where((best < 0.5)[:, None], 0.0, one) if none else one
        return settled

    @property
    def span(self) -> float | Tensor:
        """high - low."""
        return self.high - self.low

    @cached_property
    def _unit(self) -> bool:
        return bool(torch.as_tensor(self.low == 0.0).all() and torch.as_tensor(self.high == 1.0).all())
