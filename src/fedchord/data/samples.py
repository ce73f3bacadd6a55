"""Pictures of what a data set holds: examples of each class, and how many rows each client has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedchord.check import require
from fedchord.data.federation import Federation, prepare
from fedchord.data.picture import picture_file
from fedchord.data.statistics import client_sizes, statistics
from fedchord.files import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES, COLUMNS = 20, 10
"""The most classes, and examples of each, that are drawn."""
_INK = "#1f4e79"


def samples_picture(federation: Federation, path: str | Path) -> None:
    """Draw examples of the first classes there are, a row per class: the first training rows of different clients.

    Pictures are drawn as they are, sounds as waves; other rows have no picture.
    """
    from matplotlib.figure import Figure  # here, so that importing fedchord does not load matplotlib

    file = picture_file("samples_picture", path)
    x, y = federation.columns["x"], federation.columns["y"]
    kind = _kind(x)
    require(
        bool(kind) and y.ndim == 1, federation.name, "its rows are neither pictures nor sounds, and cannot be drawn"
    )
    chosen = _examples(federation)
    figure = Figure(figsize=(0.8 * COLUMNS + 0.6, 0.8 * len(chosen) + 0.6), layout="constrained")
    axis = figure.add_subplot()
    batches = [prepare({"x": x[rows]})["x"] for rows in chosen.values()]
    (_draw_sounds if kind == "sound" else _draw_pictures)(axis, batches)
    axis.set_xlim(-0.5, COLUMNS - 0.5)
    axis.set_ylim(len(chosen) - 0.5, -0.5)
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks(range(len(chosen)), [str(label) for label in chosen])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_ylabel("class")
    more = f", {len(chosen)} of {federation.classes} classes" if federation.classes > len(chosen) else ""
    axis.set_title(f"{federation.name}: training rows by class{more}", loc="left", fontsize=10)
    write_figure(figure, file, dpi=120)


def _kind(x: Tensor) -> str:
    if x.dtype == torch.int16:
        return "sound"
    pixels = x.ndim == 4 and x.shape[1] in (1, 3)
    return "picture" if pixels and (x.dtype == torch.uint8 or x.is_floating_point()) else ""


def _examples(federation: Federation) -> dict[int, Tensor]:
    """Of each class the first training rows, client by client in turn, so that many clients are seen."""
    held = federation.train
    turn = torch.arange(len(held.rows)) - held.offsets[held.owners]
    rows = held.rows[torch.argsort(turn, stable=True)]
    labels = federation.columns["y"][rows]
    return {label: rows[labels == label][:COLUMNS] for label in labels.unique().tolist()[:CLASSES]}


def _draw_pictures(axis: Axes, batches: list[Tensor]) -> None:
    """All pictures as one, with a white line between them."""
    channels, height, width = batches[0].shape[1:]
    canvas = torch.ones(channels, len(batches) * (height + 1), COLUMNS * (width + 1))
    for line, batch in enumerate(batches):
        for column, image in enumerate(batch):
            top, left = line * (height + 1), column * (width + 1)
            canvas[:, top : top + height, left : left + width] = image.clamp(0, 1)
    pixels: Any = canvas.permute(1, 2, 0).expand(-1, -1, 3).numpy()
    axis.imshow(pixels, extent=(-0.5, COLUMNS - 0.5, len(batches) - 0.5, -0.5), interpolation="nearest")


def _draw_sounds(axis: Axes, batches: list[Tensor]) -> None:
    for line, batch in enumerate(batches):
        for column, wave in enumerate(batch):
            heights = wave.flatten().numpy()[:: max(wave.numel() // 1000, 1)]
            axis.plot(column + np.linspace(-0.47, 0.47, len(heights)), line - 0.47 * heights, color=_INK, linewidth=0.4)


def sizes_picture(federation: Federation, path: str | Path) -> None:
    """Draw how many rows each client has, for data without classes to count."""
    file = picture_file("sizes_picture", path)
    write_figure(sizes_figure(federation), file, dpi=150)


def sizes_figure(federation: Federation) -> Figure:
    """How many rows each client has, from the largest to the smallest; an outline will do."""
    from matplotlib.figure import Figure

    sizes, found = client_sizes(federation).sort(descending=True).values.numpy(), statistics(federation)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.add_subplot()
    axis.stairs(sizes, np.arange(len(sizes) + 1) - 0.5, fill=True, color=_INK)
    axis.axhline(found.mean, color="#d55e00", linewidth=1, label=f"mean {found.mean:.2f}, std {found.std:.2f}")
    axis.set_title(f"{federation.name}: {found.clients} clients, {found.samples} rows", loc="left", fontsize=10)
    axis.set_xlabel("clients, from the largest to the smallest")
    axis.set_ylabel("rows")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    return figure
