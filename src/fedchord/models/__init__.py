"""Plain `nn.Module`s by name, each built from the shape of one input and the number of classes.

The last layer of every model is called `head`. Building draws the initial parameters (PyTorch's default initialisation)
from torch's global generator; the caller seeds it (`fedchord.rng.seeded`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

from fedchord.check import fail, unknown, whole
from fedchord.models.conv import TwoCNN
from fedchord.models.linear import LogisticRegression, TwoNN

__all__ = ["MODELS", "LogisticRegression", "TwoCNN", "TwoNN", "build"]


def _logreg(shape: tuple[int, ...], classes: int) -> nn.Module:
    return LogisticRegression(math.prod(shape), classes)


def _twonn(shape: tuple[int, ...], classes: int) -> nn.Module:
    return TwoNN(math.prod(shape), classes=classes)


def _twocnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    if len(shape) != 3:
        raise fail("TwoCNN", f"needs images of shape (channels, height, width), got {shape}")
    channels, height, width = shape
    return TwoCNN(channels, (height, width), classes)


MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "logreg": _logreg,
    "twonn": _twonn,
    "twocnn": _twocnn,
}


def build(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model by its name, for inputs of a shape (without the batch) and a number of classes (1: one binary logit)."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    sides = tuple(int(side) for side in shape)
    if not sides or min(sides) < 1:
        raise fail(name, f"shape must be sides of at least 1, got {sides}")
    whole(name, "classes", classes, low=1)
    return MODELS[name](sides, classes)
