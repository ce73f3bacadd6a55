"""The figure of fair weights beside the personal step: worst tenth against mean, for every rule, before and after it.

A row of the study is called RULE, FORM; the form "personal" is after the step, any other before it. The first rule is
the control, to which the others are compared by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedchord.check import require
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import Run
from fedchord.report.judges_table import Paired, paired
from fedchord.report.plots import COLOURS
from fedchord.thesis.figure_data import Cells
from fedchord.thesis.figure_draw import Drawing, Row, grid_of
from fedchord.thesis.figure_fair import by_setting

PERSONAL = "personal"
COLUMNS = ("mean", "worst10")
HEADS = ("setting", "rule", "personal", "column", "value", "seeds", "less_control", "low", "high")

Points = dict[int, tuple[float, float]]
"""Mean and worst tenth in percent, by seed."""


def tradeoff(cells: Cells) -> Drawing:
    """A row per setting: the rules before and after the personal step, a line between the two; then, before and after,
    what each rule gains over the control, paired by seed, with 95 % intervals of Student's t over seeds."""
    columns = by_setting(cells)
    figure, grid = grid_of(len(columns), 3, 3.6, 3.3)
    rows: list[Row] = []
    for (whole, *beside), (setting, methods) in zip(grid, columns.items(), strict=True):
        before, after = forms(methods)
        first, rules = next(iter(before)), list(before)
        for number, rule in enumerate(rules):
            ends = [_mean(form[rule]) for form in (before, after) if rule in form]
            colour = COLOURS[number % len(COLOURS)]
            whole.plot(*zip(*ends, strict=True), color=colour, linewidth=0.8)
            whole.plot(*ends[0], "o", color=colour, markerfacecolor="none", markersize=6, label=rule)
            whole.plot(*ends[-1], "o" if len(ends) > 1 else "", color=colour, markersize=6)
        _named(whole, f"{setting}\nring: before the personal step, dot: after" if after else setting)
        whole.legend(frameon=False, fontsize=8, loc="upper left")
        for axes, form, title in zip(beside, (before, after), ("before", "after"), strict=True):
            axes.set_visible(first in form)
            for number, rule in enumerate(rules):
                if rule in form and first in form:
                    gains = [_gain(form[rule], form[first], column) for column in (0, 1)]
                    _cross(axes, gains, COLOURS[number % len(COLOURS)])
                    values = _mean(form[rule])
                    rows += [
                        (setting, rule, title, column, value, len(form[rule]), gain.mean, gain.low, gain.high)
                        for column, value, gain in zip(COLUMNS, values, gains, strict=True)
                    ]
            _named(axes, f"{title} the personal step, less {first}", "points, ")
            axes.axhline(0, color="0.6", linewidth=0.8)
            axes.axvline(0, color="0.6", linewidth=0.8)
    return Drawing(figure, HEADS, rows)


def forms(methods: Mapping[str, Sequence[Run]]) -> tuple[dict[str, Points], dict[str, Points]]:
    """What every rule reaches before and after the personal step, by rule and seed."""
    before: dict[str, Points] = {}
    after: dict[str, Points] = {}
    for label, runs in methods.items():
        rule, _, form = label.rpartition(", ")
        found = after if form == PERSONAL else before
        once = bool(rule) and rule not in found
        require(once, "figure", f"rows must be called RULE, FORM, with one form before the step, got {label!r}")
        found[rule] = {run.seed: (_percent(run, "mean"), _percent(run, "worst10")) for run in runs}
    require(bool(before), "figure", "every row is after the personal step; name one before it with --only")
    return before, after


def _percent(run: Run, column: str) -> float:
    value = run.value(headline(tuple(run.summary["metrics"])), column)
    require(value is not None, str(run.folder), f"has no {column}")
    assert value is not None
    return 100 * value


def _mean(points: Points) -> tuple[float, float]:
    mean, worst = np.mean(list(points.values()), axis=0)
    return float(mean), float(worst)


def _gain(points: Points, control: Points, column: int) -> Paired:
    """What a rule has more than the control, over the seeds that both have."""
    shared = sorted(points.keys() & control.keys())
    require(bool(shared), "figure", "a rule and the control share no seed")
    return paired([points[seed][column] - control[seed][column] for seed in shared])


def _cross(axes: Axes, gains: Sequence[Paired], colour: str) -> None:
    mean, worst = gains
    axes.plot(mean.mean, worst.mean, "o", color=colour, markersize=5)
    axes.plot([mean.low, mean.high], [worst.mean, worst.mean], color=colour, linewidth=1.4)
    axes.plot([mean.mean, mean.mean], [worst.low, worst.high], color=colour, linewidth=1.4)


def _named(axes: Axes, title: str, unit: str = "%, ") -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(f"{unit}mean over clients", fontsize=9)
    axes.set_ylabel(f"{unit}worst tenth", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(5))
