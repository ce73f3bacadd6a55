"""Noise that only the node can know: for privacy, from a secret of its own.

Every other random number of the library follows from the run's seed, which the server knows; noise that hides something
from the server must not. It is a function of the node's secret, the plan, the round, what the node received (its hash)
and what it is for: a round that is asked for again has the same noise, and no two different messages share any.
"""

from __future__ import annotations

import hashlib
import hmac
import math

import numpy as np
import torch
from torch import Tensor


def normal(
    secret: bytes, fingerprint: str, round: int, received: str, purpose: str, shape: tuple[int, ...] = ()
) -> Tensor:
    """Standard normal float64 numbers of a shape (Box and Muller, 1958), from the stream of SHAKE-256."""
    told = "\n".join((fingerprint, str(round), received, purpose))
    key = hmac.digest(secret, told.encode(), "sha256")
    count = math.prod(shape)
    half = (count + 1) // 2
    words = np.frombuffer(hashlib.shake_256(key).digest(16 * half), dtype="<u8")
    unit = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # inside (0, 1): the logarithm is finite
    radius, angle = np.sqrt(-2.0 * np.log(unit[:half])), 2.0 * math.pi * unit[half:]
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return torch.from_numpy(both[:count].reshape(shape).copy())
