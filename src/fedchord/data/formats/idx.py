"""The idx files of MNIST and its relatives, packed with gzip or not.

Four bytes (0, 0, type, number of axes), the lengths of the axes as big-endian 32-bit numbers, then the numbers.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedchord.check import fail, require
from fedchord.safe import RATIO, SMALL, check_growth

_TYPES: dict[int, np.dtype[Any]] = {8: np.dtype("u1"), 12: np.dtype(">i4")}


def places(folder: str, name: str, other: str) -> tuple[str, ...]:
    """Where an idx file may lie: packed or not, in our folder or where torchvision puts it."""
    return tuple(f"{root}/{name}{end}" for root in (folder, f"{other}/raw") for end in (".gz", ""))


def read_idx(owner: str, path: Path, kind: int, axes: int) -> Tensor:
    """The numbers in an idx file of a known type (8 bytes, 12 whole numbers) and number of axes."""
    data = _unpacked(owner, path)
    magic, expected = data[:4].hex(), f"0000{kind:02x}{axes:02x}"
    require(magic == expected, owner, f"{path} is damaged: it starts with 0x{magic}, expected 0x{expected}")
    start = 4 + 4 * axes
    require(len(data) >= start, owner, f"{path} is damaged: it ends inside its header")
    shape = [int(length) for length in np.frombuffer(data, ">u4", axes, 4)]
    size = start + math.prod(shape) * _TYPES[kind].itemsize
    require(len(data) == size, owner, f"{path} is damaged: it holds {len(data)} bytes, its header promises {size}")
    try:
        numbers = np.frombuffer(data, _TYPES[kind], offset=start).reshape(shape)
    except ValueError:  # no rows, of more numbers than an array can have
        raise fail(owner, f"{path} is damaged: it has rows of {' x '.join(map(str, shape[1:]))}") from None
    return torch.from_numpy(numbers.astype(_TYPES[kind].newbyteorder("=")))


def _unpacked(owner: str, path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        packed = path.stat().st_size
        most = max(SMALL, RATIO * packed)
        with gzip.open(path, "rb") as stream:
            data = stream.read(most + 1)
        check_growth(packed, len(data))
        return data
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise fail(owner, f"{path} is damaged: expected a gzip file, got {error}") from None


def read_images(owner: str, path: Path, side: int) -> Tensor:
    """Grey square images as bytes, (n, 1, side, side)."""
    images = read_idx(owner, path, 8, 3)
    shape = tuple(images.shape[1:])
    require(shape == (side, side), owner, f"{path} holds images of {shape}, expected {(side, side)}")
    return images.unsqueeze(1)


def same_rows(owner: str, images: Tensor, labels: Tensor, path: Path) -> None:
    """Refuse images and labels of different numbers."""
    require(len(images) == len(labels), owner, f"{path} holds {len(labels)} labels for {len(images)} images")
