"""A picture of a federation: which client holds how many rows of which class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedchord.check import require
from fedchord.data.federation import Federation
from fedchord.files import write_figure
from fedchord.notebook import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Up to this many clients (and classes) a dot per client and class can be told apart; above it, colours of a map.
_DOTS, _DOT_CLASSES = 50, 40
_LETTERS = 24
_FORMATS = (".png", ".pdf", ".svg")
_INK, _GRID = "#1f4e79", "#d9d9d9"
_SHADES = ("#c6dbef", "#4292c6", "#08306b")


def class_counts(federation: Federation) -> NDArray[np.int64]:
    """Rows per client and class (clients x classes), over training, validation and test rows together."""
    labels = federation.columns["y"]
    require(labels.ndim == 1, federation.name, "has several labels per row, so there are no classes to count")
    total = torch.zeros(federation.num_clients * federation.classes, dtype=torch.int64)
    for part in (federation.train, federation.validation, federation.test):
        total += torch.bincount(part.owners * federation.classes + labels[part.rows], minlength=len(total))
    return total.reshape(federation.num_clients, federation.classes).numpy()


def picture_file(owner: str, path: str | Path) -> Path:
    """The file of a picture, in a folder that is there and of a known format."""
    file = Path(path)
    require(file.parent.is_dir(), owner, f"{file.parent} is not a folder")
    require(file.suffix in _FORMATS, owner, f"{file.name} must end in {', '.join(_FORMATS)}")
    return file


def split_picture(federation: Federation, path: str | Path) -> None:
    """Write a picture of the split: the clients' sizes above, and the classes of each client below."""
    file = picture_file("split_picture", path)
    write_figure(split_figure(federation), file, dpi=150)


def split_figure(federation: Federation) -> Figure:
    """The picture of the split.

    Few clients are drawn as dots whose areas are row counts. Many clients are drawn as a map of each client's class
    shares, sorted by their largest class, since their order means nothing.
    """
    from matplotlib.figure import Figure  # here, so that importing fedchord does not load matplotlib

    counts = class_counts(federation)
    few = len(counts) <= _DOTS and federation.classes <= _DOT_CLASSES
    width = min(12.0, 3.5 + 0.28 * len(counts)) if few else 10.0
    height = min(10.0, 2.6 + 0.26 * federation.classes) if few else 6.0
    figure = Figure(figsize=(max(width, 6.0), max(height, 4.0)), layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=(1, 4), hspace=0.02)
    sizes = figure.add_subplot(grid[0])
    classes = figure.add_subplot(grid[1], sharex=sizes)
    (_dots if few else _map)(figure, sizes, classes, counts, federation)
    _dress(sizes, classes, counts, federation)
    return figure


def _dots(figure: Figure, sizes: Axes, classes: Axes, counts: NDArray[np.int64], federation: Federation) -> None:
    client, label = np.nonzero(counts)
    largest = max(int(counts.max()), 1)
    scale = (260.0 if len(counts) <= 30 else 150.0) / largest
    classes.scatter(client, label, s=np.maximum(counts[client, label] * scale, 2.0), color=_INK, linewidths=0, zorder=2)
    for amount in sorted({_round(largest * share) for share in (1.0, 0.25, 0.05)}):
        classes.scatter([], [], s=max(amount * scale, 2.0), color=_INK, linewidths=0, label=f"{amount}")
    classes.legend(
        title="rows", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, labelspacing=1.0, borderaxespad=0.2
    )
    classes.grid(color=_GRID, linewidth=0.6)
    classes.set_axisbelow(True)
    names = [_short(name) for name in federation.client_names]
    ticks: Any = range(len(counts))
    crowded = max(len(name) for name in names) * len(counts) > 90
    classes.set_xticks(ticks, names, rotation=90 if crowded else 0, parse_math=False)
    classes.set_xlabel("client")
    sizes.bar(range(len(counts)), counts.sum(axis=1), color=_INK, width=0.7)


def _short(name: str) -> str:
    """A name that leaves room for the picture."""
    line = one_line(name)
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 3]}..."


def _round(amount: float) -> int:
    """A whole number of one significant digit, for the legend."""
    return max(int(float(f"{amount:.0e}")), 1)


def _map(figure: Figure, sizes: Axes, classes: Axes, counts: NDArray[np.int64], federation: Federation) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
    drawn = np.ma.masked_equal(shares[order].T, 0.0)
    image = classes.imshow(
        drawn,
        aspect="auto",
        origin="lower",
        cmap=LinearSegmentedColormap.from_list("shares", _SHADES),
        vmin=0.0,
        vmax=1.0,
        interpolation="nearest",
        rasterized=True,
    )
    figure.colorbar(image, ax=classes, label="share of the client's rows", pad=0.01)
    classes.set_xlabel("clients, sorted by their largest class")
    sizes.stairs(counts.sum(axis=1)[order], np.arange(len(counts) + 1) - 0.5, fill=True, color=_INK)


def _dress(sizes: Axes, classes: Axes, counts: NDArray[np.int64], federation: Federation) -> None:
    """What both kinds of picture have: title, limits, ticks."""
    held = np.count_nonzero(counts, axis=1)
    sizes.set_title(
        f"{_short(federation.name)}: {len(counts)} clients, {counts.sum()} rows, "
        f"{held.min()} to {held.max()} of {federation.classes} classes per client",
        loc="left",
        fontsize=10,
        parse_math=False,  # a name with $ in it is no formula
    )
    sizes.set_ylabel("rows")
    sizes.set_ylim(bottom=0)
    sizes.tick_params(labelbottom=False)
    sizes.spines[["top", "right"]].set_visible(False)
    classes.set_xlim(-0.5, len(counts) - 0.5)
    classes.set_ylim(-0.5, federation.classes - 0.5)
    if federation.classes <= _DOT_CLASSES:
        names = federation.class_names or tuple(map(str, range(federation.classes)))
        ticks: Any = range(federation.classes)
        classes.set_yticks(ticks, [_short(name) for name in names], parse_math=False)
    classes.set_ylabel("class")
