"""Paired differences: how much better or worse each client fares with one method than with another.

Runs are paired by federation and seed, and inside a pair by client. With x the value of the method, r that of the
reference and S_i the seeds with both, client i has

    d_i = mean over s in S_i of (x_is - r_is),     and the difference is     d = mean over i of d_i.

The interval is the percentile bootstrap of d with the clients as units: clients are drawn with replacement, and the
2.5 % and 97.5 % quantiles of their means are taken. It says how far d depends on which clients there are, and nothing
about seeds, over which it was averaged before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedchord import rng
from fedchord.check import fail, one_of, require, unknown
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import CONFIG, Run, read
from fedchord.metrics import HIGHER_IS_BETTER
from fedchord.report import notes, rows
from fedchord.report.cells import Cell, Head, Table, factor
from fedchord.report.rows import Group

COLUMNS = {
    "deployed": "the model each client deploys",
    "swept": "the lambda with the best mean over clients on the test rows; methods with one model: that model",
    "validated": "each client's lambda of choice on its validation rows; methods with one model: that model",
}
RESAMPLES = 10_000
LEVEL = 0.95
TIE = 1e-12
"""Differences below this are equal: means of equal values may differ by rounding."""
DRAWN = 1 << 22
"""How many draws of the bootstrap are held at a time."""


@dataclass(frozen=True)
class Difference:
    """A method less the reference, on one federation."""

    group: Group
    label: str
    against: str
    mean: float
    low: float
    high: float
    pairs: int
    clients: int
    better: int
    equal: int
    worse: int
    seeds: tuple[Any, ...]
    alone: tuple[Any, ...]
    """Seeds that only one of the two has."""
    undefined: int
    """Pairs left out because a value is missing."""


def interval(
    values: Sequence[float], level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean; NaN for fewer than two values."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2:
        return math.nan, math.nan
    generator, means = rng.generator(rng.key(seed, "bootstrap")), np.empty(resamples)
    step = max(1, DRAWN // len(x))
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        means[start:stop] = x[generator.integers(0, len(x), (stop - start, len(x)))].mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def differences(
    runs: Iterable[Run], against: str, metric: str | None = None, column: str = "deployed", level: float = LEVEL
) -> list[Difference]:
    """Every group of runs less the reference on the same federation; runs that have no such reference are refused.

    `against` is a run folder, a method, or a label as `fedchord table` would write it within one federation.
    """
    one_of("compare", "column", column, COLUMNS)
    runs = list(runs)
    metric = metric or headline(tuple(runs[0].summary["metrics"]))
    return [
        difference(other, label, base, name, metric, column, level)
        for other, label, base, name in lined_up(runs, against)
        if base is not None
    ]


def lined_up(runs: Iterable[Run], against: str | None) -> list[tuple[Group, str, Group | None, str]]:
    """Every group of runs and its label, with the reference on the same federation and its label.

    Without a reference, every group with None; with one, the reference itself is left out.
    """
    runs = list(runs)
    reference = None if against is None else _reference_run(against)
    if reference is not None:
        here = {run.folder.resolve() for run in runs}
        runs += [] if reference.folder.resolve() in here else [reference]
    blocks = rows.blocks(rows.group(runs))
    if reference is not None:
        _refuse_others(blocks, reference)
    made: list[tuple[Group, str, Group | None, str]] = []
    for block in blocks:
        labels = rows.labels(block)
        if against is None:
            made += [(other, label, None, "") for other, label in zip(block, labels, strict=True)]
            continue
        base = _holding(block, reference) if reference is not None else _named(block, labels, against)
        name = labels[block.index(base)]
        made += [(other, label, base, name) for other, label in zip(block, labels, strict=True) if other is not base]
    require(bool(made), "compare", f"there is nothing to compare with {against}; name more runs")
    return made


def values(run: Run, metric: str, column: str) -> list[float]:
    """One value per client of a run, in the order of its clients; NaN where there is none."""
    table = run.summary.get("per_client", {})
    if metric not in table or metric in ("client", "size"):
        raise unknown(f"metric per client of {run.folder}", metric, [n for n in table if n not in ("client", "size")])
    sweep = run.summary.get("sweep")
    if column == "deployed" or sweep is None:
        return _numbers(table[metric])
    owner = str(run.folder)
    require(sweep["metric"] == metric, owner, f"lambda was swept for {sweep['metric']} only, got {metric}")
    grid, points = sweep["lambdas"], sweep["per_client"]
    if column == "swept":
        chosen = [sweep["best_mean"]["lambda"]] * len(points)
    else:
        require(sweep["validated"] is not None, owner, f"has no validated values: {notes.why_unvalidated(run)}")
        chosen = sweep["validated"]["lambdas"]
    places = [min(range(len(grid)), key=lambda at: abs(grid[at] - lam)) for lam in chosen]
    return _numbers([point[place] for point, place in zip(points, places, strict=True)])


def tabulate(
    made: Sequence[Difference], metric: str | None, column: str, exact: bool = False, level: float = LEVEL
) -> Table:
    """The differences as a table, accuracies in percentage points; `exact` writes numbers as they are, unrounded."""
    metric = metric or headline(tuple(made[0].group.runs[0].summary["metrics"]))
    times = 1 if exact else factor(metric, "mean")
    keys = rows.differing_problems([d.group for d in made])
    several = len({d.against for d in made}) > 1

    def text(value: float) -> Cell:
        return Cell(f"{value:.10g}" if exact else f"{value * times:+.2f}" if times == 100 else f"{value:+.4f}")

    body = tuple(
        (
            *(Cell(rows.value(d.group, key)) for key in keys),
            Cell(d.label),
            *([Cell(d.against)] if several else []),
            *(text(value) for value in (d.mean, d.low, d.high)),
            *(Cell(str(n)) for n in (d.better, d.equal, d.worse, d.clients, len(d.seeds), d.pairs)),
        )
        for d in made
    )
    unit = " (points)" if times == 100 else ""
    names = [*keys, "method", *(["against"] if several else []), f"{metric} difference{unit}"]
    names += ["low", "high", "better", "equal", "worse", "clients", "seeds", "pairs"]
    return Table(tuple(Head(name) for name in names), body, tuple(_notes(made, metric, column, level)))


def _notes(made: Sequence[Difference], metric: str, column: str, level: float) -> list[str]:
    against = " or ".join(dict.fromkeys(d.against for d in made))
    way, sure = "higher" if metric in HIGHER_IS_BETTER else "lower", f"{100 * level:g}%"
    lines = [
        f"method less {against}: mean over clients of paired differences (same client, same seed; over seeds first)",
        f"low, high: {sure} percentile bootstrap over clients, {RESAMPLES} resamples; seeds are not resampled",
        f"better, equal, worse: clients; {metric}: {way} is better",
        f"{column}: {COLUMNS[column]}",
    ]
    for d in made:
        if d.alone:
            lines.append(f"{d.label}: seeds {', '.join(map(str, d.alone))} have no partner and are left out")
        if d.undefined:
            lines.append(f"{d.label}: {d.undefined} pairs are left out, since {metric} is undefined or not finite")
    return lines


def difference(
    other: Group, label: str, base: Group, name: str, metric: str, column: str = "deployed", level: float = LEVEL
) -> Difference:
    """One group of runs less another on the same federation."""
    ours, theirs = ({run.seed: run for run in g.runs} for g in (other, base))
    seeds = [seed for seed in ours if seed in theirs]
    require(bool(seeds), "compare", f"{other.runs[0].folder} and {base.runs[0].folder} have no seed in common")
    by_client: dict[str, list[float]] = {}
    undefined = 0
    for seed in seeds:
        first, second = ours[seed], theirs[seed]
        pairs = zip(_clients(first, second), values(first, metric, column), values(second, metric, column), strict=True)
        for client, x, r in pairs:
            if math.isfinite(x - r):
                by_client.setdefault(client, []).append(x - r)
            else:
                undefined += 1
    d = [math.fsum(parts) / len(parts) for parts in by_client.values()]
    require(bool(d), "compare", f"{label} and {name} have no client for which {metric} is defined")
    gain = d if metric in HIGHER_IS_BETTER else [-x for x in d]
    better, worse = sum(x > TIE for x in gain), sum(x < -TIE for x in gain)
    return Difference(
        other,
        label,
        name,
        math.fsum(d) / len(d),
        *interval(d, level),
        pairs=sum(len(parts) for parts in by_client.values()),
        clients=len(d),
        better=better,
        equal=len(d) - better - worse,
        worse=worse,
        seeds=tuple(seeds),
        alone=tuple(dict.fromkeys([*(s for s in ours if s not in theirs), *(s for s in theirs if s not in ours)])),
        undefined=undefined,
    )


def _clients(first: Run, second: Run) -> list[str]:
    """The clients of two runs, which must be the same, with equal test sets."""
    ours, theirs = (run.summary.get("per_client", {}) for run in (first, second))
    same = all(ours.get(key) == theirs.get(key) for key in ("client", "size"))
    require(same, "compare", f"{first.folder} and {second.folder} have different clients, though their settings agree")
    return [str(client) for client in ours.get("client", [])]


def _reference_run(against: str) -> Run | None:
    """The run in a folder, if `against` is one."""
    folder = Path(against)
    return read(folder) if (folder / CONFIG).is_file() else None


def _holding(block: Sequence[Group], reference: Run) -> Group:
    """The group of a run; a newer run of the same settings and seed may stand for it."""
    key = rows.settings(reference.config)
    return next(g for g in block if rows.settings(g.config) == key)


def _named(block: Sequence[Group], labels: Sequence[str], against: str) -> Group:
    """The group of that label or, where only one has it, of that method; small and capital letters are the same."""
    wanted = against.lower()
    exact = [g for g, label in zip(block, labels, strict=True) if label.lower() == wanted]
    found = exact or [g for g in block if str(g.config.get("method")).lower() == wanted]
    if len(found) == 1:
        return found[0]
    where = f"{against!r} on the federation of {block[0].runs[0].folder}"
    if found:
        said = "; ".join(labels[block.index(g)] for g in found)
        raise fail("compare", f"{where} is ambiguous: name one of {said}, or a run folder")
    raise unknown("reference", against, labels) if len(block) > 1 else fail("compare", f"there is no run of {where}")


def _refuse_others(blocks: Sequence[Sequence[Group]], reference: Run) -> None:
    """One reference run serves one federation."""
    home, there = rows.problem(reference.config), Group((reference,))
    for here, *_ in blocks:
        if rows.problem(here.config) != home:
            keys = rows.differing_problems([here, there])
            differ = ", ".join(f"{key} {rows.value(here, key)}, not {rows.value(there, key)}" for key in keys)
            folder = here.runs[0].folder
            raise fail("compare", f"{folder} is on another federation than {reference.folder} ({differ})")


def _numbers(found: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else float(value) for value in found]
