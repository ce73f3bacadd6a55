"""VGG-9: plain 3x3 convolutions."""

from __future__ import annotations

from torch import Tensor, nn

from fedchord.check import require
from fedchord.models.parts import sizes

PLAN: tuple[tuple[int, ...], ...] = ((16,), (32,), (64, 128), (256, 512))
"""Filters of the convolutions; a max-pool ends every group."""


class _Conv(nn.Conv2d):
    """A convolution whose weights start by He et al. (2015): N(0, 2 / inputs), biases 0."""

    def reset_parameters(self) -> None:
        _start(self.weight, self.bias)


class _Linear(nn.Linear):
    """A linear layer that starts in the same way."""

    def reset_parameters(self) -> None:
        _start(self.weight, self.bias)


def _start(weight: Tensor, bias: Tensor | None) -> None:
    nn.init.kaiming_normal_(weight, nonlinearity="relu")
    if bias is not None:
        nn.init.zeros_(bias)


class VGG9(nn.Module):
    """Six 3x3 convolutions and two linear layers: images (n, channels, height, width) -> (n, classes), with biases.

    `body`: conv 16, pool, conv 32, pool, conv 64, conv 128, pool, conv 256, conv 512, pool (conv 3x3 with padding 1 and
    ReLU, max-pool 2); flatten to 512 * (height // 16) * (width // 16), linear to `hidden`, ReLU. `head`: linear to the
    classes. No normalisation, hence the weights before the head start by He et al. (2015), not by PyTorch's default,
    from which these eight layers hardly begin to learn.

    The convolutions of the thesis' FEMNIST experiments after Simonyan and Zisserman (2015); the thesis calls it VGG and
    its code VGG9, without biases. 1,719,742 parameters for 28x28x1 and 62 classes.
    """

    def __init__(self, channels: int, size: int | tuple[int, int], classes: int, hidden: int = 256) -> None:
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        sizes("VGG9", channels=channels, height=height, width=width, classes=classes, hidden=hidden)
        require(min(height, width) >= 16, "VGG9", f"needs images of at least 16x16, got {height}x{width}")
        self.body = nn.Sequential()
        inputs, index = channels, 0
        for stage, group in enumerate(PLAN, 1):
            for outputs in group:
                index += 1
                self.body.add_module(f"conv{index}", _Conv(inputs, outputs, kernel_size=3, padding=1))
                self.body.add_module(f"act{index}", nn.ReLU())
                inputs = outputs
            self.body.add_module(f"pool{stage}", nn.MaxPool2d(2))
        self.body.add_module("flatten", nn.Flatten())
        self.body.add_module("hidden", _Linear(inputs * (height // 16) * (width // 16), hidden))
        self.body.add_module(f"act{index + 1}", nn.ReLU())
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits
