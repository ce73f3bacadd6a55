"""What stands in a table: numbers over seeds with their spread, as they are printed; heads, rows and notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedchord.confusion import FORMULAS as ANSWERS
from fedchord.experiments.columns import SAMPLE_SHARES, SAMPLES, SPREAD_OF
from fedchord.experiments.reading import TEST, Run
from fedchord.metrics import HIGHER_IS_BETTER, over_seeds

SCALES = ("percent", "raw")
SHARES = frozenset({"top1", "top5", "auroc", *ANSWERS} - {"kappa"})
"""Metrics between 0 and 1 that are printed in percent, as papers do."""
NO_CONTEST = frozenset(SAMPLES) - {"official", "frechet", "kid"}
"""Numbers of samples with no best: bounds, numbers of real samples, and `membership`."""
COUNTS = frozenset({"clients", "undefined"})
LOWER_IS_BETTER = frozenset({"std", "gini", "gap"})
DASH, DAGGER = "-", "†"


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its spread, over seeds or over clients ("" where there is none)."""

    mean: float
    spread: float
    over: str
    seeds: int


def estimate(runs: Sequence[Run], metric: str, column: str, over: str = "seeds", rows: str = TEST) -> Estimate | None:
    """The mean over seeds, its spread over seeds (n - 1) or, of one seed, over clients; None if not measured."""
    values = [value for run in runs if (value := run.value(metric, column, rows)) is not None]
    if not values or len(values) < len(runs):
        return None
    mean, std = over_seeds(values)
    if over == "seeds" and len(values) > 1:
        return Estimate(mean, std, "seeds", len(values))
    inside = [run.value(metric, SPREAD_OF[column], rows) for run in runs] if column in SPREAD_OF else [None]
    if None in inside:
        return Estimate(mean, math.nan, "", len(values))
    return Estimate(mean, sum(x for x in inside if x is not None) / len(inside), "clients", len(values))


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table: words, or a number (scaled, not rounded) with its spread."""

    text: str = ""
    number: float | None = None
    spread: float | None = None
    digits: int = 2
    best: bool = False
    mark: str = ""

    def __str__(self) -> str:
        if self.number is None:
            return self.text
        if math.isnan(self.number):
            return f"nan{self.mark}"
        spread = "" if self.spread is None else f" ({self.spread:.{self.digits}f})"
        return f"{self.number:.{self.digits}f}{spread}{self.mark}"

    @property
    def rounded(self) -> float:
        return math.nan if self.number is None else round(self.number, self.digits)


@dataclass(frozen=True)
class Head:
    """The head of a column. `aside` names the source of numbers that stand beside those of the column before."""

    name: str
    numbers: bool = False
    aside: str = ""


@dataclass(frozen=True)
class Table:
    """Heads, rows of cells and notes, before any format."""

    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    title: str = ""


def factor(metric: str, column: str, scale: str = "percent") -> int:
    """What a number is multiplied by before printing: 100 for accuracies and for Gini coefficients."""
    if scale == "raw" or column in COUNTS:
        return 1
    return 100 if metric in SHARES or metric in SAMPLE_SHARES or column == "gini" else 1


def head_of(metric: str, column: str, scale: str = "percent") -> str:
    unit = "" if factor(metric, column, scale) == 1 else " x100" if column == "gini" else " %"
    return f"{metric} {column}{unit}"


def cell_of(found: Estimate | None, metric: str, column: str, scale: str = "percent") -> Cell:
    """An estimate as it is printed."""
    if found is None:
        return Cell(DASH)
    times = factor(metric, column, scale)
    digits = 0 if column in COUNTS and found.seeds == 1 else 2 if times == 100 else 4
    return Cell("", found.mean * times, found.spread * times if found.over else None, digits)


def is_higher_better(metric: str, column: str) -> bool:
    """Whether more is better in a column."""
    return metric in (*HIGHER_IS_BETTER, "official") and column not in LOWER_IS_BETTER


def mark_best(cells: Sequence[Cell], metric: str, column: str) -> list[Cell]:
    """The best of several cells in bold, and all that print the same number; nothing where there is no contest."""
    numbers = [cell.rounded for cell in cells if not math.isnan(cell.rounded)]
    if len(numbers) < 2 or column in COUNTS or metric in NO_CONTEST:
        return list(cells)
    top = max(numbers) if is_higher_better(metric, column) else min(numbers)
    return [replace(cell, best=cell.rounded == top) for cell in cells]
