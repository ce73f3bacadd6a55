"""Pictures to look at: a grid whose rows are classes, a strip of samples over rounds, several grids on one sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedchord.check import require
from fedchord.files import written
from fedchord.synthetic.set import OWNER, SyntheticSet, to_image

if TYPE_CHECKING:
    from PIL import Image

GAP = 2
"""Pixels between two pictures."""
PAPER = 255
TITLE = 14
"""Pixels above a grid for its title."""
SMALLEST = 56
"""Pictures are enlarged by a whole number so that they have at least so many pixels."""


def grid(made: SyntheticSet, columns: int = 10) -> Tensor:
    """Rows are classes, columns the first samples of each: bytes (channels, height, width)."""
    require(columns >= 1, OWNER, f"columns must be at least 1, got {columns}")
    pixels = made.pixels().reshape(made.classes, made.spc, *made.shape)
    return tiled(pixels[:, :columns])


def strip(sets: Mapping[int, SyntheticSet], samples: Sequence[int] | None = None) -> Tensor:
    """Rows are samples (by default the first of every class), columns the rounds in order."""
    require(bool(sets), OWNER, "there is no snapshot to show")
    first = next(iter(sets.values()))
    picked = list(samples) if samples is not None else [label * first.spc for label in range(first.classes)]
    for made in sets.values():
        require(made.x.shape == first.x.shape, OWNER, "the snapshots have different shapes")
    return tiled(torch.stack([sets[round].pixels()[picked] for round in sorted(sets)], 1))


def tiled(pixels: Tensor) -> Tensor:
    """Pictures (rows, columns, channels, height, width) as one, enlarged, with gaps between them."""
    rows, columns, channels, height, width = pixels.shape
    times = max(1, -(-SMALLEST // max(height, width)))
    pixels = pixels.repeat_interleave(times, 3).repeat_interleave(times, 4)
    high, wide = times * height + GAP, times * width + GAP
    whole = torch.full((channels, rows * high + GAP, columns * wide + GAP), PAPER, dtype=torch.uint8)
    for row in range(rows):
        for column in range(columns):
            top, left = row * high + GAP, column * wide + GAP
            whole[:, top : top + times * height, left : left + times * width] = pixels[row, column]
    return whole


def sheet(panels: Mapping[str, Tensor]) -> Image.Image:
    """Several grids side by side, each under its title."""
    from PIL import Image, ImageDraw

    require(bool(panels), OWNER, "there is nothing to show")
    drawn = {title: to_image(pixels).convert("RGB") for title, pixels in panels.items()}
    height = max(picture.height for picture in drawn.values()) + TITLE
    width = sum(picture.width + 4 * GAP for picture in drawn.values())
    paper = Image.new("RGB", (width, height), (PAPER,) * 3)
    pen, left = ImageDraw.Draw(paper), 0
    for title, picture in drawn.items():
        pen.text((left + GAP, 1), title, fill=(0, 0, 0))
        paper.paste(picture, (left, TITLE))
        left += picture.width + 4 * GAP
    return paper


def write(picture: Tensor | Image.Image, path: str | Path) -> Path:
    """Write a picture as a PNG file."""
    file = Path(path)
    require(file.suffix == ".png", OWNER, f"the picture must end in .png, got {str(file)!r}")
    image = to_image(picture) if isinstance(picture, Tensor) else picture
    with written(file) as partial:
        image.save(partial, format="PNG")
    return file
