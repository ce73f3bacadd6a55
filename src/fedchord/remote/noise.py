"""Noise that only the node can know: for privacy, from a secret of its own.

Every other random number of the library follows from the run's seed, which the server knows; noise that hides something
from the server must not. It is a function of the node's secret, the plan, the round, what the node received (its hash)
and what it is for: a round that is asked for again has the same noise, and no two different messages share any.
"""

from __future__ import annotations

from torch import Tensor

from fedchord.privacy import draws


def normal(
    secret: bytes, fingerprint: str, round: int, received: str, purpose: str, shape: tuple[int, ...] = ()
) -> Tensor:
    """Standard normal float64 numbers of a shape."""
    return draws.secret(secret, fingerprint, round, received, purpose, shape=shape)
