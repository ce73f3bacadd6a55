"""What has been measured of the thesis, as tables: by table, cell by cell, and claim by claim."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import fedchord
from fedchord.check import unknown
from fedchord.report.cells import DASH, Head, Table
from fedchord.report.cells import Cell as Shown
from fedchord.thesis import claims, results, studies
from fedchord.thesis.cells import FULL, MARKED, NONE, STATES, Cell, Kept, State, cells, every, has_command, state

SAME_UNIT = ("frechet", "kid")
"""Metrics whose numbers are not comparable with the thesis' unless its own features were used."""


class Status:
    """Every cell with its state, and what is wrong with kept results."""

    def __init__(self, folder: Path) -> None:
        found, self.wrong = results.read_all(folder)
        self.folder, self.results = folder, found
        kept = Kept(found)
        self.states: dict[Cell, State] = {cell: state(cell, kept) for cell in every()}

    def of(self, table: str) -> dict[Cell, State]:
        """The cells of one table."""
        return {cell: self.states[cell] for cell in cells(table)}

    def notes(self) -> list[str]:
        """Results that are damaged, of another version, or of no cell."""
        used = {id(result) for found in self.states.values() for result in found.results}
        older: dict[str, int] = {}
        for result in self.results:
            if not result.is_current and not result.copied:
                older[result.version] = older.get(result.version, 0) + 1
        notes = [f"{path}: {why}; thesis run makes it again" for path, why in self.wrong.items()]
        notes += [
            f"{count} results were made by fedchord {version}, this is {fedchord.__version__}; "
            "thesis run --again makes them anew"
            for version, count in older.items()
        ]
        copied = [result.copied for result in self.results if result.copied]
        if copied:
            pages = ", ".join(sorted(set(copied)))
            notes.append(
                f"{len(copied)} results are numbers of {pages}: nothing by client, no version, and the verdict on the "
                "data is that of the copies when they were taken over"
            )
        rest = sum(id(result) not in used for result in self.results)
        if rest:
            notes.append(f"{rest} of {len(self.results)} kept results are of no cell: controls, or shorter than others")
        return notes or ([] if self.results else [f"nothing is kept in {self.folder}; begin with fedchord thesis run"])


def check_table(name: str) -> str:
    """The name of a table of results."""
    if name not in studies.TABLES:
        raise unknown("table of results", name, studies.TABLES)
    return name


def overview(status: Status) -> Table:
    """How many cells of every table have a command, and how many are full, reduced and none."""
    heads = (
        "table",
        "cells",
        "with a command",
        *STATES,
        "of full: altered or derived data",
        "full: mean |ours - thesis|",
    )
    lines = [(table, status.of(table)) for table in studies.TABLES]
    rows = [_counts(name, states) for name, states in (*lines, ("all", status.states))]
    notes = [
        "full: the thesis' settings and seeds on data with the official number of rows; reduced: less, see thesis "
        "status TABLE; none: nothing is kept",
        f"a cell's command: {command('TABLE', 'METHOD', 'SETTING')}",
        *status.notes(),
    ]
    return Table(tuple(Head(name) for name in heads), tuple(rows), tuple(notes))


def _counts(name: str, states: Mapping[Cell, State]) -> tuple[Shown, ...]:
    by_state = [sum(one.state == word for one in states.values()) for word in STATES]
    marked = sum(one.state == FULL and one.verdict in MARKED for one in states.values())
    gaps = [
        abs(gap) for cell, one in states.items() if one.state == FULL and (gap := difference(cell, one)) is not None
    ]
    commands = sum(map(has_command, states))
    mean = f"{sum(gaps) / len(gaps):.2f}" if gaps and name != "all" else DASH
    return tuple(Shown(str(text)) for text in (name, len(states), commands, *by_state, marked, mean))


def difference(cell: Cell, one: State) -> float | None:
    """Ours less the thesis'; None where there is nothing, or where another measure was taken."""
    if one.value is None or (cell.metric in SAME_UNIT and any(text.startswith("judge.features") for text in one.less)):
        return None
    return one.value - cell.printed


def listing(status: Status, table: str) -> Table:
    """Every cell of a table: the thesis' number, ours, their difference, the state, and what is less."""
    heads = ("method", "setting", "column", "thesis", "ours", "difference", "state", "less than in the thesis")
    rows = [_row(cell, one) for cell, one in status.of(table).items()]
    name = studies.ALIASES.get(table, table)
    notes = [f"a cell's runs: {command(name, 'METHOD', 'SETTING')}", *status.notes()]
    numbers = ("thesis", "ours")
    return Table(tuple(Head(one, numbers=one in numbers) for one in heads), tuple(rows), tuple(notes))


def _row(cell: Cell, one: State) -> tuple[Shown, ...]:
    gap = difference(cell, one)
    less = list(one.less) + ([f"{one.verdict} data"] if one.verdict in MARKED else [])
    words = [cell.row, cell.setting, cell.column]
    end = ["" if gap is None else f"{gap:+.2f}", one.state, "; ".join(less)]
    ours = Shown("", one.value, one.spread) if one.state != NONE else Shown("")
    return (*map(Shown, words), Shown("", cell.printed, cell.spread), ours, *map(Shown, end))


def command(study: str, row: str, setting: str, scale: str = "thesis") -> str:
    """The command that makes the runs of a cell."""
    words = ["fedchord", "study", "run", study, "--scale", scale, "--only", row, "--only", setting]
    return shlex.join(words)


def claim_table(status: Status, tables: Sequence[str] = studies.TABLES) -> Table:
    """Every claim by the thesis' own numbers, by ours at its settings, and by all of ours."""
    heads = ("claim", "table", "thesis' own numbers", "ours, full", "ours, reduced too", "so far")
    rows = []
    for claim in claims.claims():
        if claim.table not in tables:
            continue
        looks = (claims.printed, claims.measured(status.states, full=True), claims.measured(status.states))
        found = [claims.answer(claim, look) for look in looks]
        rows.append(tuple(Shown(str(text)) for text in (claim.text, claim.table, *found, found[2].word)))
    note = "comparisons of means by setting and column, among cells that were measured alike; no intervals"
    return Table(tuple(Head(name) for name in heads), tuple(rows), (note,))
