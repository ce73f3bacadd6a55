"""Rows of a study that train alike: the later ones begin with the rounds of the first, to the bits they have alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.runs import everything

from fedchord.experiments import borrow, study
from fedchord.experiments.config import RunConfig

BASE = {
    "model": "logreg",
    "clients": 3,
    "cohort": 2,
    "rounds": 4,
    "batch": 50,
    "lr": 0.1,
    "executor": "serial",
    "eval_every": 0,
}
CHOICE = {"method": "fedavg-ft", "choose.epochs": [0, 1], "choose.lambdas": [0.0, 1.0]}
ROWS: dict[str, dict[str, Any]] = {
    "averaged": {"average": 0.5},
    "last": {},
    "tuned": {"method": "fedavg-ft", "method.tune_epochs": 2},
    "longer": {"rounds": 5},
    "effort": {**CHOICE, "choose": "epochs"},
    "both": {**CHOICE, "choose": "both"},
    "copy": {"method": "fedavg-ft", "method.form": "last"},
    "ditto": {"method": "ditto", "rounds": 1},
    "ditto, longer": {"method": "ditto", "rounds": 2},
}
LENT = {"last": "averaged", "tuned": "averaged", "longer": "last", "both": "effort", "ditto, longer": "ditto"}
"""Which row begins with the rounds of which other; the others train by themselves."""


def planned(names: list[str]) -> study.Plan:
    rows = [{"label": name, "method": "fedavg"} | ROWS[name] for name in names]
    return study.plan(study.parse("t", {"metric": "top1", "seeds": [3], "settings": BASE, "method": rows}))


def test_rows_that_train_alike_are_trained_once_and_end_as_alone(tmp_path: Path) -> None:
    together, lines = tmp_path / "together", list[str]()
    plan = planned(list(ROWS))
    assert not study.run(plan, together, say=lines.append).failed
    folders = {job.method: together / job.folder for job in plan.jobs}
    begun = {name: (folder / borrow.NOTE).is_file() for name, folder in folders.items()}
    assert [name for name, lent in begun.items() if lent] == list(LENT)
    for name, source in LENT.items():
        assert any(f"{name}, seed 3 (with rounds of {folders[source].name})" in line for line in lines)
        alone = planned([name])
        assert not study.run(alone, tmp_path / "alone", say=lambda line: None).failed
        assert everything(folders[name]) == everything(tmp_path / "alone" / alone.jobs[0].folder)


def test_hidden_rows_are_lent_too_and_what_is_spent_stays(tmp_path: Path) -> None:
    """A run that begins where its last round was is tried for one round more than its budget was planned for."""
    hidden = {"privacy": "rows", "privacy.noise": 2.0, "privacy.delta": 0.001, "rounds": 2}
    rows = [{"label": name, "method": name} | hidden for name in ("fedavg", "fedavg-ft")]
    plan = study.plan(study.parse("t", {"metric": "top1", "seeds": [3], "settings": BASE, "method": rows}))
    assert not study.run(plan, tmp_path, say=lambda line: None).failed
    first, tuned = (tmp_path / job.folder for job in plan.jobs)
    assert (tuned / borrow.NOTE).is_file()
    told = [json.loads((folder / "summary.json").read_text())["privacy"] for folder in (first, tuned)]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "other",
    [
        *({"seed": 4}, {"lr": 0.2}, {"model": "twonn"}, {"mixing": "uniform"}, {"rounds": 3}, {"server.lr": 0.5}),
        *({"average": 0.25}, {"choose": "both"}, {"choose": "both", "choose.held": 0.3}, {"method.form": "last"}),
    ],
)
def test_another_training_does_not_serve(other: dict[str, Any]) -> None:
    config = RunConfig.from_values(BASE | {"method": "fedavg-ft", "average": 0.5, "seed": 3})
    assert borrow.serves(config, config.with_values(**{"method.tune_epochs": 7}))
    assert not borrow.serves(config, config.with_values(**other))


def test_what_is_measured_on_the_way_is_not_borrowed() -> None:
    config = RunConfig.from_values(BASE | {"eval_every": 2})
    assert not borrow.serves(config, config)


def test_a_run_with_a_damaged_source_trains_by_itself(tmp_path: Path) -> None:
    plan = planned(["averaged", "last"])
    study.run(plan, tmp_path, ["averaged"], say=lambda line: None)
    for file in (tmp_path / plan.jobs[0].folder / "checkpoints").glob("round-*/manifest.json"):
        file.write_text("{}")
    assert study.run(plan, tmp_path, say=lambda line: None).done == 1
    assert not (tmp_path / plan.jobs[1].folder / borrow.NOTE).exists()
