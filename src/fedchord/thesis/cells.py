"""The cells of the thesis' tables of results, and what has been measured of each: full, reduced or none.

A cell is a printed number: a reference of the study of its table. A kept result (results.py) belongs to it if its
settings are those of one of the study's scales, or if the study made it with others; it is never one of other data.

    full      the thesis' settings and as many seeds, on data with the official number of rows
    reduced   anything less; what differs is derived from the settings and stands beside
    none      nothing is kept
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from fedchord.experiments import study as studying
from fedchord.experiments.columns import SAMPLES
from fedchord.experiments.config import INDIFFERENT, RunConfig
from fedchord.experiments.study import Job, Plan
from fedchord.report.cells import Estimate, estimate, factor
from fedchord.report.rows import word
from fedchord.thesis import studies
from fedchord.thesis.results import Result

FULL, REDUCED, NONE = "full", "reduced", "none"
STATES = (FULL, REDUCED, NONE)
WHOLE = ("", "original", "content", "counts", "altered", "derived")
"""Verdicts of `data check` with the official number of rows."""
MARKED = ("altered", "derived")
"""Those of them whose content is not the official one, or not known to be."""
JUDGED = ("judge.features", "judge.privacy")
"""Run keys that change nothing but the distances of samples."""
UNSAID = object()


@dataclass(frozen=True)
class Cell:
    """A printed number of the thesis, and where ours comes from."""

    table: str
    study: str
    row: str
    setting: str
    column: str
    metric: str
    name: str
    printed: float
    spread: float | None

    @property
    def key(self) -> tuple[str, str]:
        """Row and setting: the runs of the cell."""
        return self.row, self.setting

    @property
    def label(self) -> str:
        return f"{self.table}: {self.row}, {self.setting}, {self.column}"

    @property
    def left_out(self) -> tuple[str, ...]:
        """Run keys that do not matter to this number."""
        return () if self.metric in SAMPLES else JUDGED


@dataclass(frozen=True)
class State:
    """What has been measured of a cell: a state, the number as it is printed, and what is less than in the thesis."""

    state: str = NONE
    value: float | None = None
    spread: float | None = None
    seeds: int = 0
    less: tuple[str, ...] = ()
    verdict: str = ""
    results: tuple[Result, ...] = ()


@cache
def plan(table: str, scale: str) -> Plan:
    """The runs of a table at a scale, those that have a printed number."""
    found = studying.plan(studies.load(table), scale)
    wanted = {(row, setting) for row, setting, _ in found.study.reference.values}
    return studying.Plan(
        found.study,
        found.scale,
        found.changes,
        tuple(job for job in found.jobs if (job.method, job.setting) in wanted),
        found.missing,
    )


@cache
def cells(table: str) -> tuple[Cell, ...]:
    """Every printed number of a table."""
    study = studies.load(table)
    found = []
    for (row, setting, column), (value, spread) in study.reference.values.items():
        metric, name = study.number(column, setting)
        found.append(Cell(table, study.name, row, setting, column, metric, name, value, spread))
    return tuple(found)


def every(tables: Iterable[str] = studies.TABLES) -> Iterator[Cell]:
    """Every printed number of some tables."""
    for table in tables:
        yield from cells(table)


def has_command(cell: Cell) -> bool:
    """Whether the study of its table has runs for a cell at the thesis' scale."""
    return bool(_jobs(cell.table, "thesis").get(cell.key))


# -- which results belong to a cell --------------------------------------------------------------------------------


def group(config: RunConfig, left_out: Sequence[str] = ()) -> str:
    """What runs that differ in their seed alone share."""
    return config.fingerprint("seed", *left_out)


class Kept:
    """Results by what they are looked up by."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._labels: dict[tuple[str, str, str], list[Result]] = {}
        self._groups: dict[tuple[str, tuple[str, ...]], list[Result]] = {}
        for result in results:
            self._labels.setdefault((result.study, result.row, result.setting), []).append(result)
            for left_out in ((), JUDGED):
                self._groups.setdefault((group(result.config, left_out), left_out), []).append(result)

    def of(self, cell: Cell) -> dict[str, list[Result]]:
        """The results of a cell, those of equal settings together."""
        target = _jobs(cell.table, "thesis")[cell.key][0].config
        found = list(self._labels.get((cell.study, cell.row, cell.setting), []))
        for scale in ("thesis", "small"):
            found += self._groups.get((_group(cell.table, scale, cell.key, cell.left_out), cell.left_out), [])
        sets: dict[str, dict[int, Result]] = {}
        for result in found:
            if result.config.data == target.data:
                sets.setdefault(group(result.config, cell.left_out), {})[result.seed] = result
        return {name: [one[seed] for seed in sorted(one)] for name, one in sets.items()}

    def has(self, job: Job) -> Result | None:
        """The result of exactly this run."""
        found = self._groups.get((group(job.config), ()), [])
        return next((result for result in found if result.seed == job.config.seed), None)


@cache
def _jobs(table: str, scale: str) -> Mapping[tuple[str, str], tuple[Job, ...]]:
    found: dict[tuple[str, str], tuple[Job, ...]] = {}
    for job in plan(table, scale).jobs:
        found[job.method, job.setting] = (*found.get((job.method, job.setting), ()), job)
    return found


@cache
def _group(table: str, scale: str, key: tuple[str, str], left_out: tuple[str, ...]) -> str:
    return group(_jobs(table, scale)[key][0].config, left_out)


# -- what they say -------------------------------------------------------------------------------------------------


def state(cell: Cell, kept: Kept) -> State:
    """What has been measured of a cell: the result that is nearest to the thesis' settings."""
    found = [_judge(cell, results) for results in kept.of(cell).values()]
    known = [one for one in found if one.value is not None]
    return max(known, key=_nearness, default=State())


def _nearness(one: State) -> tuple[bool, float, int]:
    """Full first, then the longest, then the one with most seeds."""
    config = one.results[0].config
    return one.state == FULL, config.rounds * config.epochs, one.seeds


def _judge(cell: Cell, results: Sequence[Result]) -> State:
    jobs = _jobs(cell.table, "thesis")[cell.key]
    planned = [result for result in results if result.seed in {job.seed for job in jobs}]
    results = planned if len(planned) == len(jobs) else results  # other seeds do not count beside all of the planned
    verdict = results[0].verdict
    less = differences(results[0].config, jobs[0].config, cell.left_out)
    if verdict not in WHOLE:
        less = (*less, f"{verdict} data")
    if len(results) < len(jobs):
        less = (*less, f"{len(results)} of {len(jobs)} seeds")
    runs = [result.run() for result in results]
    over = "seeds" if len(jobs) > 1 else "clients"
    found: Estimate | None = estimate(runs, cell.metric, cell.name, over)
    if found is None or math.isnan(found.mean):
        return State()
    times = factor(cell.metric, cell.name)
    spread = found.spread * times if found.over else None
    name = REDUCED if less else FULL
    return State(name, found.mean * times, spread, len(results), less, verdict, tuple(results))


def differences(config: RunConfig, target: RunConfig, left_out: Sequence[str] = ()) -> tuple[str, ...]:
    """The settings that are not the thesis', its own in brackets."""
    mine, theirs = config.values(), target.values()
    found = []
    for key in dict.fromkeys((*mine, *theirs)):
        if key in INDIFFERENT or key == "seed" or key in left_out:
            continue
        here, there = (_value(one.get(key, UNSAID)) for one in (mine, theirs))
        if here != there:
            found.append(f"{key} {here} ({there})")
    return tuple(found)


def _value(value: object) -> str:
    return "usual" if value is UNSAID else word(float(value) if type(value) is int else value)
