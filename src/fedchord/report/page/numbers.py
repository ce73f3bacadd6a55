"""The tables of a report: results with intervals, clients one by one, lambda, bytes and time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fedchord.experiments.reading import Run
from fedchord.metrics import HIGHER_IS_BETTER, over_clients
from fedchord.report import compare
from fedchord.report.cells import Cell, Table, cell_of, estimate, factor, mark_best
from fedchord.report.page.problems import Problem, Row
from fedchord.report.plots import Floats

COLUMNS = {"mean": "mean", "worst10": "worst tenth", "best10": "best tenth", "gap": "gap", "gini": "Gini"}
MOST = 3000
"""So many clients are listed one by one."""


@dataclass(frozen=True)
class Entry:
    """What stands in one place: text, the number it is sorted by, and a row's colour."""

    text: str
    value: float | None = None
    spread: str = ""
    best: bool = False
    place: int | None = None
    aside: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table of the page: heads (and whether they are over numbers), rows, notes."""

    heads: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    label: str = ""


def of_cell(cell: Cell, aside: bool = False) -> Entry:
    """A cell of any table, its spread apart; texts that are numbers are sorted as such."""
    text, _, spread = str(cell).partition(" (")
    if cell.number is None or not spread:
        text, spread = str(cell), ""
    value = _number(cell.text) if cell.number is None else cell.number
    found = None if value is None or math.isnan(value) else value
    return Entry(text, found, f"({spread}" if spread else "", cell.best, aside=aside)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def of_table(table: Table, label: str) -> Sheet:
    """Any table of the library."""
    rows = tuple(tuple(of_cell(c, bool(h.aside)) for c, h in zip(row, table.heads, strict=True)) for row in table.rows)
    numeric = [all(row[n].value is not None or row[n].text in ("", "-") for row in rows) for n in range(len(rows[0]))]
    heads = tuple(
        (head.name, number and place > 0) for place, (head, number) in enumerate(zip(table.heads, numeric, strict=True))
    )
    return Sheet(heads, rows, table.notes, label)


# -- results -------------------------------------------------------------------------------------------------------


def results(problem: Problem) -> Sheet:
    """A row per method: the metric over clients, with the interval of its mean."""
    metric = problem.metric
    columns = [_results_column(problem, metric, column) for column in COLUMNS]
    columns.insert(1, [_interval(row, metric) for row in problem.rows])
    heads = [f"{metric} {COLUMNS['mean']}{_unit(metric)}", "95 % interval", *list(COLUMNS.values())[1:-1]]
    return _by_row(problem, [*heads, f"{COLUMNS['gini']} x100"], columns, "results")


def others(problem: Problem) -> Sheet | None:
    """The means of all other metrics that any run has."""
    every = dict.fromkeys(name for run in problem.runs for name in run.summary["metrics"])
    names = [name for name in every if name != problem.metric]
    columns = [_results_column(problem, name, "mean") for name in names]
    return _by_row(problem, [name + _unit(name) for name in names], columns, "other metrics") if names else None


def _unit(metric: str) -> str:
    return " %" if factor(metric, "mean") == 100 else ""


def _by_row(problem: Problem, heads: Sequence[str], columns: Sequence[Sequence[Entry]], label: str) -> Sheet:
    body = [
        (Entry(row.label, place=row.place), Entry(str(n := len(row.group.runs)), n), *cells)
        for row, *cells in zip(problem.rows, *columns, strict=True)
    ]
    return Sheet((("method", False), ("seeds", True), *((head, True) for head in heads)), tuple(body), label=label)


def _results_column(problem: Problem, metric: str, column: str) -> list[Entry]:
    cells = [cell_of(estimate(row.group.runs, metric, column), metric, column) for row in problem.rows]
    return [of_cell(cell) for cell in mark_best(cells, metric, column)]


def _interval(row: Row, metric: str) -> Entry:
    """The bootstrap interval of the mean over clients, as `fedchord compare` has it for differences."""
    low, high = (value * factor(metric, "mean") for value in compare.interval(client_means(row, metric)))
    digits = 2 if factor(metric, "mean") == 100 else 4
    return Entry("-") if math.isnan(low) else Entry(f"{low:.{digits}f} to {high:.{digits}f}", low)


def client_means(row: Row, metric: str) -> list[float]:
    """The mean over seeds of every client, where it is defined."""
    found: dict[str, list[float]] = {}
    for run in row.group.runs:
        for client, value in clients_of(run, metric).items():
            if not math.isnan(value):
                found.setdefault(client, []).append(value)
    return [math.fsum(values) / len(values) for values in found.values()]


# -- clients -------------------------------------------------------------------------------------------------------


def clients_of(run: Run, metric: str) -> dict[str, float]:
    """The metric by the name of a client, NaN where it is undefined; nothing where clients were not written down."""
    table = run.summary.get("per_client") or {}
    if metric not in table:
        return {}
    names = [str(name) for name in table.get("client", [])]
    return {name: math.nan if v is None else float(v) for name, v in zip(names, table[metric], strict=False)}


def clients(problem: Problem) -> Sheet | None:
    """A row per client and seed: its test rows, and its value under every method."""
    sizes: dict[tuple[str, str], int] = {}
    values: list[dict[tuple[str, str], float]] = []
    for row in problem.rows:
        values.append({})
        for run in row.group.runs:
            table = run.summary.get("per_client") or {}
            for name, size in zip(table.get("client", []), table.get("size", []), strict=False):
                sizes.setdefault((str(run.seed), str(name)), int(size))
            values[-1] |= {(str(run.seed), name): v for name, v in clients_of(run, problem.metric).items()}
    if not sizes:
        return None
    times, seeds = factor(problem.metric, "mean"), problem.several_seeds
    digits = 2 if times == 100 else 4

    def cell(found: dict[tuple[str, str], float], key: tuple[str, str]) -> Entry:
        value = found.get(key, math.nan)
        return Entry("-") if math.isnan(value) else Entry(f"{value * times:.{digits}f}", value)

    body = [
        (Entry(key[1]), *((Entry(key[0]),) if seeds else ()), Entry(f"{size:,}", size), *(cell(v, key) for v in values))
        for key, size in list(sizes.items())[:MOST]
    ]
    heads = [("client", False), *((("seed", True),) if seeds else ()), ("test rows", True)]
    heads += [(row.label, True) for row in problem.rows]
    cut = [f"the first {MOST:,} of {len(sizes):,} are listed"] if len(sizes) > MOST else []
    return Sheet(tuple(heads), tuple(body), tuple(cut), "clients")


# -- lambda --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Swept:
    """A row along lambda: mean and worst tenth over clients (seeds, points), and each client's choice, if any."""

    row: Row
    metric: str
    lambdas: tuple[float, ...]
    mean: Floats
    worst: Floats
    best: int = field(default=0)
    """The point with the best mean over seeds."""


