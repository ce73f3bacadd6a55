"""What the thesis claims of its tables, looked up in what has been measured: holds, does not, or open.

A comparison is made of means alone, and only between cells that were measured alike (data, clients, rounds, epochs,
seeds); where one is missing it is open. Intervals are for `fedchord compare`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedchord.experiments.settings import read_toml
from fedchord.report.cells import is_higher_better
from fedchord.thesis import cells
from fedchord.thesis.cells import FULL, Cell, State

FILE = Path(__file__).with_name("claims.toml")
HOLDS, FAILS, OPEN = "holds", "does not", "open"

Lookup = Callable[[Cell], tuple[float, object] | None]
"""The number of a cell and how it was measured; None where there is none."""


@dataclass(frozen=True)
class Claim:
    """One claim; claims.toml says what the fields mean."""

    name: str
    text: str
    table: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    pairs: Mapping[str, str] = field(default_factory=dict)
    first: str = ""


@dataclass(frozen=True)
class Answer:
    """How many of a claim's comparisons hold, do not, and are open."""

    holds: int
    fails: int
    open: int

    @property
    def word(self) -> str:
        """One word for all of them."""
        return FAILS if self.fails else OPEN if self.open or not self.holds else HOLDS

    def __str__(self) -> str:
        parts = [(self.holds, "hold"), (self.fails, "do not"), (self.open, "open")]
        return ", ".join(f"{number} {what}" for number, what in parts if number)


@cache
def claims() -> tuple[Claim, ...]:
    """Every claim."""
    found: list[dict[str, Any]] = read_toml(FILE)["claim"]
    return tuple(Claim(**(one | {key: tuple(one[key]) for key in ("rows", "columns") if key in one})) for one in found)


@dataclass(frozen=True)
class Compared:
    """One comparison of a claim: the best of the cells it is about, the best of the others, and whether it holds; of an
    open one only `mine` and `others` are known."""

    word: str
    mine: tuple[Cell, ...]
    others: tuple[Cell, ...]
    best: tuple[Cell, float] | None = None
    rival: tuple[Cell, float] | None = None

    @property
    def lead(self) -> float:
        """By how much the claim's own side is better, whatever is better of its number."""
        assert self.best is not None and self.rival is not None
        return _sign(self.best[0]) * (self.best[1] - self.rival[1])


def compared(claim: Claim, lookup: Lookup) -> list[Compared]:
    """Every comparison of a claim by the numbers that are given."""
    return [_compare(mine, others, lookup) for mine, others in _comparisons(claim)]


def answer(claim: Claim, lookup: Lookup) -> Answer:
    """A claim by the numbers that are given."""
    counts = Counter(one.word for one in compared(claim, lookup))
    return Answer(counts[HOLDS], counts[FAILS], counts[OPEN])


def printed(cell: Cell) -> tuple[float, object]:
    """The thesis' own number."""
    return cell.printed, ""


def measured(states: Mapping[Cell, State], full: bool = False) -> Lookup:
    """Our numbers, or those at the thesis' own settings alone."""

    def look(cell: Cell) -> tuple[float, object] | None:
        found = states[cell]
        if found.value is None or (full and found.state != FULL):
            return None
        config = found.results[0].config
        alike = (config.rounds, config.epochs, config.choices()["clients"], found.verdict, found.seeds)
        return found.value, alike

    return look


def _comparisons(claim: Claim) -> Iterator[tuple[list[Cell], list[Cell]]]:
    """Cells of which the best must reach each of some others."""
    every = [cell for cell in cells.cells(claim.table) if not claim.columns or cell.column in claim.columns]
    if claim.first:
        for row, column in dict.fromkeys((cell.row, cell.column) for cell in every):
            line = [cell for cell in every if (cell.row, cell.column) == (row, column)]
            yield _parted(line, [cell for cell in line if cell.setting == claim.first])
        return
    for setting, column in dict.fromkeys((cell.setting, cell.column) for cell in every):
        line = [cell for cell in every if (cell.setting, cell.column) == (setting, column)]
        if claim.pairs:
            by_row = {cell.row: cell for cell in line}
            for mine, other in claim.pairs.items():
                yield [by_row[mine]], [by_row[other]]
        else:
            yield _parted(line, [cell for cell in line if cell.row in claim.rows])


def _parted(line: Sequence[Cell], mine: list[Cell]) -> tuple[list[Cell], list[Cell]]:
    return mine, [cell for cell in line if cell not in mine]


def _compare(mine: Sequence[Cell], others: Sequence[Cell], lookup: Lookup) -> Compared:
    sides = tuple(mine), tuple(others)
    found = [lookup(cell) for cell in (*mine, *others)]
    known = [one for one in found if one is not None]
    if len(known) < len(found) or len({repr(alike) for _, alike in known}) != 1:
        return Compared(OPEN, *sides)
    digits = 2 if mine[0].metric not in ("loss", "ece", "mce") else 4
    values = [round(value, digits) for value, _ in known]
    numbered = list(zip((*mine, *others), values, strict=True))
    best, rival = (max(side, key=_goodness) for side in (numbered[: len(mine)], numbered[len(mine) :]))
    return Compared(HOLDS if _goodness(best) >= _goodness(rival) else FAILS, *sides, best, rival)


def _goodness(numbered: tuple[Cell, float]) -> float:
    return _sign(numbered[0]) * numbered[1]


def _sign(cell: Cell) -> int:
    return 1 if is_higher_better(cell.metric, cell.name) else -1
