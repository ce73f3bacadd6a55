"""The figure of a sweep: what settings measure on validation rows, along the one number that was swept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedchord.experiments.keys import is_number
from fedchord.experiments.reading import VALIDATION
from fedchord.experiments.sweep_grid import Grid
from fedchord.report.plots import COLOURS, canvas, draw_legend, draw_line, save, value_axis
from fedchord.report.rows import word
from fedchord.report.sweep_table import Row

WIDE = 20
"""Values that span more than this factor stand on a logarithmic axis."""


def numeric_axis(grid: Grid) -> str | None:
    """The axis of numbers, where there is exactly one."""
    found = [key for key in grid.axes if all(is_number(point.keys[key]) for point in grid.points if key in point.axes)]
    return found[0] if len(found) == 1 else None


def draw(grid: Grid, rows: Sequence[Row], metric: str, to: Path) -> bool:
    """Write the figure, a line for each method (and each value of other axes); false where there is none to draw.

    A method without the parameter that is swept is a level line.
    """
    axis = numeric_axis(grid)
    known = [row for row in rows if row.whole and row.runs]
    if axis is None or not any(axis in row.point.axes for row in known):
        return False
    figure, axes = canvas()
    lines: dict[str, list[Row]] = {}
    for row in known:
        others = [f"{key}={word(row.point.keys[key])}" for key in row.point.axes if key not in (axis, "method")]
        lines.setdefault(" ".join([row.point.method, *others]), []).append(row)
    places = sorted({float(row.point.keys[axis]) for row in known if axis in row.point.axes})
    for number, (name, several) in enumerate(lines.items()):
        if axis not in several[0].point.axes:
            level = float(np.mean(_values(several[0], metric)))
            axes.axhline(level, color=COLOURS[number % len(COLOURS)], linestyle="--", label=f"{name} (has no {axis})")
            continue
        several = sorted(several, key=lambda row: float(row.point.keys[axis]))
        x = np.array([float(row.point.keys[axis]) for row in several])
        draw_line(axes, number, name, x, np.array([_values(row, metric) for row in several]).T, markers=True)
    if places[0] > 0 and places[-1] / places[0] > WIDE:
        axes.set_xscale("log")
    axes.set_xlabel(axis)
    value_axis(axes, metric, f", mean over clients, {VALIDATION} rows")
    draw_legend(axes, {len(grid.seeds)})
    save(figure, to)
    return True


def _values(row: Row, metric: str) -> list[float]:
    """The values of all seeds."""
    found = [run.value(metric, "mean", VALIDATION) for run in row.runs]
    return [np.nan if value is None else value for value in found]
