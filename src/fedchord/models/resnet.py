"""Residual networks with basic blocks: ResNet-9, ResNet-10 and ResNet-18, of any width, with GroupNorm or BatchNorm."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from fedchord.check import fail, one_of
from fedchord.models.parts import SpectralLinear, activation, norm2d, sizes


@dataclass(frozen=True)
class Plan:
    """What tells one depth from another: blocks per stage, first stride per stage, the stem, the hidden layer."""

    blocks: tuple[int, int, int, int]
    strides: tuple[int, int, int, int] = (1, 2, 2, 2)
    stem: str = "plain"
    hidden: int = 0


PLANS = {
    9: Plan((1, 1, 1, 1), strides=(1, 1, 2, 2), stem="pooled", hidden=256),
    10: Plan((1, 1, 1, 1)),
    18: Plan((2, 2, 2, 2)),
}

STEMS = {"plain": (3, 1, False), "pooled": (3, 2, True), "imagenet": (7, 2, True)}
"""Kernel, stride, and whether a 3x3 max-pool of stride 2 follows."""


class ResNet(nn.Module):
    """A residual network of basic blocks (He et al., 2016): images (n, channels, height, width) -> (n, classes).

    `stem`: conv, norm, activation; then four stages of w, 2w, 4w and 8w channels (w is `width`), each of basic blocks

        y = act( norm(conv3x3(act(norm(conv3x3(x))))) + shortcut(x) )

    whose first has the stage's stride and, where the shape changes, a 1x1 convolution with norm as shortcut (otherwise
    the identity). Convolutions have no bias. Then the mean over the image (`pool` = 1; p averages to p x p and
    flattens), for ResNet-9 a hidden layer of 256 with activation, and the linear `head` with bias.

        depth  blocks  strides  stem                         parameters (width 64)
        9      1 1 1 1  1 1 2 2  conv 3x3 stride 2, max-pool   5,055,140 for 3 channels and 100 classes
        10     1 1 1 1  1 2 2 2  conv 3x3                      4,903,242 for 3 channels and 10 classes
        18     2 2 2 2  1 2 2 2  conv 3x3                      11,173,962 for 3 channels and 10 classes

    `stem="imagenet"` (conv 7x7 stride 2, max-pool) with depth 18 is the network of the paper: 11,689,512 for 1,000
    classes. `norm` is "group" (see `parts.groups`) or "batch"; `activation` "relu" or "silu" (Swish); `spectral`
    divides the head's weight by its largest singular value (FedEvg has both). ResNet-9 is the one of the thesis'
    CIFAR-100 experiments, but with the shortcut of the first stage and with biases in the linear layers. ResNet-10 has
    the widths and strides of the thesis' FedEvg network, which differs: there w/4 groups in the stem and half as many
    groups as channels in the blocks, no activation after the addition, a last norm (w groups) with activation, and a
    head on the flattened map instead of its mean. (The ResNet-10 of its AAggFF experiments has 16 groups, the
    activation after the addition, and averages to 7 x 7: `pool=7`.)
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        depth: int = 10,
        width: int = 64,
        norm: str = "group",
        activation: str = "relu",
        stem: str | None = None,
        pool: int = 1,
        spectral: bool = False,
    ) -> None:
        super().__init__()
        sizes("ResNet", channels=channels, classes=classes, width=width, pool=pool)
        if depth not in PLANS:
            raise fail("ResNet", f"depth must be one of {', '.join(map(str, PLANS))}, got {depth!r}")
        plan = PLANS[depth]
        self.pool = pool
        self.stem = _stem(channels, width, plan.stem if stem is None else stem, norm, activation)
        inputs = width
        stages: list[tuple[str, nn.Module]] = []
        for stage, (blocks, stride) in enumerate(zip(plan.blocks, plan.strides, strict=True)):
            outputs = width * 2**stage
            for block in range(blocks):
                part = Block(inputs, outputs, stride if block == 0 else 1, norm, activation)
                stages.append((f"stage{stage + 1}_{block + 1}", part))
                inputs = outputs
        self.body = nn.Sequential(OrderedDict(stages))
        features = inputs * pool * pool
        self.hidden = _hidden(features, plan.hidden, activation) if plan.hidden else None
        self.head = (SpectralLinear if spectral else nn.Linear)(plan.hidden or features, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x))
        x = x.mean((-2, -1)) if self.pool == 1 else F.adaptive_avg_pool2d(x, self.pool).flatten(1)
        if self.hidden is not None:
            x = self.hidden(x)
        logits: Tensor = self.head(x)
        return logits


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut: (n, inputs, h, w) -> (n, outputs, ceil(h / stride), ceil(w / stride))."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, act: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = norm2d("ResNet", norm, outputs)
        self.act = activation("ResNet", act)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False)
        self.norm2 = norm2d("ResNet", norm, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            narrow = nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(OrderedDict(conv=narrow, norm=norm2d("ResNet", norm, outputs)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y)) + self.shortcut(x)
        out: Tensor = self.act(y)
        return out


def _stem(channels: int, width: int, kind: str, norm: str, act: str) -> nn.Sequential:
    kernel, stride, pooled = STEMS[one_of("ResNet", "stem", kind, STEMS)]
    layers: list[tuple[str, nn.Module]] = [
        ("conv", nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)),
        ("norm", norm2d("ResNet", norm, width)),
        ("act", activation("ResNet", act)),
    ]
    if pooled:
        layers.append(("pool", nn.MaxPool2d(kernel_size=3, stride=2, padding=1)))
    return nn.Sequential(OrderedDict(layers))


def _hidden(features: int, hidden: int, act: str) -> nn.Sequential:
    linear = nn.Linear(features, hidden)
    return nn.Sequential(OrderedDict(linear=linear, act=activation("ResNet", act)))
