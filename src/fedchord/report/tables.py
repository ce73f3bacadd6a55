"""Tables of finished runs: runs that differ only in their seed make one row, mean (spread), best in bold.

Everything printed comes from the runs' summaries; nothing is computed anew except the mean and the standard deviation
over seeds (with n - 1). The notes under a table say how to read it and repeat the protocol of the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedchord.check import one_of, unknown
from fedchord.experiments.columns import COLUMNS, SAMPLES, SPREADS
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import Run
from fedchord.report import notes, rows
from fedchord.report.cells import (
    DAGGER,
    SCALES,
    Cell,
    Estimate,
    Head,
    Table,
    cell_of,
    estimate,
    head_of,
    mark_best,
)
from fedchord.report.rows import Group

USUAL = ("mean", "worst10", "gini")
"""The columns of a table for which none is named."""


def tabulate(
    runs: Iterable[Run],
    metrics: Sequence[str] = (),
    columns: Sequence[str] = (),
    scale: str = "percent",
    spread: str = "seeds",
) -> Table:
    """One row per group of runs: method, the keys in which groups differ, the number of seeds, and the numbers."""
    blocks = rows.blocks(rows.group(runs))
    groups = [g for block in blocks for g in block]
    metrics, columns = _metrics(groups, metrics), columns or USUAL
    for column in columns:
        if column not in COLUMNS:
            raise unknown("column", column, COLUMNS)
    one_of("table", "scale", scale, SCALES)
    one_of("table", "spread", spread, SPREADS)
    keys, wanted = rows.differing(groups), [(metric, column) for metric in metrics for column in columns]
    numbers = [_column(blocks, metric, column, scale, spread) for metric, column in wanted]
    body = tuple(
        (
            Cell(rows.value(g, "method")),
            *(Cell(rows.value(g, key)) for key in keys),
            Cell(str(len(g.runs))),
            *(column[place] for column in numbers),
        )
        for place, g in enumerate(groups)
    )
    heads = [Head("method"), *(Head(key) for key in keys), Head("seeds", numbers=False)]
    heads += [Head(head_of(metric, column, scale), numbers=True) for metric, column in wanted]
    return Table(tuple(heads), body, tuple(_notes(blocks, columns, spread, _any_best(body))))


def _column(blocks: Sequence[Sequence[Group]], metric: str, column: str, scale: str, spread: str) -> list[Cell]:
    """One column of numbers, the best of each problem in bold."""
    found = [[estimate(g.runs, metric, column, spread) for g in block] for block in blocks]
    mixed = any(e is not None and e.over == "seeds" for block in found for e in block)
    marked: list[Cell] = []
    for block in found:
        cells = [_cell(e, metric, column, scale, mixed) for e in block]
        marked += mark_best(cells, metric, column)
    return marked


def _cell(found: Estimate | None, metric: str, column: str, scale: str, mixed: bool) -> Cell:
    """An estimate as it is printed; a mark at a spread over clients, where other rows have theirs over seeds."""
    cell = cell_of(found, metric, column, scale)
    return replace(cell, mark=DAGGER) if mixed and found is not None and found.over == "clients" else cell


def _notes(blocks: Sequence[Sequence[Group]], columns: Sequence[str], spread: str, bold: bool) -> list[str]:
    groups = [g for block in blocks for g in block]
    names = [(rows.value(g, "method"), label) for g, label in zip(groups, rows.labels(groups), strict=True)]
    best = "bold: the best of its column" + (", among rows of the same problem" if len(blocks) > 1 else "")
    return [
        *notes.spread_notes([g.runs for g in groups], spread),
        *([best] if bold else []),
        *(notes.unvalidated(groups) if "validated" in columns else []),
        *notes.protocol(groups, names),
    ]


def _any_best(body: Iterable[Sequence[Cell]]) -> bool:
    return any(cell.best for row in body for cell in row)


def _metrics(groups: Sequence[Group], asked: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(name for g in groups for run in g.runs for name in run.summary["metrics"]))
    extra = [name for name in SAMPLES if any(run.value(name, "mean") is not None for g in groups for run in g.runs)]
    for name in asked:
        if name not in (*known, *extra):
            raise unknown("metric of these runs", name, (*known, *extra))
    return list(asked) or [name for name in (headline(known), *known) if name in known][:1]
