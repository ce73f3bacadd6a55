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
from fedchord.models.own import build_own, check_own, own_arguments
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
    "Recipe",
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
    "own_arguments",
    "recipe",
]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Recipe:
    """A network before it is built: its class, or a function that makes it, and the arguments."""

    kind: Callable[..., nn.Module]
    arguments: Mapping[str, Any]

    def build(self) -> nn.Module:
        """The network, its weights drawn from torch's global generator."""
        return self.kind(**self.arguments)


Make = Callable[..., Recipe]


@dataclass(frozen=True)
class Entry:
    """How a model is made from a shape and a number of classes, and a shape and number to show it with.

    One that `bends` also takes a width, an activation and a spectral head by name.
    """

    make: Make
    shape: Shape = (1, 28, 28)
    classes: int = 10
    bends: bool = False


def _logreg(shape: Shape, classes: int) -> Recipe:
    return Recipe(LogisticRegression, {"inputs": math.prod(shape), "classes": classes})


def _twonn(shape: Shape, classes: int) -> Recipe:
    return Recipe(TwoNN, {"inputs": math.prod(shape), "classes": classes})


def _sided(kind: Callable[..., nn.Module], name: str) -> Make:
    """A network whose layers depend on the sides of its images."""

    def make(shape: Shape, classes: int, **options: Any) -> Recipe:
        channels, height, width = image(name, shape)
        return Recipe(kind, {"channels": channels, "size": (height, width), "classes": classes, **options})

    return make


def _resnet(depth: int) -> Make:
    def make(shape: Shape, classes: int, **options: Any) -> Recipe:
        channels = image("ResNet", shape)[0]
        return Recipe(ResNet, {"channels": channels, "classes": classes, "depth": depth, **options})

    return make


def _mobilenet(plan: str) -> Make:
    def make(shape: Shape, classes: int) -> Recipe:
        return Recipe(MobileNet, {"channels": image("MobileNet", shape)[0], "classes": classes, "plan": plan})

    return make


def _efficientnet(shape: Shape, classes: int, weights: str | None = None) -> Recipe:
    given = {} if weights is None else {"weights": weights}
    return Recipe(EfficientNetB0, {"classes": classes, "channels": image("EfficientNetB0", shape)[0], **given})


def _m5(shape: Shape, classes: int) -> Recipe:
    samples(shape)
    return Recipe(M5, {"classes": classes})


def _lstm(embedding: int, steps: str) -> Make:
    """The vocabulary is the classes: the next token is one of the tokens."""

    def make(shape: Shape, classes: int) -> Recipe:
        require(len(shape) == 1, "StackedLSTM", f"needs token ids of shape (length,), got {shape}")
        sizes = {"vocabulary": classes, "classes": classes, "embedding": embedding}
        return Recipe(StackedLSTM, {**sizes, "steps": steps})

    return make


def _encoder(pool: str) -> Make:
    def make(shape: Shape, classes: int, folder: str) -> Recipe:
        require(len(shape) == 1, "TextEncoder", f"needs token ids of shape (length,), got {shape}")
        return Recipe(TextEncoder, {"folder": folder, "classes": classes, "pool": pool})

    return make


MODELS: dict[str, Entry] = {
    "logreg": Entry(_logreg),
    "twonn": Entry(_twonn),
    "twocnn": Entry(_sided(TwoCNN, "TwoCNN")),
    "smallconv": Entry(_sided(SmallConvNet, "SmallConvNet"), bends=True),
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

PRETRAINED: dict[str, Make] = {
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
    return recipe(name, shape, classes, options).build()


def recipe(name: str, shape: Shape, classes: int, options: Mapping[str, Any] | None = None) -> Recipe:
    """The class and the arguments that `build` builds."""
    check_name(name)
    sides = tuple(int(side) for side in shape)
    if not sides or min(sides) < 1:
        raise fail(name, f"shape must be sides of at least 1, got {sides}")
    whole(name, "classes", classes, low=1)
    kind, colon, path = name.partition(":")
    width = {"width": int(path)} if colon and path.isdecimal() else {}
    if kind in GENERATIVE:
        return Recipe(GENERATIVE[kind], {"shape": sides, "classes": classes, **width})
    if kind in MODELS and MODELS[kind].bends:
        return MODELS[kind].make(sides, classes, **width, **(options or {}))
    return PRETRAINED[kind](sides, classes, path) if colon else MODELS[name].make(sides, classes)
