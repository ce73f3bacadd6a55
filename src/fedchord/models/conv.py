"""Convolutional networks without normalisation layers."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from fedchord.check import require, whole


class TwoCNN(nn.Module):
    """Two convolutions and one hidden layer: images (n, channels, height, width) -> (n, classes), with biases.

    `body`: conv 5x5 (32, padding 2), ReLU, max-pool 2, conv 5x5 (64, padding 2), ReLU, max-pool 2, flatten to
    64 * (height // 4) * (width // 4), linear to `hidden`, ReLU. `head`: linear to the classes. `size` is the side of a
    square image or (height, width).

    The CNN of McMahan et al. (2017): 1,663,370 parameters for 28x28x1 and 10 classes, 2,156,490 for 32x32x3 and 10
    classes. (The thesis code pads differently, has two hidden layers of 200 and no biases; we keep the published
    network.)
    """

    channels_last = True
    """Faster so (see `Task`)."""

    def __init__(self, channels: int, size: int | tuple[int, int], classes: int, hidden: int = 512) -> None:
        super().__init__()
        height, width = (size, size) if isinstance(size, int) else size
        sides = {"channels": channels, "height": height, "width": width, "classes": classes, "hidden": hidden}
        for name, value in sides.items():
            whole("TwoCNN", name, value, low=1)
        require(min(height, width) >= 4, "TwoCNN", f"needs images of at least 4x4, got {height}x{width}")
        layers: list[tuple[str, nn.Module]] = [
            ("conv1", nn.Conv2d(channels, 32, kernel_size=5, padding=2)),
            ("act1", nn.ReLU()),
            ("pool1", nn.MaxPool2d(2)),
            ("conv2", nn.Conv2d(32, 64, kernel_size=5, padding=2)),
            ("act2", nn.ReLU()),
            ("pool2", nn.MaxPool2d(2)),
            ("flatten", nn.Flatten()),
            ("hidden", nn.Linear(64 * (height // 4) * (width // 4), hidden)),
            ("act3", nn.ReLU()),
        ]
        self.body = nn.Sequential(OrderedDict(layers))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits
