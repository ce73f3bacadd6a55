"""What several networks are made of: normalisation and activation by name, the spectral head, weights that stay."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedchord.check import fail, one_of, whole

GROUPS = 16
"""The largest number of groups of a GroupNorm layer."""

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU}
NORMS = ("group", "batch")


def activation(owner: str, name: str) -> nn.Module:
    """ReLU, or SiLU (Swish), x / (1 + exp(-x))."""
    return ACTIVATIONS[one_of(owner, "activation", name, ACTIVATIONS)]()


def groups(channels: int) -> int:
    """How many groups a GroupNorm layer has: the largest divisor of its channels, at most 16, that leaves four channels
    or more to a group; else 1."""
    return max((g for g in range(1, GROUPS + 1) if channels % g == 0 and channels >= 4 * g), default=1)


def norm2d(owner: str, kind: str, channels: int) -> nn.Module:
    """GroupNorm, which has no statistics to keep, or BatchNorm, both with a weight and a bias per channel."""
    if one_of(owner, "norm", kind, NORMS) == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(groups(channels), channels)


def sizes(owner: str, **values: object) -> None:
    """Whole numbers of at least 1, by name."""
    for name, value in values.items():
        whole(owner, name, value, low=1)


def image(owner: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """The shape of an image, (channels, height, width)."""
    if len(shape) != 3:
        raise fail(owner, f"needs images of shape (channels, height, width), got {shape}")
    channels, height, width = shape
    return channels, height, width


class SpectralLinear(nn.Linear):
    """A linear layer whose weight is divided by its largest singular value: y = (W / sigma(W)) x + b.

    sigma is exact, the root of the largest eigenvalue of W W^T (or W^T W, whichever is smaller), where common code
    keeps a running estimate: there is no state to average or to mix, and `vmap` can take it. Where W W^T is not finite,
    all outputs are NaN.
    """

    def forward(self, x: Tensor) -> Tensor:
        tall = self.weight.shape[0] > self.weight.shape[1]
        matrix = self.weight.t() if tall else self.weight
        gram = matrix @ matrix.t()
        finite = torch.isfinite(gram).all()  # LAPACK raises where it is not
        unit = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        largest = torch.linalg.eigvalsh(torch.where(finite, gram, unit))[-1]
        largest = largest.clamp_min(torch.finfo(matrix.dtype).tiny).sqrt()
        return nn.functional.linear(x, self.weight / torch.where(finite, largest, torch.nan), self.bias)


def stay(module: nn.Module) -> None:
    """Make pretrained weights stay: from now on, `reset_parameters` of every part does nothing."""
    for part in module.modules():
        if next(part.parameters(recurse=False), None) is not None:
            part.reset_parameters = _nothing  # type: ignore[assignment]


def _nothing() -> None:
    pass
