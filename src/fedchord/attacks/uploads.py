"""Attacks on what is sent: from the honest uploads of the hostile clients of a cohort to those that arrive.

Each takes one entry as rows (client, numbers), the scale and a key for each client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedchord import rng

Change = Callable[[Tensor, float, Sequence[rng.Key]], Tensor]


def sign_flip(rows: Tensor, scale: float, keys: Sequence[rng.Key]) -> Tensor:
    """-scale u."""
    return -scale * rows


def scaled(rows: Tensor, scale: float, keys: Sequence[rng.Key]) -> Tensor:
    """scale u."""
    return scale * rows


def noise(rows: Tensor, scale: float, keys: Sequence[rng.Key]) -> Tensor:
    """scale ||u|| g / sqrt(d), with g standard normal in d numbers."""
    width = rows.shape[1]
    drawn = torch.stack([rng.normal(key, (width,)) for key in keys]).to(rows.device)
    lengths = torch.linalg.vector_norm(rows.double(), dim=1, keepdim=True)
    made: Tensor = scale * lengths / max(1, width) ** 0.5 * drawn.double()
    return made.to(rows.dtype)


def little(rows: Tensor, scale: float, keys: Sequence[rng.Key]) -> Tensor:
    """mean - scale std over these clients, number by number (std with ddof 0), the same from all of them."""
    wide = rows.double()
    return (wide.mean(0) - scale * wide.std(0, correction=0)).to(rows.dtype).expand_as(rows)


UPLOADS: dict[str, Change] = {"sign-flip": sign_flip, "scaled": scaled, "noise": noise, "little": little}
