"""What takes the place of the weighted sum where single numbers are not trusted: median and trimmed mean by coordinate.

Both look at single uploads, which a server that only sums cannot do; and neither has a place for weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fedchord import check
from fedchord.core.round import Combine
from fedchord.core.rules import Algorithm
from fedchord.mixing.static import BySize, Uniform
from fedchord.tensors import weighted_sum

COMBINES = ("mean", "median", "trimmed")
TRIM = 0.2
"""The share of the uploads that is cut off at each end unless it is said."""
BLOCK = 1 << 20
"""So many numbers of an upload are sorted at a time."""


def trimmed(stacked: Tensor, cut: int) -> Tensor:
    """The mean, coordinate by coordinate, of all but the `cut` lowest and the `cut` highest rows."""
    rows = stacked.shape[0]
    equal = torch.full((rows - 2 * cut,), 1 / (rows - 2 * cut), dtype=torch.float64, device=stacked.device)
    parts = stacked.reshape(rows, -1).split(BLOCK, dim=1)
    middle = [weighted_sum(equal, part.sort(0).values[cut : rows - cut]) for part in parts]
    return torch.cat(middle).reshape(stacked.shape[1:]) if middle else stacked[0]


def median(coefficients: Tensor, stacked: Tensor) -> Tensor:
    """The median of each coordinate, for an even number of rows the mean of the two in the middle."""
    return trimmed(stacked, (stacked.shape[0] - 1) // 2)


@final
@dataclass(frozen=True)
class Trimmed:
    """The mean of each coordinate without the floor(trim n) lowest and as many highest of n rows."""

    trim: float = TRIM

    def __post_init__(self) -> None:
        check.below("run", "combine.trim", self.trim, 0.5)

    def __call__(self, coefficients: Tensor, stacked: Tensor) -> Tensor:
        return trimmed(stacked, math.floor(self.trim * stacked.shape[0] + 1e-9))


def combiner(name: str, trim: float = TRIM) -> Combine:
    """How uploads are combined, by name."""
    if name not in COMBINES:
        raise check.unknown("combine", name, COMBINES)
    known: dict[str, Combine] = {"mean": weighted_sum, "median": median, "trimmed": Trimmed(trim)}
    return known[name]


def check_combine(name: str, algorithm: Algorithm) -> None:
    """Refuse to combine otherwise than by a sum where that would mean nothing."""
    if name == "mean":
        return
    asked, client = f"combine={name}", type(algorithm.client).__name__
    models = "theta" in algorithm.client.sends
    sent = " and ".join(algorithm.client.sends) or "nothing"
    told = (
        f"{client} sends {sent}, which mean something as sums only"
        if algorithm.client.sends
        else f"{client} sends {sent}"
    )
    check.require(models, "run", f"{asked} is for uploads that are models; {told}")
    static = isinstance(algorithm.mixing, BySize | Uniform)
    rule = type(algorithm.mixing).__name__
    check.require(
        static, "run", f"{asked} has no place for weights, and {rule} makes some; use mixing=by-size or uniform"
    )
