"""Pictures in files (JPEG, PNG), read by Pillow into bytes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedchord.check import fail, require

if TYPE_CHECKING:
    from PIL.Image import Image

BICUBIC = 3
"""Pillow's number of the bicubic filter; Pillow itself is imported where a picture is read, so that only data sets of
pictures pay for it."""


def decoded(owner: str, path: Path, mode: str | None = None) -> Image:
    """A picture, whole, in a mode (L: grey, RGB; None: its own); a file that is damaged or none is named."""
    from PIL import Image

    require(path.is_file(), owner, f"{path}: no such file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow warns of damage it can read past
            with Image.open(path) as picture:
                if mode is None:
                    picture.load()
                    return picture.copy()
                return picture.convert(mode)
    except Exception as error:  # a damaged picture raises almost anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise fail(owner, f"{path} is damaged: expected a picture, got {reason}") from None


def read_image(
    owner: str, path: Path, side: int, size: tuple[int, int] | None = None, middle: bool = False
) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """A picture as RGB bytes, (3, side, side), and the size (width, height) it had.

    With `size` any other size is refused; a picture that is not side x side is squeezed to it (bicubic), or, with
    `middle`, scaled until its shorter side fits and cut to its middle.
    """
    colour = decoded(owner, path, "RGB")
    found = (int(colour.size[0]), int(colour.size[1]))
    if size is not None:
        wanted, got = (f"{width}x{height}" for width, height in (size, found))
        require(found == size, owner, f"{path} must have {wanted} pixels, got {got} pixels")
    if middle and found[0] != found[1]:
        scale = side / min(found)
        whole = (max(side, round(scale * found[0])), max(side, round(scale * found[1])))
        colour = colour if whole == found else colour.resize(whole, BICUBIC)
        left, top = ((length - side) // 2 for length in whole)
        colour = colour.crop((left, top, left + side, top + side))
    elif found != (side, side):
        colour = colour.resize((side, side), BICUBIC)
    return np.ascontiguousarray(np.asarray(colour, dtype=np.uint8).transpose(2, 0, 1)), found
