"""EfficientNet-B0 whose parts carry torchvision's names, so that its published weights can be read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedchord.check import below, fail, require
from fedchord.models.parts import sizes, stay

Stage = tuple[int, int, int, int, int]
"""Expansion, kernel, stride of the first block, output channels, blocks."""

STAGES: tuple[Stage, ...] = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
FIRST, LAST, POOL = 32, 1280, 7


class EfficientNetB0(nn.Module):
    """EfficientNet-B0 (Tan and Le, 2019) with the thesis' head: images (n, channels, height, width) -> (n, classes).

    `features`: conv 3x3 stride 2 to 32; inverted residuals with squeeze-and-excitation in seven stages (`STAGES`) to
    320 channels; conv 1x1 to 1,280; each convolution with BatchNorm and SiLU. Then the average to 7x7, flattened to
    62,720, Dropout of `dropout`, and the linear `head` with bias. Images of 193 to 224 pixels have maps of 7x7.

    4,007,548 parameters in `features` for 3 channels, 62,721 per class in the head: 4,509,316 for 8 classes (ISIC).

    `weights` is a file with torchvision's `efficientnet_b0` (a state_dict by `torch.save`, or safetensors): its
    `features` are taken, its classifier is not. They are never drawn anew: in a private copy of the model only the head
    differs. `drop_path` is the chance to skip the last residual in training (the first: 0, linear in between).
    """

    def __init__(
        self,
        classes: int = 8,
        channels: int = 3,
        dropout: float = 0.1,
        drop_path: float = 0.2,
        weights: str | Path | None = None,
    ) -> None:
        super().__init__()
        sizes("EfficientNetB0", classes=classes, channels=channels)
        below("EfficientNetB0", "drop_path", drop_path, 1)
        self.features = nn.Sequential(_conv(channels, FIRST, kernel=3, stride=2))
        inputs, index, total = FIRST, 0, sum(stage[-1] for stage in STAGES)
        for expansion, kernel, stride, outputs, blocks in STAGES:
            stage = nn.Sequential()
            for block in range(blocks):
                skip = drop_path * index / total
                stage.append(Residual(inputs, outputs, expansion, kernel, stride if block == 0 else 1, skip))
                inputs, index = outputs, index + 1
            self.features.append(stage)
        self.features.append(_conv(inputs, LAST, kernel=1))
        self.dropout = nn.Dropout(below("EfficientNetB0", "dropout", dropout, 1))
        self.head = nn.Linear(LAST * POOL * POOL, classes)
        if weights is not None:
            load_features(self, weights)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.features(x), POOL).flatten(1)
        logits: Tensor = self.head(self.dropout(x))
        return logits


class Residual(nn.Module):
    """Widen, convolve per channel, weigh the channels, narrow; added to the input where the shapes agree.

    In training the sum leaves out the new part of a row with chance `skip`, and divides it by 1 - skip otherwise.
    """

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int, skip: float) -> None:
        super().__init__()
        wide = inputs * expansion
        self.block = nn.Sequential()
        if expansion != 1:
            self.block.append(_conv(inputs, wide, kernel=1))
        self.block.append(_conv(wide, wide, kernel, stride, groups=wide))
        self.block.append(Excitation(wide, max(1, inputs // 4)))
        self.block.append(_conv(wide, outputs, kernel=1, act=False))
        self.adds, self.skip = stride == 1 and inputs == outputs, skip

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.block(x)
        if not self.adds:
            return y
        if self.training and self.skip > 0:
            kept = y.new_empty(len(y), 1, 1, 1).bernoulli_(1 - self.skip)
            y = y * (kept / (1 - self.skip))
        return x + y


class Excitation(nn.Module):
    """Squeeze and excitation: x times sigmoid(fc2(silu(fc1(mean of x over the image)))), per channel."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, kernel_size=1)
        self.fc2 = nn.Conv2d(squeezed, channels, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((-2, -1), keepdim=True)
        return x * torch.sigmoid(self.fc2(F.silu(self.fc1(mean))))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    layers = nn.Sequential(conv, nn.BatchNorm2d(outputs))
    return layers.append(nn.SiLU()) if act else layers


def load_features(model: EfficientNetB0, path: str | Path) -> None:
    """Read `features` from a file with torchvision's names and make them stay; the first mismatch is named."""
    stored = {name: tensor for name, tensor in read_weights(path).items() if not name.startswith("classifier.")}
    wanted = {f"features.{name}": tensor for name, tensor in model.features.state_dict().items()}
    for name, tensor in wanted.items():
        require(name in stored, "EfficientNetB0", f"{path} has no {name}: not weights of torchvision's efficientnet_b0")
        shape, expected = tuple(stored[name].shape), tuple(tensor.shape)
        require(shape == expected, "EfficientNetB0", f"{name} of {path} must have shape {expected}, got {shape}")
    for name in stored:
        require(name in wanted, "EfficientNetB0", f"{path} has {name}, which EfficientNet-B0 has not")
    model.features.load_state_dict({name.removeprefix("features."): stored[name] for name in wanted})
    stay(model.features)


def read_weights(path: str | Path, owner: str = "EfficientNetB0") -> Mapping[str, Tensor]:
    """A state_dict from a file of `torch.save` (nothing in it is run) or safetensors."""
    file = Path(path)
    require(file.is_file(), owner, f"no such file of weights: {path}")
    try:
        if file.suffix == ".safetensors":
            return safetensors.torch.load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        raise fail(owner, f"{path} is not a file of weights ({type(error).__name__})") from None
    named = isinstance(state, Mapping) and all(isinstance(tensor, Tensor) for tensor in state.values())
    require(named, owner, f"{path} holds no tensors by name (a state_dict)")
    weights: Mapping[str, Tensor] = state
    return weights
