"""Pictures of a report that are not charts of numbers: shares in the mix, the split, samples. Some need the data."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedchord.check import FedchordError
from fedchord.data import outline
from fedchord.data.federation import Federation
from fedchord.data.picture import split_figure
from fedchord.data.samples import sizes_figure
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.reading import Run
from fedchord.report import sample_words
from fedchord.report.page.charts import canvas
from fedchord.report.page.problems import Problem, Row
from fedchord.report.plots import Floats, share_table
from fedchord.synthetic.look import grid
from fedchord.synthetic.quality import real_beside
from fedchord.synthetic.set import SET, SyntheticSet, load, to_image

MIDDLE = "#2a8fd0"
"""A blue that is seen on white and on black: pictures do not change with the page."""
CLASSES, COLUMNS = 10, 10
"""The most classes, and samples of each, that are shown."""

Told = Callable[[str], None]


# -- shares in the mix ---------------------------------------------------------------------------------------------


def shares(problem: Problem, told: Told) -> list[tuple[list[Row], Floats]]:
    """How much each client counted in each round of a first seed, (clients, rounds); rows that mix alike together."""
    found: list[tuple[list[Row], Floats]] = []
    for row in problem.rows:
        try:
            table = share_table(row.group.runs[0])
        except FedchordError as error:
            told(str(error))
            continue
        same = [rows for rows, other in found if _alike(table, other)]
        if same:
            same[0].append(row)
        elif np.isfinite(table).any():
            found.append(([row], table))
    return found


def _alike(table: Floats, other: Floats) -> bool:
    return table.shape == other.shape and bool(np.allclose(table, other, rtol=0, atol=1e-6, equal_nan=True))


def ends(tables: Sequence[Floats]) -> tuple[float, float]:
    """The smallest and the largest share of all."""
    return min(float(np.nanmin(table)) for table in tables), max(float(np.nanmax(table)) for table in tables)


def mixing(table: Floats, low: float, high: float) -> Figure:
    """Clients up, rounds to the right: the fuller the colour, the larger the share; empty where a client was absent."""
    figure, axes = canvas(170, 260)
    ink = to_rgb(MIDDLE)
    shades = LinearSegmentedColormap.from_list("shares", [(*ink, 0.1), (*ink, 1.0)])
    count, rounds = table.shape
    axes.imshow(
        np.ma.masked_invalid(table),
        aspect="auto",
        origin="lower",
        extent=(0.5, rounds + 0.5, -0.5, count - 0.5),
        vmin=low,
        vmax=high,
        cmap=shades,
        interpolation="nearest",
    )
    axes.grid(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel("client")
    return figure


# -- the split -----------------------------------------------------------------------------------------------------


def federation(run: Run, told: Told) -> Federation | None:
    """The clients with their rows, read anew; None where that cannot be done, which is told."""
    try:
        return RunFolder(run.folder).read_config().federation()
    except FedchordError as error:
        told(f"the data were not read, so that classes and real samples are not shown: {error}")
        return None


def split(run: Run, rows: Federation | None, told: Told) -> Figure | None:
    """Who holds what: by class with the rows, else how many rows each client has."""
    if rows is not None and rows.columns["y"].ndim == 1 and not rows.regression:
        return split_figure(rows)
    try:
        return sizes_figure(rows if rows is not None else outline.load(RunFolder(run.folder).outline))
    except FedchordError as error:
        told(str(error))
        return None


# -- samples -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A grid of pictures, a row per class, as a PNG within the page."""

    title: str
    png: str


@dataclass(frozen=True)
class Samples:
    """The grids of several methods, real ones first, and what was measured of each."""

    panels: tuple[Panel, ...]
    notes: tuple[tuple[str, tuple[str, ...]], ...]


def samples(problem: Problem, rows: Federation | None, told: Told) -> Samples | None:
    """The synthetic sets of a problem beside real rows; None where no method ends with samples."""
    panels: list[Panel] = []
    notes: list[tuple[str, tuple[str, ...]]] = []
    for row in problem.rows:
        run = row.group.runs[0]
        if not run.summary.get("synthetic"):
            continue
        notes.append((row.label, tuple(sample_words.notes(run.summary["synthetic"]))))
        try:
            made = load(run.folder / SET)
        except FedchordError as error:
            told(str(error))
            continue
        if len(made.shape) != 3 or made.shape[0] not in (1, 3):
            continue
        if rows is not None and not panels:
            panels.append(Panel("real", png(real_beside(rows, made))))
        panels.append(Panel(row.label, png(made)))
    return Samples(tuple(panels), tuple(notes)) if notes else None


def png(made: SyntheticSet) -> str:
    """The first samples of the first classes as the address of a picture within the page."""
    kept = min(made.classes, CLASSES) * made.spc
    first = SyntheticSet(made.x[:kept], made.y[:kept], made.low, made.high, min(made.classes, CLASSES), made.owner)
    written = io.BytesIO()
    to_image(grid(first, COLUMNS)).save(written, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"
