"""Plain `nn.Module`s by name, each built from the shape of one input and the number of classes.

The last layer of every model is called `head`. Building draws the initial parameters (PyTorch's default initialisation)
from torch's global generator; the caller seeds it (`fedchord.rng.seeded`). Weights read from a file or a folder stay as
they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedchord.check import fail, require, unknown, whole
from fedchord.models.conv import TwoCNN
from fedchord.models.efficientnet import EfficientNetB0
from fedchord.models.encoder import TextEncoder, masked
from fedchord.models.generative import Cgan, Cvae
from fedchord.models.leafconv import LeafConvNet
from fedchord.models.linear import LogisticRegression, TwoNN
from fedchord.models.lstm import StackedLSTM
from fedchord.models.mobilenet import MobileNet
from fedchord.models.own import build_own, check_own
from fedchord.models.parts import image
from fedchord.models.resnet import ResNet
from fedchord.models.small import SmallConvNet
from fedchord.models.speech import M5, samples
from fedchord.models.vgg import VGG9
from fedchord.plugins import installed

__all__ = [
    "GENERATIVE",
    "M5",
    "MODELS",
    "VGG9",
    "Cgan",
    "Cvae",
    "EfficientNetB0",
    "Entry",
    "LeafConvNet",
    "LogisticRegression",
    "MobileNet",
    "ResNet",
    "SmallConvNet",
    "StackedLSTM",
    "TextEncoder",
    "TwoCNN",
    "TwoNN",
    "build",
    "build_own",
    "check_name",
    "check_own",
    "masked",
]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """How a model is built from a shape and a number of classes, and a shape and number to show it with.

    One that `bends` also takes a width, an activation and a spectral head by name.
    """

    make: Callable[..., nn.Module]
    shape: Shape = (1, 28, 28)
    classes: int = 10
    bends: bool = False


def _logreg(shape: Shape, classes: int) -> nn.Module:
    return LogisticRegression(math.prod(shape), classes)


def _twonn(shape: Shape, classes: int) -> nn.Module:
    return TwoNN(math.prod(shape), classes=classes)


def _sided(kind: Callable[[int, tuple[int, int], int], nn.Module], name: str) -> Callable[[Shape, int], nn.Module]:
    """A network whose layers depend on the sides of its images."""

    def make(shape: Shape, classes: int) -> nn.Module:
        channels, height, width = image(name, shape)
        return kind(channels, (height, width), classes)

    return make


def _small(shape: Shape, classes: int, **options: Any) -> nn.Module:
    channels, height, width = image("SmallConvNet", shape)
    return SmallConvNet(channels, (height, width), classes, **options)


def _resnet(depth: int) -> Callable[..., nn.Module]:
    return lambda shape, classes, **options: ResNet(image("ResNet", shape)[0], classes, depth, **options)


def _mobilenet(plan: str) -> Callable[[Shape, int], nn.Module]:
    return lambda shape, classes: MobileNet(image("MobileNet", shape)[0], classes, plan)


def _efficientnet(shape: Shape, classes: int, weights: str | None = None) -> nn.Module:
    return EfficientNetB0(classes, image("EfficientNetB0", shape)[0], weights=weights)


def _m5(shape: Shape, classes: int) -> nn.Module:
    samples(shape)
    return M5(classes)


def _lstm(embedding: int, steps: str) -> Callable[[Shape, int], nn.Module]:
    """The vocabulary is the classes: the next token is one of the tokens."""

    def make(shape: Shape, classes: int) -> nn.Module:
        require(len(shape) == 1, "StackedLSTM", f"needs token ids of shape (length,), got {shape}")
        return StackedLSTM(classes, classes, embedding, steps=steps)

    return make


def _encoder(pool: str) -> Callable[[Shape, int, str], nn.Module]:
    def make(shape: Shape, classes: int, folder: str) -> nn.Module:
        require(len(shape) == 1, "TextEncoder", f"needs token ids of shape (length,), got {shape}")
        return TextEncoder(folder, classes, pool)

    return make


MODELS: dict[str, Entry] = {
    "logreg": Entry(_logreg),
    "twonn": Entry(_twonn),
    "twocnn": Entry(_sided(TwoCNN, "TwoCNN")),
    "smallconv": Entry(_small, bends=True),
    "resnet9": Entry(_resnet(9), (3, 32, 32), 100, bends=True),
    "resnet10": Entry(_resnet(10), (3, 32, 32), bends=True),
    "resnet18": Entry(_resnet(18), (3, 32, 32), bends=True),
    "mobilenet": Entry(_mobilenet("full"), (3, 64, 64), 200),
    "mobilenet-short": Entry(_mobilenet("short"), (3, 64, 64), 200),
    "vgg9": Entry(_sided(VGG9, "VGG9"), (1, 28, 28), 62),
    "leafconv": Entry(_sided(LeafConvNet, "LeafConvNet"), (3, 84, 84), 1),
    "efficientnet-b0": Entry(_efficientnet, (3, 200, 200), 8),
    "m5": Entry(_m5, (16_000,), 35),
    "lstm-characters": Entry(_lstm(8, "last"), (80,), 80),
    "lstm-words": Entry(_lstm(256, "all"), (10,), 10_000),
    "lstm-words-200": Entry(_lstm(200, "all"), (10,), 10_000),
}

PRETRAINED: dict[str, Callable[[Shape, int, str], nn.Module]] = {
    "efficientnet-b0": _efficientnet,
    "encoder": _encoder("first"),
    "encoder-mean": _encoder("mean"),
}
"""Models that take weights from a path: `efficientnet-b0:FILE`, `encoder:FOLDER` (the first token's vector, as in the
thesis) and `encoder-mean:FOLDER` (the mean over tokens)."""

GENERATIVE: dict[str, Callable[..., nn.Module]] = {"cvae": Cvae, "cgan": Cgan}
"""Networks that draw examples of a class, for the methods that train them; a width may follow: `cvae:64`."""


def check_name(name: str) -> None:
    """Refuse a name that is neither a model nor a model with a path or a width."""
    kind, colon, path = name.partition(":")
    if kind in GENERATIVE or (kind in MODELS and MODELS[kind].bends):
        require(not colon or path.isdecimal(), kind, f"a width must follow the colon, got {path!r}")
        return
    if kind not in (PRETRAINED if colon else MODELS):
        named = [*MODELS, *(f"{other}:PATH" for other in PRETRAINED), *GENERATIVE, *installed("model")]
        raise unknown("model", name, named)
    require(not colon or bool(path), kind, "a path must follow the colon, got nothing")


def build(name: str, shape: Shape, classes: int, options: Mapping[str, Any] | None = None) -> nn.Module:
    """A model by its name, for inputs of a shape (without the batch) and a number of classes (1: one binary logit).

    `options` (activation, spectral) reach the models that take them; `smallconv:8` and `resnet10:16` name a width.

    `efficientnet-b0:FILE` and `encoder:FOLDER` read pretrained weights.
    """
    check_name(name)
    sides = tuple(int(side) for side in shape)
    if not sides or min(sides) < 1:
        raise fail(name, f"shape must be sides of at least 1, got {sides}")
    whole(name, "classes", classes, low=1)
    kind, colon, path = name.partition(":")
    if kind in GENERATIVE:
        return GENERATIVE[kind](sides, classes, **({"width": int(path)} if colon else {}))
    if kind in MODELS and MODELS[kind].bends:
        return MODELS[kind].make(sides, classes, **({"width": int(path)} if colon else {}), **(options or {}))
    return PRETRAINED[kind](sides, classes, path) if colon else MODELS[name].make(sides, classes)
