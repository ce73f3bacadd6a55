"""Runs that `study run` made, at any length, into kept results: which row and column of the study each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedchord.check import FedchordError
from fedchord.experiments import reading, study
from fedchord.experiments.config import RunConfig
from fedchord.experiments.study import Job
from fedchord.thesis import results, studies

LENGTH = ("seed", "rounds", "epochs")
"""Run keys in which a run of a row may differ from all scales of its study."""


def keep_runs(name: str, places: Sequence[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """Keep every finished run that belongs to a study; the files written, and why others were not."""
    asked = studies.load(name)
    metrics = {setting: {asked.number(column, setting)[0] for column in asked.columns} for setting in _settings(asked)}
    jobs = _jobs(asked)
    kept, problems = [], []
    found, unread = reading.read_all(places)
    problems += unread
    for run in found:
        try:
            config = RunConfig.from_values({key: value for key, value in run.config.items() if key != "out"})
            job = jobs.get(config.fingerprint(*LENGTH))
            if job is None:
                problems.append(f"{run.folder}: is not a run of study {asked.name} with another seed or length")
                continue
            own = replace(job, seed=config.seed, config=config)
            kept.append(results.keep(own, asked.name, sorted(metrics[job.setting]), run.folder, folder))
        except FedchordError as error:
            problems.append(f"{run.folder}: {error}")
    return kept, problems


def _settings(asked: study.Study) -> list[str]:
    return [entry.label for entry in asked.settings]


def _jobs(asked: study.Study) -> dict[str, Job]:
    """A job of every row, column and scale, by what its settings are but for the length."""
    found: dict[str, Job] = {}
    scales: list[str | None] = [name for name in ("thesis", "small") if name in asked.scales]
    for scale in scales or [None]:
        for job in study.plan(asked, scale).jobs:
            found.setdefault(job.config.fingerprint(*LENGTH), job)
    return found