def swept(problem: Problem) -> list[Swept]:
    """The rows whose clients have two models."""
    found = []
    for row in problem.rows:
        sweeps = [run.summary.get("sweep") for run in row.group.runs]
        if any(not one or one["lambdas"] != (sweeps[0] or {}).get("lambdas") for one in sweeps):
            continue
        known = [one for one in sweeps if one]
        metric, mean = known[0]["metric"], np.array([one["mean"] for one in known], dtype=np.float64)
        order = mean.mean(0) if metric in HIGHER_IS_BETTER else -mean.mean(0)
        best = int(np.nanargmax(order)) if not np.isnan(order).all() else 0
        worst = np.stack([_worst(one["per_client"], metric) for one in known])
        found.append(Swept(row, metric, tuple(known[0]["lambdas"]), mean, worst, best))
    return found


def _worst(points: Sequence[Sequence[float | None]], metric: str) -> Floats:
    """The worst tenth at every lambda, over clients that are defined there at all."""
    table = torch.tensor([[math.nan if v is None else v for v in row] for row in points], dtype=torch.float64)
    kept = table[~table.isnan().any(1)].T
    if not kept.numel():
        return np.full(table.shape[1], np.nan)
    return over_clients(kept, "worst10", metric in HIGHER_IS_BETTER).numpy()


def lambdas(found: Iterable[Swept]) -> Sheet:
    """What the slider shows, without it: the ends, the middle, the best mean, and the choice on validation rows."""
    body = []
    for one in found:
        times = factor(one.metric, "mean")
        digits = 2 if times == 100 else 4
        near = [min(range(len(one.lambdas)), key=lambda at: abs(one.lambdas[at] - lam)) for lam in (0, 0.5, 1)]
        chosen = [run.value(one.metric, "validated") for run in one.row.group.runs]
        shown = [float(one.mean.mean(0)[at]) for at in (*near, one.best)]
        shown += [math.nan if None in chosen else sum(v for v in chosen if v is not None) / len(chosen)]
        cells = [Entry("-") if math.isnan(v) else Entry(f"{v * times:.{digits}f}", v) for v in shown]
        lam = one.lambdas[one.best]
        body.append((Entry(one.row.label, place=one.row.place), *cells[:4], Entry(f"{lam:g}", lam), cells[4]))
    names = ("lambda 0", "lambda 0.5", "lambda 1", "best mean", "at lambda", "each client's choice on validation rows")
    return Sheet((("method", False), *((name, True) for name in names)), tuple(body), label="along lambda")


# -- bytes and time ------------------------------------------------------------------------------------------------


def costs(problem: Problem) -> Sheet:
    """What the runs sent and how long they took, mean over seeds."""
    body = []
    for row in problem.rows:
        runs = row.group.runs
        up, down, total = (_mean(runs, "bytes", key) for key in ("up_per_round", "down_per_round", "up_total"))
        total += _mean(runs, "bytes", "down_total")
        seconds = _mean(runs, "seconds", "total")
        size = runs[0].summary.get("parameters")
        where = str(runs[0].summary.get("executor", "-"))
        cells = [_mega(up), _mega(down), _mega(total), _plain(seconds, f"{seconds:.1f}")]
        cells.append(Entry("-") if size is None else Entry(f"{size:,}", float(size)))
        body.append((Entry(row.label, place=row.place), *cells, Entry(where)))
    names = ("MB up a round", "MB down a round", "MB in all", "seconds", "parameters")
    heads = (("method", False), *((name, True) for name in names), ("executor", False))
    return Sheet(heads, tuple(body), label="bytes and time")


def _mean(runs: Sequence[Run], part: str, key: str) -> float:
    values = [(run.summary.get(part) or {}).get(key) for run in runs]
    return math.nan if None in values else sum(float(v) for v in values if v is not None) / len(values)


def _plain(value: float, text: str) -> Entry:
    return Entry("-") if math.isnan(value) else Entry(text, value)


def _mega(value: float) -> Entry:
    return _plain(value, f"{value / 1e6:,.3f}" if value < 1e7 else f"{value / 1e6:,.1f}")
