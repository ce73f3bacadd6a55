"""Runs that `study run` made, at any length, into kept results: which row and column of the study each of them is.

`keep_runs` writes a file for each run, with its numbers by client; `keep_lines` one table for the study, a line a run,
for studies of many seeds.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedchord.check import FedchordError, fail, require
from fedchord.experiments import reading, study
from fedchord.experiments.config import RunConfig
from fedchord.experiments.reading import Run
from fedchord.experiments.study import Job
from fedchord.files import made_folder, write_text
from fedchord.thesis import results, studies

LENGTH = ("seed", "rounds", "epochs")
"""Run keys in which a run of a row may differ from all scales of its study."""
KNOWN = ("setting", "row", "seed", "rounds", "run")
"""What a line of a table is known by: `run` is the mark of the settings, as in a folder's name."""
BESIDE = ("chosen lambda", "chosen epochs", "data", "fedchord", "seconds")


def keep_runs(name: str, places: Sequence[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """Keep every finished run that belongs to a study; the files written, and why others were not."""
    asked = studies.load(name)
    found, problems = recognised(asked, places)
    kept = []
    for job, run in found:
        metrics = sorted({asked.number(column, job.setting)[0] for column in asked.columns})
        try:
            kept.append(results.keep(job, asked.name, metrics, run.folder, folder))
        except FedchordError as error:
            problems.append(f"{run.folder}: {error}")
    return kept, problems


def keep_lines(name: str, places: Sequence[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """The same as one table, FOLDER/STUDY.csv; lines of other runs that are there already stay."""
    asked, file = studies.load(name), folder / f"{studies.load(name).name}.csv"
    found, problems = recognised(asked, places)
    heads = [*KNOWN, *asked.columns, *BESIDE]
    kept = {tuple(line[head] for head in KNOWN): line for line in read_lines(file, heads)}
    for job, run in found:
        line = _line(asked, job, run)
        kept[tuple(line[head] for head in KNOWN)] = line
    if not found:
        return [], problems
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(line for _, line in sorted(kept.items()))
    made_folder(folder)
    write_text(file, text.getvalue())
    return [file], problems


def recognised(asked: study.Study, places: Sequence[Path]) -> tuple[list[tuple[Job, Run]], list[str]]:
    """The finished runs that belong to a study, with what they are there, and why others do not."""
    jobs, known = _jobs(asked), list[tuple[Job, Run]]()
    found, problems = reading.read_all(places)
    for run in found:
        try:
            config = RunConfig.from_values({key: value for key, value in run.config.items() if key != "out"})
        except FedchordError as error:
            problems.append(f"{run.folder}: {error}")
            continue
        job = jobs.get(config.fingerprint("seed")) or jobs.get(config.fingerprint(*LENGTH))
        if job is None:
            problems.append(f"{run.folder}: is not a run of study {asked.name} with another seed or length")
        else:
            known.append((replace(job, seed=config.seed, config=config), run))
    return known, problems


def _line(asked: study.Study, job: Job, run: Run) -> dict[str, str]:
    kept = results.content(job, asked.name, (), run)
    choice = run.summary.get("choice") or {}
    mark = job.config.fingerprint()[:8]
    values = [run.value(*asked.number(column, job.setting)) for column in asked.columns]
    told = ["" if value is None else f"{value:.6g}" for value in (*values, choice.get("at"), choice.get("epochs"))]
    verdict, version = str(kept["data"].get("verdict", "")), str(kept["versions"].get("fedchord", "?"))
    cells = [job.setting, job.method, str(job.seed), str(job.config.rounds), mark, *told, verdict, version]
    return dict(zip((*KNOWN, *asked.columns, *BESIDE), [*cells, f"{kept['seconds']:.0f}"], strict=True))


def read_lines(file: Path, heads: Sequence[str]) -> list[dict[str, str]]:
    """The lines that are there."""
    if not file.is_file():
        return []
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            first, *lines = list(csv.reader(stream)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise fail(str(file), "is damaged; put it aside first") from None
    require(first == list(heads), str(file), "has other columns than the study; put it aside first")
    for number, cells in enumerate(lines, 2):
        require(len(cells) == len(heads), str(file), f"line {number} has {len(cells)} cells, not {len(heads)}")
    return [dict(zip(heads, cells, strict=True)) for cells in lines]


def _jobs(asked: study.Study) -> dict[str, Job]:
    """A job of every row, column and scale, by what its settings are but for the seed, and but for the length: rows may
    differ in their length alone."""
    found: dict[str, Job] = {}
    scales: list[str | None] = [name for name in ("thesis", "small") if name in asked.scales]
    for scale in scales or [None]:
        for job in study.plan(asked, scale, ["seeds=1"]).jobs:
            for mark in (job.config.fingerprint("seed"), job.config.fingerprint(*LENGTH)):
                found.setdefault(mark, job)
    return found
