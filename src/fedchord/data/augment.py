"""Pictures as a model sees them: what training changes at random, and what every picture goes through.

Everything works on batches of tensors. What is drawn for a picture is a function of its own key, so neither the batch
it is in nor the executor changes it. Evaluation draws nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedchord import rng
from fedchord.check import at_least, below, require, whole

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and std of each colour over ImageNet, which published weights are trained with."""
GREY = (0.299, 0.587, 0.114)
DRAWS = 9


@final
@dataclass(frozen=True)
class Pictures:
    """How pictures, (n, channels, height, width) with numbers in [0, 1], are shown to a model.

    In this order, of which training does all and evaluation the last two:

        jitter          brightness b x, contrast b x + (1 - b) mean of the grey picture, saturation b x + (1 - b) grey,
                        each with its own b, uniform in [1 - jitter, 1 + jitter]; cut to [0, 1]; saturation for RGB only
        mirror, upend   left to right, top to bottom, each with chance 1/2
        turn, shear     by an angle uniform in [-turn, turn] degrees, and slanted by a slope uniform in [-shear, shear],
                        about the middle; bilinear, and black where nothing was
        side            the middle square of this side, or, with `shift`, one at a random place in training (0: no crop)
        mean, std       (x - mean) / std for each colour (empty: as it is)
    """

    side: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    jitter: float = 0.0
    mirror: bool = False
    upend: bool = False
    turn: float = 0.0
    shear: float = 0.0
    shift: bool = False

    def __post_init__(self) -> None:
        whole("Pictures", "side", self.side)
        below("Pictures", "jitter", self.jitter, 1)
        at_least("Pictures", "turn", self.turn, 0)
        at_least("Pictures", "shear", self.shear, 0)
        require(self.side > 0 or not self.shift, "Pictures", "shift needs a side")
        require(len(self.mean) == len(self.std), "Pictures", "mean and std must have one number per colour each")
        require(all(std > 0 for std in self.std), "Pictures", f"std must be above 0, got {self.std}")

    @property
    def varies(self) -> bool:
        """Whether training draws anything."""
        return bool(self.jitter or self.mirror or self.upend or self.turn or self.shear or self.shift)

    def show(self, x: Tensor) -> Tensor:
        """Pictures for evaluation: the middle, scaled."""
        return self._scaled(self._middle(x))

    def vary(self, x: Tensor, keys: Tensor) -> Tensor:
        """Pictures for training, one key each."""
        u = rng.uniform(keys.unsqueeze(1), DRAWS, x.device)
        column = [u[:, i].reshape(-1, 1, 1, 1) for i in range(DRAWS)]
        if self.jitter:
            x = _jittered(x, *(1 + self.jitter * (2 * part - 1) for part in column[:3]))
        if self.mirror:
            x = torch.where(column[3] < 0.5, x.flip(-1), x)
        if self.upend:
            x = torch.where(column[4] < 0.5, x.flip(-2), x)
        if self.turn or self.shear:
            angles = math.radians(self.turn) * (2 * u[:, 5] - 1)
            x = _slanted(x, angles, self.shear * (2 * u[:, 6] - 1))
        return self._scaled(self._cut(x, u[:, 7], u[:, 8]) if self.shift else self._middle(x))

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a picture after it, without the batch."""
        return (shape[0], self.side, self.side) if self.side else shape

    def range(self) -> tuple[Tensor, Tensor]:
        """What black and white become, for each colour."""
        ends = torch.stack([torch.zeros(max(1, len(self.mean)), 1, 1), torch.ones(max(1, len(self.mean)), 1, 1)])
        low, high = self._scaled(ends)
        return low, high

    def _middle(self, x: Tensor) -> Tensor:
        if not self.side:
            return x
        top, left = ((length - self.side) // 2 for length in self._room(x))
        return x[..., top : top + self.side, left : left + self.side]

    def _room(self, x: Tensor) -> tuple[int, int]:
        height, width = x.shape[-2:]
        fits = min(height, width) >= self.side
        require(fits, "Pictures", f"side must be at most {min(height, width)} for {height}x{width}, got {self.side}")
        return height, width

    def _cut(self, x: Tensor, down: Tensor, right: Tensor) -> Tensor:
        """A square of each picture; every whole number of pixels down and right is as likely."""
        span = torch.arange(self.side, device=x.device)
        starts = [
            (part * (length - self.side + 1)).long() for part, length in zip((down, right), self._room(x), strict=True)
        ]
        rows, columns = (start.reshape(-1, 1) + span for start in starts)
        x = x.gather(2, rows[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
        return x.gather(3, columns[:, None, None, :].expand(-1, x.shape[1], self.side, -1))

    def _scaled(self, x: Tensor) -> Tensor:
        if not self.mean:
            return x
        mean, std = (x.new_tensor(part).reshape(-1, 1, 1) for part in (self.mean, self.std))
        return (x - mean) / std


def _jittered(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor) -> Tensor:
    x = (brightness * x).clamp(0, 1)
    x = (contrast * x + (1 - contrast) * _grey(x).mean((-2, -1), keepdim=True)).clamp(0, 1)
    return (saturation * x + (1 - saturation) * _grey(x)).clamp(0, 1) if x.shape[1] == 3 else x


def _grey(x: Tensor) -> Tensor:
    """The brightness of each pixel, one channel."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    return (x * x.new_tensor(GREY).reshape(-1, 1, 1)).sum(1, keepdim=True)


def _slanted(x: Tensor, angles: Tensor, slopes: Tensor) -> Tensor:
    """Every picture turned and then slanted: the pixel at p is taken from R(angle) S(slope) p, S = (1 slope; 0 1).

    p are pixels from the middle, so that a picture that is not square is not stretched.
    """
    height, width = x.shape[-2:]
    sin, cos = angles.sin(), angles.cos()
    stretch, zero = height / width, torch.zeros_like(sin)
    # affine_grid measures in half sides, hence the quotient of the sides off the diagonal
    first = torch.stack([cos, (cos * slopes - sin) * stretch, zero], 1)
    second = torch.stack([sin / stretch, sin * slopes + cos, zero], 1)
    grid = F.affine_grid(torch.stack([first, second], 1), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
