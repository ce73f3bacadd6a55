"""MobileNet (version 1): depthwise-separable convolutions."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from fedchord.check import one_of, positive
from fedchord.models.parts import norm2d, sizes

Separable = tuple[int, int]
"""Output channels and stride of one depthwise-separable convolution."""

PLANS: dict[str, tuple[Separable, ...]] = {
    "full": ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1)),
    "short": ((64, 1), (128, 2), (256, 2), (512, 1)),
}


class MobileNet(nn.Module):
    """Depthwise-separable convolutions (Howard et al., 2017): images (n, channels, height, width) -> (n, classes).

    `stem`: conv 3x3, 32 filters, stride 2, norm, ReLU. `body`: blocks of a 3x3 convolution per channel (padding 1),
    norm, ReLU, and a 1x1 convolution across channels, norm, ReLU; no biases. Then the mean over the image and the
    linear `head` with bias. `width` multiplies all channel numbers (rounded, at least 8).

        plan   channels of the blocks (/2: stride 2)                          parameters at width 1
        full   64, 128/2, 128, 256/2, 256, 512/2, 5 x 512, 1024/2, 1024       4,231,976 (3 channels, 1,000 classes)
        short  64, 128/2, 256/2, 512, then a hidden layer of 256 with ReLU    364,936 (3 channels, 200 classes)

    The short plan has the blocks of the thesis' TinyImageNet experiments (there without padding and biases). `norm` is
    "batch", as published (statistics are buffers), or "group".
    """

    channels_last = True
    """Faster so (see `Task`)."""

    def __init__(
        self, channels: int, classes: int, plan: str = "full", width: float = 1.0, norm: str = "batch"
    ) -> None:
        super().__init__()
        sizes("MobileNet", channels=channels, classes=classes)
        blocks = PLANS[one_of("MobileNet", "plan", plan, PLANS)]
        scale = positive("MobileNet", "width", width)
        inputs = _scaled(32, scale)
        self.stem = nn.Sequential(
            OrderedDict(
                conv=nn.Conv2d(channels, inputs, kernel_size=3, stride=2, padding=1, bias=False),
                norm=norm2d("MobileNet", norm, inputs),
                act=nn.ReLU(),
            )
        )
        self.body = nn.Sequential()
        for index, (outputs, stride) in enumerate(blocks, 1):
            self.body.add_module(f"block{index}", _separable(inputs, _scaled(outputs, scale), stride, norm))
            inputs = _scaled(outputs, scale)
        self.hidden = None
        if plan == "short":
            self.hidden = nn.Sequential(OrderedDict(linear=nn.Linear(inputs, 256), act=nn.ReLU()))
            inputs = 256
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x)).mean((-2, -1))
        if self.hidden is not None:
            x = self.hidden(x)
        logits: Tensor = self.head(x)
        return logits


def _scaled(channels: int, width: float) -> int:
    return max(8, round(channels * width))


def _separable(inputs: int, outputs: int, stride: int, norm: str) -> nn.Sequential:
    depthwise = nn.Conv2d(inputs, inputs, kernel_size=3, stride=stride, padding=1, groups=inputs, bias=False)
    layers: list[tuple[str, nn.Module]] = [
        ("depthwise", depthwise),
        ("norm1", norm2d("MobileNet", norm, inputs)),
        ("act1", nn.ReLU()),
        ("pointwise", nn.Conv2d(inputs, outputs, kernel_size=1, bias=False)),
        ("norm2", norm2d("MobileNet", norm, outputs)),
        ("act2", nn.ReLU()),
    ]
    return nn.Sequential(OrderedDict(layers))
