"""The figure of the study hostile: what is left of accuracy as more clients are hostile, by attack and defence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from fedchord.check import require
from fedchord.experiments.reading import Run
from fedchord.report.plots import COLOURS
from fedchord.thesis.figure_data import Cells
from fedchord.thesis.figure_draw import Drawing, Row, grid_of

METRIC, MARKERS = "top1", "osv^DP"
PERSONAL = "superfed"
"""What the methods of personal models are called."""


def told(run: Run) -> tuple[str, float]:
    """The attack of a run and the share of its hostile clients; "" and 0 without one."""
    return str(run.config.get("attack") or ""), float(run.config.get("attack.share") or 0.0)


def hostile(cells: Cells) -> Drawing:
    """A column per attack; above the mean accuracy of the global model over honest clients, then its worst tenth, below
    the mean of personal models, where there are some; a line per defence, the mean over seeds."""
    attacks = list(dict.fromkeys(name for runs in cells.values() if (name := told(runs[0])[0])))
    require(bool(attacks), "figure", "no run has an attack")
    kinds = [kind for kind in (False, True) if any(_personal(runs) is kind for runs in cells.values())]
    panels = [("mean", False), ("worst10", False)] if False in kinds else []
    panels += [("mean", True)] if True in kinds else []
    figure, grid = grid_of(len(panels), len(attacks), 2.4, 2.1, sharex=True, sharey=True)
    rows: list[Row] = []
    for line, (column, personal) in enumerate(panels):
        for place, attack in enumerate(attacks):
            rows += _panel(grid[line, place], cells, attack, column, personal)
            grid[line, place].set_title(attack if line == 0 else "", fontsize=10)
        what = "personal models" if personal else "global model"
        grid[line, 0].set_ylabel(f"{'mean' if column == 'mean' else 'worst tenth'},\n{what}", fontsize=9)
    grid[0, -1].legend(frameon=False, fontsize=7, loc="lower left")
    figure.supxlabel("share of hostile clients; top1 of the honest ones", fontsize=9)
    return Drawing(figure, ("attack", "method", "share", "personal", "column", "value", "seeds"), rows)


def _personal(runs: Sequence[Run]) -> bool:
    return PERSONAL in str(runs[0].config.get("method"))


def _panel(axes: Axes, cells: Cells, attack: str, column: str, personal: bool) -> list[Row]:
    lines: dict[str, list[tuple[float, float, int]]] = {}
    for (method, _), runs in cells.items():
        name, share = told(runs[0])
        if name in ("", attack) and _personal(runs) is personal:
            found = [value for run in runs if (value := run.value(METRIC, column)) is not None]
            lines.setdefault(method, []).append((share, float(np.mean(found)), len(found)))
    for number, points in enumerate(lines.values()):
        points.sort()
        style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
        name = list(lines)[number].removeprefix("SuPerFed, ")
        axes.plot([p[0] for p in points], [p[1] for p in points], markersize=3.5, linewidth=1.3, label=name, **style)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    axes.set_ylim(0, 1)
    return [(attack, method, *p[:1], personal, column, *p[1:]) for method, points in lines.items() for p in points]
