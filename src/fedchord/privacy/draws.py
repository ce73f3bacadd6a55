"""Gaussian noise that hides something: of 53 bits a number, from a key of the run or from a secret.

`rng.normal` has 24 bits, so that no number of it lies beyond 5.8; over many parameters and rounds such cut tails would
be seen. Here the largest is 8.6, which is passed once in 10^17 draws.
"""

from __future__ import annotations

import hashlib
import hmac
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedchord import rng


def keyed(key: int, what: str, shape: tuple[int, ...]) -> Tensor:
    """Standard normal float64 numbers of a shape, a function of the key and of what they are for: for simulations."""
    return _normal(rng.bits(rng.key(key, f"hiding {what}"), _words(shape)).numpy().view(np.uint64), shape)


def secret(own: bytes, *told: object, shape: tuple[int, ...] = ()) -> Tensor:
    """The same from a secret and what the numbers are for, by the stream of SHAKE-256: nobody else can make them."""
    key = hmac.digest(own, "\n".join(map(str, told)).encode(), "sha256")
    stream = hashlib.shake_256(key).digest(8 * _words(shape))
    return _normal(np.frombuffer(stream, dtype="<u8"), shape)


def secret_key(own: bytes, *told: object) -> int:
    """A key of `rng` that follows from a secret, for draws that are not shown."""
    return int.from_bytes(hmac.digest(own, "\n".join(map(str, told)).encode(), "sha256")[:8], "little")


def _words(shape: tuple[int, ...]) -> int:
    return 2 * ((math.prod(shape) + 1) // 2)


def _normal(words: NDArray[np.uint64], shape: tuple[int, ...]) -> Tensor:
    """By Box and Muller (1958), of numbers inside (0, 1), whose logarithm is finite."""
    half = len(words) // 2
    unit = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2.0 * np.log(unit[:half])), 2.0 * math.pi * unit[half:]
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return torch.from_numpy(both[: math.prod(shape)].reshape(shape).copy())
