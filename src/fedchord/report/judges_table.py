"""The table of a panel of judges, with paired differences over the seeds of the runs.

For the seeds s = 1..n that a row and its reference both have, d_s is the difference of their overall accuracies, each a
mean over judges. The interval is that of the paired t-test, mean(d) -+ t std(d) / sqrt(n), with t the 97.5 % quantile
of Student's distribution with n - 1 degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedchord.check import FedchordError, require
from fedchord.experiments.reading import Run
from fedchord.metrics import over_seeds
from fedchord.report import rows
from fedchord.report.cells import DASH, Cell, Head, Table
from fedchord.report.compare import LEVEL, lined_up
from fedchord.report.rows import Group
from fedchord.synthetic.panel import Panel, Verdicts, overall

REAL = "real"
"""The name of as many real rows as a reference."""
Found = Mapping[Path, Verdicts]
"""Verdicts by run folder."""


@dataclass(frozen=True)
class Paired:
    """Differences over seeds: their mean, the interval of the paired t-test and its two-sided p; NaN where n < 2."""

    mean: float
    low: float
    high: float
    p: float
    seeds: int


def paired(differences: Sequence[float]) -> Paired:
    """The paired t-test of some differences."""
    from scipy.special import stdtr, stdtrit

    n = len(differences)
    mean, std = over_seeds(differences)
    if n < 2:
        return Paired(mean, math.nan, math.nan, math.nan, n)
    error = std / math.sqrt(n)
    reach = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * error
    p = 2 * float(stdtr(n - 1, -abs(mean) / error)) if error else float(mean == 0)
    return Paired(mean, mean - reach, mean + reach, p, n)


def tabulate(panel: Panel, runs: Sequence[Run], found: Found, real: Found, against: str | None) -> Table:
    """Rows down, judges across: accuracies in percent, mean (std over seeds), and the difference to a reference."""
    groups = rows.group(runs)
    labels, keys = _labels(groups), rows.differing_problems(groups)
    pairs = {}
    if against is not None:
        pairs = _pairs_with_real(groups, found, real) if against == REAL else _pairs(runs, found, against)
    heads = [*keys, "set", *panel.classifiers, "all", "seeds"]
    heads += ["difference", "low", "high", "p"] if against is not None else []
    lines = [
        [*_line(g, keys, label, panel, [found[run.folder] for run in g.runs]), *_difference(pairs.get(id(g.runs[0])))]
        for g, label in zip(groups, labels, strict=True)
    ]
    for block in rows.blocks(groups) if real else []:
        beside = {run.seed: real[run.folder] for g in block for run in g.runs if run.folder in real}
        lines.append([*_line(block[0], keys, "as many real rows", panel, list(beside.values())), *_difference(None)])
    body = tuple(tuple(line[: len(heads)]) for line in lines)
    return Table(tuple(Head(name) for name in heads), body, tuple(_notes(panel, against)))


def _labels(groups: Sequence[Group]) -> list[str]:
    """A row by its method and what tells it apart from others of the same problem."""
    named = {id(g): label for block in rows.blocks(groups) for g, label in zip(block, rows.labels(block), strict=True)}
    return [named[id(g)] for g in groups]


def _line(group: Group, keys: Sequence[str], label: str, panel: Panel, seen: Sequence[Verdicts]) -> list[Cell]:
    by_judge = [[overall({name: one[name]}) for one in seen] for name in panel.classifiers]
    cells = [_cell(values) for values in (*by_judge, [overall(one) for one in seen])]
    return [*(Cell(rows.value(group, key)) for key in keys), Cell(label), *cells, Cell(str(len(seen)))]


def _cell(values: Sequence[float]) -> Cell:
    mean, std = over_seeds(values)
    return Cell("", 100 * mean, 100 * std if len(values) > 1 else None)


def _difference(found: Paired | None) -> list[Cell]:
    if found is None:
        return [Cell(DASH)] * 4
    spread = [Cell(DASH) if math.isnan(end) else Cell(f"{100 * end:+.2f}") for end in (found.low, found.high)]
    return [Cell(f"{100 * found.mean:+.2f}"), *spread, Cell(DASH if math.isnan(found.p) else f"{found.p:.4f}")]


def _pairs(runs: Sequence[Run], found: Found, against: str) -> dict[int, Paired]:
    """The difference of every row to the reference on the same problem, by the row's first run; a problem that has no
    such reference has none, but one of them must."""
    made, missing, lines = {}, [], []
    for block in rows.blocks(rows.group(runs)):
        try:
            lines += lined_up([run for g in block for run in g.runs], against)
        except FedchordError as error:
            missing.append(error)
    if not lines:
        raise missing[0]
    for group, _, base, _ in lines:
        assert base is not None
        here = all(run.folder in found for run in base.runs)
        require(here, "judges", f"{against} was not judged; name it among the runs")
        theirs = {run.seed: overall(found[run.folder]) for run in base.runs}
        shared = [overall(found[run.folder]) - theirs[run.seed] for run in group.runs if run.seed in theirs]
        if shared:
            made[id(group.runs[0])] = paired(shared)
    return made


def _pairs_with_real(groups: Sequence[Group], found: Found, real: Found) -> dict[int, Paired]:
    """The difference of every row to as many real rows of the same clients, drawn by the run's seed."""
    return {
        id(g.runs[0]): paired([overall(found[run.folder]) - overall(real[run.folder]) for run in g.runs])
        for g in groups
    }


def _notes(panel: Panel, against: str | None) -> list[str]:
    where = "the official test rows" if panel.rows == "official" else f"clients' {panel.rows} rows, mean over clients"
    draws = f"{panel.seeds} draw{'s' * (panel.seeds > 1)} of each classifier"
    what = {"top1": "top-1"}.get(panel.metric, panel.metric.replace("-", " "))
    notes = [f"{what} in percent on {where}, mean (std over seeds); {draws}; all: mean over classifiers"]
    if against is not None:
        other = "as many real rows" if against == REAL else against
        notes.append(
            f"difference: all less that of {other}, points, paired over seeds; low, high: {LEVEL:.0%}, p: two-sided t"
        )
    return notes
