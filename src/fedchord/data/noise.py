"""Label noise: wrong labels with a known transition matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import between, one_of, require, whole

KINDS = ("pair", "symmetric")


def transition(kind: str, rate: float, classes: int) -> Tensor:
    """The row-stochastic matrix T[i, j] = P(given label j | true label i) (thesis, chapter 2).

    With the rate e and N classes, T[i, i] = 1 - e, and off the diagonal `pair` has T[i, (i + 1) mod N] = e and
    `symmetric` has T[i, j] = e / (N - 1).
    """
    _check(kind, rate, classes)
    keep = torch.eye(classes, dtype=torch.float64)
    flip = keep.roll(1, dims=1) if kind == "pair" else (1.0 - keep) / (classes - 1)
    return (1.0 - rate) * keep + rate * flip


def corrupt(labels: Tensor, kind: str, rate: float, classes: int, key: int) -> Tensor:
    """New labels, each drawn independently from its row of the transition matrix; the given ones stay as they are.

    A label is flipped if u < e; it then moves on by 1 (`pair`) or by 1, ..., N - 1 with equal chances (`symmetric`).
    """
    _check(kind, rate, classes)
    flipped = rng.uniform(rng.fold(key, 0), len(labels)) < rate
    step = torch.ones_like(labels)
    if kind == "symmetric":
        step += (rng.uniform(rng.fold(key, 1), len(labels)).double() * (classes - 1)).to(labels.dtype)
    return torch.where(flipped, (labels + step) % classes, labels)


def _check(kind: str, rate: float, classes: int) -> None:
    one_of("noise", "kind", kind, KINDS)
    between("noise", "rate", rate, 0.0, 1.0)
    whole("noise", "classes", classes, 1)
    require(classes >= 2, "noise", f"label noise needs at least 2 classes, got {classes}")
