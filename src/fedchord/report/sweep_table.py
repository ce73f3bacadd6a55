"""The table of a sweep: settings down, what they measure on validation rows, and test numbers of the chosen ones.

A setting is chosen for each method (and each problem, where data or split are swept): the best mean over seeds on
validation rows; of those that tie the lowest loss on the same rows decides, then the order of the grid. The choice
reads nothing else: test numbers come in when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedchord.experiments.reading import TEST, VALIDATION, Run
from fedchord.experiments.study import Study
from fedchord.experiments.sweep_grid import Grid, Point
from fedchord.metrics import HIGHER_IS_BETTER
from fedchord.report import notes as wording
from fedchord.report.cells import DASH, Cell, Head, Table, cell_of, estimate, head_of
from fedchord.report.rows import Group, is_problem, word

FEWER = "*"
TIES = 12
"""Digits to which two means are the same."""


@dataclass(frozen=True)
class Row:
    """A setting, its finished runs by seed, and whether it was chosen."""

    point: Point
    runs: tuple[Run, ...]
    whole: bool
    """Whether all of its seeds are finished."""
    chosen: bool = False

    def value(self, metric: str) -> float:
        """The mean over seeds on validation rows; NaN where it is not known for every seed."""
        found = estimate(self.runs, metric, "mean", rows=VALIDATION) if self.runs and self.whole else None
        return math.nan if found is None else found.mean

    @property
    def group(self) -> tuple[str, ...]:
        """What the choice is made within: the problem and the method."""
        return (*self.problem, self.point.method)

    @property
    def problem(self) -> tuple[str, ...]:
        """The axes that decide what is learnt, such as the data; they are no choices."""
        return tuple(f"{key}={word(self.point.keys[key])}" for key in self.point.axes if is_problem(key))


def rows(grid: Grid, out: Path, metric: str) -> list[Row]:
    """Every setting of a grid in its order, the best of each method chosen on validation rows."""
    found = grid.plan.runs(out)
    every = [_row(point, found.get((point.label, ""), []), len(grid.seeds)) for point in grid.points]
    best = [_best([row for row in every if row.group == group], metric) for group in {row.group: 0 for row in every}]
    return [replace(row, chosen=any(row is one for one in best)) for row in every]


def _row(point: Point, runs: Sequence[Run], seeds: int) -> Row:
    return Row(point, tuple(runs), len(runs) == seeds)


def _best(several: Sequence[Row], metric: str) -> Row | None:
    """The best of several settings; none where no setting has a value."""
    able = [row for row in several if not math.isnan(row.value(metric))]
    return min(able, key=lambda row: _order(row, metric), default=None)


def _order(row: Row, metric: str) -> tuple[float, float]:
    value, loss = row.value(metric), row.value("loss")
    signed = -value if metric in HIGHER_IS_BETTER else value
    return round(signed, TIES), math.inf if math.isnan(loss) else round(loss, TIES)


def winners(every: Sequence[Row], metric: str) -> list[Row]:
    """The best of the chosen settings, one for each problem."""
    chosen = [row for row in every if row.chosen]
    best = [
        _best([row for row in chosen if row.problem == problem], metric) for problem in {r.problem: 0 for r in chosen}
    ]
    return [row for row in best if row is not None]


def told(study: Study, summary: Mapping[str, Any], setting: str = "") -> str:
    """What one run measured on validation rows, in a few words."""
    done = Run(Path(), {}, dict(summary))
    value = cell_of(estimate([done], study.metric, "mean", rows=VALIDATION), study.metric, "mean")
    seconds = float(summary.get("seconds", {}).get("total", 0))
    return f"{VALIDATION} {head_of(study.metric, 'mean')} {value} in {seconds:.1f} s"


def tabulate(grid: Grid, every: Sequence[Row], metric: str) -> Table:
    """Settings down; the chosen ones in bold, with test numbers beside."""
    axes = [key for key in grid.axes if key != "method"]
    heads = [Head("method"), *(Head(key) for key in axes), Head("seeds")]
    heads += [Head(f"{VALIDATION} {head_of(metric, 'mean')}", numbers=True), Head("chosen")]
    heads += [Head(f"{TEST} {head_of(metric, column)}", numbers=True) for column in ("mean", "worst10")]
    body = tuple(
        (
            Cell(row.point.method),
            *(Cell(word(row.point.keys[key]) if key in row.point.axes else DASH) for key in axes),
            Cell(f"{len(row.runs)}{'' if row.whole else FEWER}"),
            replace(_cell(row, metric, "mean", VALIDATION), best=row.chosen),
            Cell("yes" if row.chosen else DASH),
            *(_cell(row, metric, column, TEST) if row.chosen else Cell(DASH) for column in ("mean", "worst10")),
        )
        for row in every
    )
    return Table(tuple(heads), body, tuple(_notes(grid, every)))


def _cell(row: Row, metric: str, column: str, on: str) -> Cell:
    return cell_of(estimate(row.runs, metric, column, rows=on) if row.runs else None, metric, column)


def _notes(grid: Grid, every: Sequence[Row]) -> list[str]:
    chosen = [row for row in every if row.chosen]
    each = "of each method and problem" if any(row.problem for row in every) else "of each method"
    made = [
        f"chosen (bold): the best mean on {VALIDATION} rows {each}, over seeds; of equal ones the lowest loss there",
        f"{TEST} numbers are those of the chosen settings; the others' were not looked at for the choice",
        *wording.spread_notes([row.runs for row in every]),
    ]
    if not all(row.whole for row in every):
        made.append(f"{FEWER} fewer than the {len(grid.seeds)} seeds asked for: not chosen from")
    names = [(row.point.method, row.point.label) for row in chosen]
    return made + wording.protocol([Group(row.runs) for row in chosen], names)


def best_lines(every: Sequence[Row], metric: str) -> list[str]:
    """The chosen setting of each method, in a line."""
    lines = []
    for row in every:
        if row.chosen:
            held, tested = (_cell(row, metric, "mean", on) for on in (VALIDATION, TEST))
            worst = _cell(row, metric, "worst10", TEST)
            numbers = f"{VALIDATION} {held}, {TEST} {tested}, worst tenth {worst}"
            lines.append(f"best of {row.point.method}: {row.point.label} ({head_of(metric, 'mean')}: {numbers})")
    return lines
