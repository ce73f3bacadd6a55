"""Small inputs and few classes for every model."""

from __future__ import annotations

import torch
from torch import Tensor

TINY: dict[str, tuple[tuple[int, ...], int]] = {
    "logreg": ((1, 8, 8), 3),
    "twonn": ((1, 8, 8), 3),
    "twocnn": ((1, 8, 8), 3),
    "smallconv": ((2, 9, 8), 3),
    "resnet9": ((3, 12, 8), 3),
    "resnet10": ((3, 8, 8), 3),
    "resnet18": ((1, 8, 8), 3),
    "mobilenet": ((3, 16, 16), 3),
    "mobilenet-short": ((3, 8, 8), 3),
    "vgg9": ((1, 16, 17), 3),
    "leafconv": ((3, 16, 20), 3),
    "efficientnet-b0": ((3, 64, 64), 3),
    "m5": ((1, 1_200), 3),
    "lstm-characters": ((6,), 11),
    "lstm-words": ((6,), 11),
    "lstm-words-200": ((6,), 11),
}
"""Small inputs and few classes for every model."""

BATCH_NORM = ("mobilenet", "mobilenet-short", "efficientnet-b0", "m5")
RECURRENT = tuple(name for name in TINY if name.startswith("lstm"))


def inputs(name: str, *rows: int, seed: int = 0) -> Tensor:
    """Random rows for a model: token ids for the recurrent ones, numbers in [0, 1] for the others."""
    shape, classes = TINY[name]
    generator = torch.Generator().manual_seed(seed)
    if name in RECURRENT:
        return torch.randint(classes, (*rows, *shape), generator=generator)
    return torch.rand(*rows, *shape, generator=generator)
