"""Figures of the studies of privacy: what is left of accuracy at every epsilon."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from fedchord.check import require
from fedchord.experiments.reading import Run
from fedchord.report.plots import COLOURS
from fedchord.thesis.figure_data import Cells
from fedchord.thesis.figure_draw import Drawing, Row, grid_of

MARKERS, LINES = "osv^DP", ("--", ":", "-.")
METRICS = ("auroc", "top1")
COLUMNS = {
    ("", "mean"): "mean over clients",
    ("", "worst10"): "worst tenth",
    ("official", "mean"): "official test rows",
}
"""What is drawn where runs have it, and its title; "" is the metric of the runs."""
APART = ("privacy.epsilon", "privacy.noise", "seed", "out")
"""What runs of one line may differ in."""
ASIDE = 1.04
"""How far the points of a line lie beside those of the one before."""


def epsilons(cells: Cells) -> Drawing:
    """A panel per column: a line over epsilon for each method (and cohort), ending without noise; what hides nothing
    is a level. Bars are one std over seeds."""
    first = next(iter(cells.values()))[0]
    metric = next(name for name in METRICS if first.value(name, "mean") is not None)
    shown = {key: title for key, title in COLUMNS.items() if first.value(key[0] or metric, key[1]) is not None}
    if ("official", "mean") in shown:  # of a synthetic set all clients use one classifier
        shown.pop(("", "worst10"), None)
    hidden = [run.config.get("privacy.epsilon") for runs in cells.values() for run in runs]
    known = sorted({float(value) for value in hidden if value is not None})
    require(bool(known), "figure", "no run has an epsilon")
    figure, grid = grid_of(1, len(shown), 4.2, 3.0)
    rows: list[Row] = []
    for axes, ((name, column), title) in zip(grid.flat, shown.items(), strict=True):
        rows += _panel(axes, cells, name or metric, column, known)
        axes.set_title(title, fontsize=10)
    grid[0, 0].set_ylabel(f"{metric}, %")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=5)
    return Drawing(figure, ("method", "epsilon", "metric", "column", "value", "std", "seeds"), rows)


def _panel(axes: Axes, cells: Cells, metric: str, column: str, known: Sequence[float]) -> list[Row]:
    end, rows = 2 * known[-1], list[Row]()
    lines: dict[str, list[tuple[float, float, float, str]]] = {}
    levels: list[tuple[str, float]] = []
    methods: dict[str, str] = {}
    families = {_family(runs[0]) for runs in cells.values() if runs[0].config.get("privacy.epsilon") is not None}
    for (method, _), runs in cells.items():
        found = [value for run in runs if (value := run.value(metric, column)) is not None]
        mean, std = float(np.mean(found)), float(np.std(found, ddof=1)) if len(found) > 1 else 0.0
        given, family = runs[0].config.get("privacy.epsilon"), _family(runs[0])
        rows.append((method, "" if given is None else float(given), metric, column, mean, std, len(found)))
        if family in families:
            methods[family] = str(runs[0].config.get("method"))
            lines.setdefault(family, []).append((end if given is None else float(given), mean, std, method))
        else:
            levels.append((method, mean))
    for number, (family, points) in enumerate(lines.items()):
        points.sort()
        x, y, bars, names = zip(*points, strict=True)
        x = tuple(ASIDE**number * value for value in x)  # so that bars can be told apart
        style = f"{MARKERS[number % len(MARKERS)]}-"
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(
            x, y, yerr=bars, fmt=style, color=colour, markersize=4, linewidth=1.4, label=_called(names, methods[family])
        )
    for number, (method, mean) in enumerate(levels):
        axes.axhline(mean, color="0.45", linewidth=1, linestyle=LINES[number % len(LINES)], label=method)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([*known, end]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([*(f"{value:g}" for value in known), "no noise"])
    axes.set_xlabel("epsilon")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0, symbol=""))
    return rows


def _family(run: Run) -> str:
    """What runs of one line have alike."""
    return repr(sorted((key, str(value)) for key, value in run.config.items() if key not in APART))


def _called(names: Sequence[str], method: str) -> str:
    """What the names of a line's points begin with alike, or its method; the whole name of one point alone."""
    if len(names) == 1:
        return names[0]
    heads = [name.replace(",", "").split() for name in names if not name.endswith("no noise")]
    common = [words[0] for words in zip(*heads, strict=False) if len(set(words)) == 1]
    return " ".join(common).replace("epsilon", method)
