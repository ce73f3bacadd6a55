"""The table of a study: methods down, settings across, printed numbers beside ours, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedchord.experiments.reading import Run
from fedchord.experiments.study import Plan, Study, written
from fedchord.report import notes as wording
from fedchord.report.cells import DAGGER, DASH, Cell, Head, Table, cell_of, estimate, head_of, mark_best
from fedchord.report.rows import Group

FEWER = "*"


ALIKE = ("", "original", "content", "counts")
"""Verdicts of `data check` that need no mark: the official rows, as far as it can be told."""


def told(study: Study, summary: Mapping[str, Any], setting: str = "") -> str:
    """The study's own numbers of one run, in a few words."""
    done = Run(Path(), {}, dict(summary))
    parts = []
    for column in study.columns:
        metric, name = study.number(column, setting)
        value = cell_of(estimate([done], metric, name), metric, name)
        parts.append(f"{head_of(metric, name)} {value}")
    return ", ".join(parts) + f" in {float(summary.get('seconds', {}).get('total', 0)):.1f} s"


def tabulate(study_plan: Plan, out: Path) -> Table:
    """Methods down, settings across: mean (spread), best in bold, reference numbers beside ours, what is missing."""
    study, found = study_plan.study, study_plan.runs(out)
    seeds = len({job.seed for job in study_plan.jobs})
    heads, columns = [Head("method")], [[Cell(entry.label) for entry in study.methods]]
    for setting in study.settings:
        here = [found.get((entry.label, setting.label), []) for entry in study.methods]
        mark = " ".join(f"({word} data)" for word in _verdicts([run for runs in here for run in runs]))
        for column in study.columns:
            which = study.number(column, setting.label)
            cells = [_cell(study, runs, which, seeds) for runs in here]
            alone = bool(setting.label) and len(study.columns) == 1
            short = " ".join(filter(None, (setting.label, "" if alone else head_of(*which), mark)))
            heads.append(Head(short, numbers=True))
            columns.append(mark_best(cells, *which))
            beside = [study.reference.values.get((entry.label, setting.label, column)) for entry in study.methods]
            if any(pair is not None for pair in beside):
                heads.append(Head(f"{short} {study.reference.source}", numbers=True, aside=study.reference.source))
                columns.append([Cell("", *pair) if pair is not None else Cell(DASH) for pair in beside])
    notes = _notes(study_plan, found, out)
    return Table(tuple(heads), tuple(zip(*columns, strict=True)), tuple(notes), study.title)


def _verdicts(runs: Sequence[Run]) -> list[str]:
    """What `data check` says of the runs' data, where they are not the official rows."""
    words = [str((run.protocol.get("data") or {}).get("verdict", "")) for run in runs]
    return [word for word in dict.fromkeys(words) if word not in ALIKE]


def _cell(study: Study, runs: Sequence[Run], which: tuple[str, str], seeds: int) -> Cell:
    metric, name = which
    found = estimate(runs, metric, name, study.spread) if runs else None
    cell = cell_of(found, metric, name)
    marks = DAGGER if seeds > 1 and found is not None and found.over == "clients" and study.spread == "seeds" else ""
    marks += FEWER if 0 < len(runs) < seeds else ""
    return replace(cell, mark=marks)


def _notes(study_plan: Plan, found: Mapping[tuple[str, str], list[Run]], out: Path) -> list[str]:
    study = study_plan.study
    which = [study.number(column, setting.label) for setting in study.settings for column in study.columns]
    numbers = ", ".join(dict.fromkeys(head_of(*one) for one in which))
    changes = ", ".join(f"{key}={written(value)}" for key, value in study_plan.changes.items())
    here, planned = sum(len(runs) for runs in found.values()), len(study_plan.jobs)
    seeds = len({job.seed for job in study_plan.jobs})
    notes = [f"{numbers}; bold: the best of its column", *wording.spread_notes(found.values(), study.spread)]
    if any(name == "validated" for _, name in map(study.number, study.columns)):
        notes += wording.unvalidated([Group(tuple(runs)) for runs in found.values()], [label for label, _ in found])
    if any(len(runs) < seeds for runs in found.values()):
        notes.append(f"{FEWER} fewer than the {seeds} seeds planned")
    if changes:
        notes.append(f"scale {study_plan.scale or 'as written'}: {changes}")
    if study.reference.values:
        notes.append(f"{study.reference.source}: {study.reference.about or 'numbers as printed there'}")
    if words := _verdicts([run for runs in found.values() for run in runs]):
        notes.append(f"{', '.join(words)} data: not the official rows or their content, by fedchord data check")
    if study_plan.missing:
        names = ", ".join(f"{label} ({rule})" if rule != label else label for label, rule in study_plan.missing.items())
        notes.append(f"not in this version, skipped: {names}")
    if here < planned:
        notes.append(f"missing: {planned - here} of {planned} runs in {out}")
    cells = [(Group(tuple(runs)), labels) for labels, runs in found.items()]
    names_ = [(method, setting or method, f"{method}, {setting}".rstrip(", ")) for _, (method, setting) in cells]
    return notes + wording.protocol([g for g, _ in cells], names_)
