"""Networks that draw images of a class: a conditional variational auto-encoder and a conditional adversarial pair.

Both are made of the same two halves. Images are halved (rounded up) until no side is above 8, which takes two stages
for 28 and 32 pixels and three for 64; the stages have width, 2 width, 4 width, 4 width, ... filters. A kernel is 4 long
where a side is even and 3 where it is odd, so that the decoder runs through the very same sizes backwards. GroupNorm
keeps no statistics, so the mean of several networks is a network like any of them.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from fedchord.models.parts import groups, image, sizes

SMALLEST = 8
"""The largest side of the innermost map."""
SLOPE = 0.2
"""The slope of LeakyReLU below zero."""

Side = tuple[int, int]


def halvings(height: int, width: int) -> list[Side]:
    """The sizes of the maps from the image to the innermost one: at least one halving, until no side is above 8."""
    found = [(height, width)]
    while len(found) == 1 or max(found[-1]) > SMALLEST:
        found.append(((found[-1][0] + 1) // 2, (found[-1][1] + 1) // 2))
    return found


def filters(stages: int, width: int) -> list[int]:
    """Filters by stage: width, 2 width, 4 width, 4 width, ..."""
    return [width * min(2**stage, 4) for stage in range(stages)]


def _kernel(side: Side) -> Side:
    return (4 - side[0] % 2, 4 - side[1] % 2)


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Labels (n,) as rows with a single one (n, classes)."""
    return torch.eye(classes, device=y.device)[y]


class Encoder(nn.Module):
    """Images, and labels where `conditioned`, to numbers: (n, channels, height, width) -> (n, outputs).

    Pixels in [0, 1] are seen as 2 x - 1. Per stage: convolution with stride 2 (padding 1, no bias), GroupNorm,
    LeakyReLU 0.2; then `head`, linear from the flat innermost map. `label` adds a vector of its class to the first map,
    which is what planes of one-hot labels beside the image would add, except at the border.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int, outputs: int, width: int, conditioned: bool) -> None:
        super().__init__()
        channels, height, wide = shape
        maps = halvings(height, wide)
        counts = filters(len(maps) - 1, width)
        self.classes = classes
        self.label = nn.Linear(classes, width, bias=False) if conditioned else None
        self.first = nn.Conv2d(channels, width, _kernel(maps[0]), stride=2, padding=1, bias=False)
        layers: list[tuple[str, nn.Module]] = [("norm1", _norm(width)), ("act1", nn.LeakyReLU(SLOPE))]
        for stage in range(1, len(counts)):
            conv = nn.Conv2d(counts[stage - 1], counts[stage], _kernel(maps[stage]), stride=2, padding=1, bias=False)
            layers.append((f"conv{stage + 1}", conv))
            layers += [(f"norm{stage + 1}", _norm(counts[stage])), (f"act{stage + 1}", nn.LeakyReLU(SLOPE))]
        self.body = nn.Sequential(OrderedDict([*layers, ("flatten", nn.Flatten())]))
        self.head = nn.Linear(counts[-1] * maps[-1][0] * maps[-1][1], outputs)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        found = self.first(2 * x - 1)
        if self.label is not None:
            assert y is not None
            found = found + self.label(one_hot(y, self.classes))[:, :, None, None]
        outputs: Tensor = self.head(self.body(found))
        return outputs


class Decoder(nn.Module):
    """Noise and labels to images: (n, latent), (n,) -> logits (n, channels, height, width); pixels are their sigmoid.

    `base`, linear from noise and one-hot label to the innermost map (no bias), GroupNorm, LeakyReLU 0.2; then the
    encoder's stages backwards as transposed convolutions, of which the last, `head`, has a bias and nothing after it.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int, latent: int, width: int) -> None:
        super().__init__()
        channels, height, wide = shape
        maps = halvings(height, wide)
        counts = filters(len(maps) - 1, width)
        self.classes = classes
        self.base = nn.Linear(latent + classes, counts[-1] * maps[-1][0] * maps[-1][1], bias=False)
        layers: list[tuple[str, nn.Module]] = [("unflatten", nn.Unflatten(1, (counts[-1], *maps[-1])))]
        layers += [("norm0", _norm(counts[-1])), ("act0", nn.LeakyReLU(SLOPE))]
        for turn, stage in enumerate(range(len(counts) - 1, 0, -1), start=1):
            into = counts[stage - 1]
            conv = nn.ConvTranspose2d(counts[stage], into, _kernel(maps[stage]), stride=2, padding=1, bias=False)
            layers += [(f"conv{turn}", conv), (f"norm{turn}", _norm(into)), (f"act{turn}", nn.LeakyReLU(SLOPE))]
        self.body = nn.Sequential(OrderedDict(layers))
        self.head = nn.ConvTranspose2d(width, channels, _kernel(maps[0]), stride=2, padding=1)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(self.base(torch.cat([z, one_hot(y, self.classes)], 1))))
        return logits


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(groups(channels), channels)


class Cvae(nn.Module):
    """A conditional variational auto-encoder: q(z | x, y) and p(x | z, y), both told the class.

    `encoder` gives the mean and the logarithm of the variance of z, `decoder` the logits of the pixels.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 16, latent: int = 16) -> None:
        super().__init__()
        sides = image("Cvae", shape)
        sizes("Cvae", classes=classes, width=width, latent=latent)
        self.shape, self.classes, self.latent = sides, classes, latent
        self.encoder = Encoder(sides, classes, 2 * latent, width, conditioned=True)
        self.decoder = Decoder(sides, classes, latent, width)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes (n, classes): minus the squared error of the reconstruction, and minus the divergence
        of z, under each label."""
        return torch.stack([self._score(x, torch.full_like(x[:, 0, 0, 0], y).long()) for y in range(self.classes)], 1)

    def _score(self, x: Tensor, y: Tensor) -> Tensor:
        mean, spread = self.encoder(x, y).chunk(2, 1)
        error = (torch.sigmoid(self.decoder(mean, y)) - x).square().flatten(1).sum(1)
        return -error - 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1)


class Cgan(nn.Module):
    """A conditional adversarial pair: a generator G(z, y), and a discriminator D(x, y).

    `discriminator` gives 1 + classes numbers s and c; its logit that x is a real image of class y is s + c[y] (the
    projection form of Miyato and Koyama, 2018).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 16, latent: int = 32) -> None:
        super().__init__()
        sides = image("Cgan", shape)
        sizes("Cgan", classes=classes, width=width, latent=latent)
        self.shape, self.classes, self.latent = sides, classes, latent
        self.generator = Decoder(sides, classes, latent, width)
        self.discriminator = Encoder(sides, classes, 1 + classes, width, conditioned=False)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes (n, classes): the discriminator's logits under each label."""
        source, kinds = self.discriminator(x).split([1, self.classes], 1)
        scores: Tensor = source + kinds
        return scores
