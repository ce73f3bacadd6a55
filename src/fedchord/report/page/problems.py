"""What a report is about: problems, and the rows that are compared on each of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedchord.check import require, unknown
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import Run
from fedchord.experiments.study import Plan
from fedchord.report import rows
from fedchord.report.rows import Group


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed, under one name; `place` is its colour, the same on the whole page."""

    group: Group
    label: str
    place: int


@dataclass(frozen=True)
class Problem:
    """Rows on the same data, split and clients, and the metric they are compared by."""

    title: str
    rows: tuple[Row, ...]
    metric: str

    @property
    def runs(self) -> list[Run]:
        """The runs of all rows."""
        return [run for row in self.rows for run in row.group.runs]

    @property
    def groups(self) -> list[Group]:
        """The rows without their names."""
        return [row.group for row in self.rows]

    @property
    def several_seeds(self) -> bool:
        """Whether a row has more than one seed."""
        return any(len(row.group.runs) > 1 for row in self.rows)


Named = Sequence[tuple[Group, str]]


def of_runs(runs: Iterable[Run], metric: str | None = None) -> list[Problem]:
    """The problems of some runs, each row named by its method and what tells it apart there."""
    groups = rows.group(runs)
    keys = rows.differing_problems(groups)
    found: list[tuple[str, Named]] = []
    for block in rows.blocks(groups):
        different = [f"{key} {rows.value(block[0], key)}" for key in keys if key in block[0].config]
        found.append(
            (", ".join(different) or usual_title(block[0]), list(zip(block, short_labels(block), strict=True)))
        )
    return _coloured(found, metric)


def short_labels(block: Sequence[Group]) -> list[str]:
    """The method, and only where others have the same one what tells them apart."""
    alike: dict[str, list[Group]] = {}
    for group in block:
        alike.setdefault(str(group.config.get("method", "?")), []).append(group)
    named = {id(g): label for same in alike.values() for g, label in zip(same, rows.labels(same), strict=True)}
    return [named[id(group)] for group in block]


def of_plan(plan: Plan, out: Path, metric: str | None = None) -> list[Problem]:
    """The settings of a study with the rows that have a finished run."""
    done = plan.runs(out)
    found: list[tuple[str, Named]] = []
    for setting in plan.study.settings:
        named = [(entry.label, done.get((entry.label, setting.label))) for entry in plan.study.methods]
        here = [(Group(tuple(runs)), label) for label, runs in named if runs]
        if here:
            found.append((setting.label or usual_title(here[0][0]), here))
    return _coloured(found, metric)


def usual_title(group: Group) -> str:
    """A problem in a few words."""
    get = group.config.get
    split = f"{get('split')} split" if get("split") else ""
    clients = group.runs[0].protocol.get("clients", get("clients"))
    return ", ".join(part for part in (str(get("data", "")), split, f"{clients} clients") if part)


def _coloured(found: Sequence[tuple[str, Named]], metric: str | None) -> list[Problem]:
    places: dict[str, int] = {}
    for _, named in found:
        for _, label in named:
            places.setdefault(label, len(places))
    return [
        Problem(title, tuple(Row(g, label, places[label]) for g, label in named), _metric(title, named, metric))
        for title, named in found
    ]


def _metric(title: str, named: Named, asked: str | None) -> str:
    """The metric to compare by, which every run must have; unless asked for, one that is defined at all."""
    every = [tuple(run.summary["metrics"]) for g, _ in named for run in g.runs]
    shared = [name for name in every[0] if all(name in names for names in every)]
    require(bool(shared), "report", f"the runs of {title} have no metric in common")
    if asked is not None and asked not in shared:
        raise unknown(f"metric of the runs of {title}", asked, shared)
    defined = [name for name in shared if all(_finite(run, name) for g, _ in named for run in g.runs)]
    return asked or headline(defined or shared)


def _finite(run: Run, metric: str) -> bool:
    value = run.value(metric, "mean")
    return value is not None and math.isfinite(value)
