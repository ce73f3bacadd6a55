"""Stateless random numbers: every draw is a function of a key, and a key is a function of what it is for.

A key is a 64-bit number. `key(seed, purpose, client, round)` makes one, `fold(key, n)` derives another, and the
drawing functions turn a key into numbers. Nothing is consumed, so serial, vectorised, process and Flower runs that
ask for the same thing get the same numbers in any order. The mixing function is the finaliser of SplitMix64
(Steele, Lea and Flood, 2014). A key is a Python int, or an int64 tensor inside `torch.func.vmap`.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

Key = int | Tensor

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_FIRST_, _SECOND_, _30, _27, _31 = map(np.uint64, (_FIRST, _SECOND, 30, 27, 31))


def _signed(value: int) -> int:
    """The int64 with the same bits as an unsigned 64-bit number."""
    return value - (1 << 64) if value >> 63 else value


def _mix_int(z: int) -> int:
    z = ((z ^ (z >> 30)) * _FIRST) & _MASK
    z = ((z ^ (z >> 27)) * _SECOND) & _MASK
    return z ^ (z >> 31)


def _mix_tensor(z: Tensor) -> Tensor:
    # int64 products wrap; a logical right shift is an arithmetic one with the copied sign bits masked away.
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _signed(_FIRST)
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _signed(_SECOND)
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def fold(key: Key, n: Key) -> Key:
    """A new key from a key and a number."""
    if isinstance(key, int) and isinstance(n, int):
        return _mix_int((key + _GAMMA * (2 * n + 1)) & _MASK)
    left = torch.tensor(_signed(key)) if isinstance(key, int) else key
    step = _signed((_GAMMA * (2 * n + 1)) & _MASK) if isinstance(n, int) else _signed(_GAMMA) * (2 * n + 1)
    return _mix_tensor(left + step)


@functools.cache
def _purpose(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def key(seed: int, purpose: str, *parts: int) -> int:
    """The key of one purpose (a word) under a seed, optionally of one client, one round, ..."""
    value: Key = fold(_purpose(purpose), seed)
    for part in parts:
        value = fold(value, part)
    assert isinstance(value, int)
    return value


def as_tensor(keys: list[int]) -> Tensor:
    """Keys as one int64 tensor, for use under `torch.func.vmap`."""
    return torch.tensor([_signed(k) for k in keys], dtype=torch.int64)


def _multiples(n: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.arange(1, n + 1, dtype=np.uint64) * np.uint64(_GAMMA)


_COUNTERS = _multiples(1 << 12)  # GAMMA, 2 GAMMA, ...: most draws are short


def _hashed(key: int, n: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The numbers of `bits` through NumPy, whose small operations cost a fraction of torch's."""
    z = (_COUNTERS[:n] if n <= len(_COUNTERS) else _multiples(n)) + np.uint64(key)
    z ^= z >> _30
    z *= _FIRST_
    z ^= z >> _27
    z *= _SECOND_
    z ^= z >> _31
    return z


def bits(key: Key, n: int, device: torch.device | str | None = None) -> Tensor:
    """n hashed 64-bit numbers as int64."""
    if isinstance(key, Tensor):
        counter = torch.arange(1, n + 1, dtype=torch.int64, device=device)
        return _mix_tensor(key + counter * _signed(_GAMMA))
    return _on(torch.from_numpy(_hashed(key, n).view(np.int64)), device)


def _on(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    return tensor if device is None else tensor.to(device)


def uniform(key: Key, n: int, device: torch.device | str | None = None) -> Tensor:
    """n float32 numbers, uniform on [0, 1): the upper 24 bits."""
    if isinstance(key, Tensor):
        return ((bits(key, n, device) >> 40) & ((1 << 24) - 1)).to(torch.float32) * 2.0**-24
    upper = (_hashed(key, n) >> np.uint64(40)).astype(np.float32)
    return _on(torch.from_numpy(upper * np.float32(2.0**-24)), device)


def normal(key: Key, shape: tuple[int, ...], device: torch.device | str | None = None) -> Tensor:
    """Standard normal float32 numbers of a shape (Box and Muller, 1958)."""
    n = math.prod(shape)
    half = (n + 1) // 2
    both = uniform(key, 2 * half, device)
    radius = torch.sqrt(-2.0 * torch.log1p(-both[:half]))
    angle = 2.0 * math.pi * both[half:]
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)])[:n].reshape(shape)


def normal_rows(key: Key, rows: int, columns: int, device: torch.device | str | None = None) -> Tensor:
    """Standard normal float32 numbers (rows, columns); a row does not depend on how many rows are drawn.

    So a batch that is padded gets the same numbers as one that is not.
    """
    half = (columns + 1) // 2
    both = uniform(key, rows * 2 * half, device).reshape(rows, 2 * half)
    radius = torch.sqrt(-2.0 * torch.log1p(-both[:, :half]))
    angle = 2.0 * math.pi * both[:, half:]
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], 1)[:, :columns]


def permutation(key: Key, n: int) -> Tensor:
    """A random order of 0..n-1."""
    if isinstance(key, Tensor):
        return torch.argsort(bits(key, n), stable=True)
    return torch.from_numpy(np.argsort(_hashed(key, n).view(np.int64), kind="stable"))


def choose(key: int, population: int, size: int) -> list[int]:
    """`size` different numbers below `population`, every subset equally likely, sorted; the work grows with `size`
    only.

    Floyd's method (Bentley and Floyd, 1987): for j = N-k..N-1 draw t in 0..j; take t, or j if t is taken already.
    """
    taken: set[int] = set()
    for j in range(population - size, population):
        value = fold(key, j)
        assert isinstance(value, int)
        t = (value * (j + 1)) >> 64
        taken.add(j if t in taken else t)
    return sorted(taken)


def generator(key: int) -> np.random.Generator:
    """A NumPy generator of its own for one purpose, for draws made outside the training loop."""
    return np.random.Generator(np.random.Philox(key=key))


_ALONE = threading.RLock()


def _free() -> None:
    global _ALONE
    _ALONE = threading.RLock()


os.register_at_fork(after_in_child=_free)  # whoever held it in the parent is not there to give it back


@contextmanager
def restored() -> Iterator[None]:
    """Run code that may draw from torch's global generator; it is restored. Other threads wait for their turn."""
    with _ALONE, torch.random.fork_rng(devices=[]):
        yield


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Run code that draws from torch's global generator (initialisers, Dropout) under a key; the generator is
    restored."""
    with restored():
        torch.default_generator.manual_seed(_signed(key))
        yield
