"""A small convolutional network with GroupNorm, for work without an accelerator."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from fedchord.check import require
from fedchord.models.parts import SpectralLinear, activation, norm2d, sizes


class SmallConvNet(nn.Module):
    """Three convolutions with GroupNorm: images (n, channels, height, width) -> (n, classes).

    `body`: three times conv 3x3 (padding 1, no bias; width, 2 width and 4 width filters), norm, activation, max-pool 2;
    flatten to 4 width * (height // 8) * (width of the image // 8). `head`: linear to the classes, with bias;
    `spectral` divides its weight by the largest singular value.

    29,178 parameters for 28x28x1, 10 classes and width 16.
    """

    channels_last = True
    """Faster so (see `Task`)."""

    def __init__(
        self,
        channels: int,
        size: int | tuple[int, int],
        classes: int,
        width: int = 16,
        norm: str = "group",
        activation: str = "relu",
        spectral: bool = False,
    ) -> None:
        super().__init__()
        high, wide = (size, size) if isinstance(size, int) else size
        sizes("SmallConvNet", channels=channels, height=high, width=wide, classes=classes)
        sizes("SmallConvNet", width=width)
        require(min(high, wide) >= 8, "SmallConvNet", f"needs images of at least 8x8, got {high}x{wide}")
        layers: list[tuple[str, nn.Module]] = []
        inputs = channels
        for stage in (1, 2, 3):
            layers += _stage(stage, inputs, width * 2 ** (stage - 1), norm, activation)
            inputs = width * 2 ** (stage - 1)
        self.body = nn.Sequential(OrderedDict(layers))
        self.body.add_module("flatten", nn.Flatten())
        self.head = (SpectralLinear if spectral else nn.Linear)(inputs * (high // 8) * (wide // 8), classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def _stage(stage: int, inputs: int, outputs: int, norm: str, act: str) -> list[tuple[str, nn.Module]]:
    return [
        (f"conv{stage}", nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)),
        (f"norm{stage}", norm2d("SmallConvNet", norm, outputs)),
        (f"act{stage}", activation("SmallConvNet", act)),
        (f"pool{stage}", nn.MaxPool2d(2)),
    ]
