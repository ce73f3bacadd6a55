"""The ConvNet of LEAF's CelebA task, with GroupNorm."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from fedchord.check import require
from fedchord.models.parts import sizes

FILTERS, POOL = 32, 5


class LeafConvNet(nn.Module):
    """Four convolutions with fewer groups each time: images (n, channels, height, width) -> (n, classes).

    `body`: four times conv 3x3 (32 filters, padding 1, no bias), GroupNorm (32, 16, 8, 4 groups), max-pool 2, ReLU.
    Then the average to 5x5, flattened to 800, and the linear `head` with bias. At 84x84 the maps are 84, 42, 21, 10, 5,
    so that the average changes nothing.

    29,569 parameters for 3 channels and one logit (CelebA, smiling; Caldas et al., 2018, after the thesis' text).
    """

    def __init__(self, channels: int, size: int | tuple[int, int], classes: int = 1) -> None:
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        sizes("LeafConvNet", channels=channels, height=height, width=width, classes=classes)
        require(min(height, width) >= 16, "LeafConvNet", f"needs images of at least 16x16, got {height}x{width}")
        self.body = nn.Sequential()
        inputs = channels
        for stage, groups in enumerate((32, 16, 8, 4), 1):
            self.body.add_module(f"conv{stage}", nn.Conv2d(inputs, FILTERS, kernel_size=3, padding=1, bias=False))
            self.body.add_module(f"norm{stage}", nn.GroupNorm(groups, FILTERS))
            self.body.add_module(f"pool{stage}", nn.MaxPool2d(2))
            self.body.add_module(f"act{stage}", nn.ReLU())
            inputs = FILTERS
        self.head = nn.Linear(FILTERS * POOL * POOL, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.adaptive_avg_pool2d(self.body(x), POOL).flatten(1))
        return logits
