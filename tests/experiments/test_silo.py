"""The cross-silo study: the numbers and hyperparameters of the thesis, and two rounds of it on the real tables."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedchord.experiments import study
from fedchord.thesis import studies

LABELS = ("FedAvg", "AFL", "q-FedAvg", "TERM", "FedMGDA", "PropFair", "AAggFF-S")
COLUMNS = {"avg": "mean", "worst": "worst10", "best": "best10", "gini": "gini", "delta_AG": "gap"}


def test_it_holds_the_numbers_of_the_thesis() -> None:
    place = os.environ.get("FEDCHORD_THESIS")
    if not place:
        pytest.skip("FEDCHORD_THESIS does not point to the thesis' tables.json")
    path = Path(place) / "tables.json" if Path(place).is_dir() else Path(place)
    printed = json.loads(path.read_text())
    expected = {
        (row["method"], "Berka leaking", COLUMNS[row["metric"]]): (row["mean"], row["std"])
        for table in ("result_silo", "ag_silo")
        for row in printed[table]["rows"]
        if row["dataset"] == "Berka"
    }
    assert len(expected) == 7 * 5
    for row in printed["pnp"]["rows"]:
        if (row["dataset"], row["method"]) == ("Heart", "FedAvg"):
            label = "AAggFF-S" if row["setting"]["with_AAggFF"] else "FedAvg"
            expected[label, "Heart", COLUMNS[row["metric"]]] = (row["mean"], row["std"])
    assert len(expected) == 7 * 5 + 4
    assert studies.load("result_silo").reference.values == expected


def test_it_has_the_hyperparameters_of_the_thesis() -> None:
    silo = studies.load("result_silo")
    assert (silo.metric, silo.seeds) == ("auroc", (1, 2, 3))
    assert silo.columns == ("mean", "worst10", "best10", "gini", "gap")
    assert {entry.label for entry in silo.methods} == {"Local", "Uniform", *LABELS}
    expected = {
        "Berka": ("berka", 100, 1.0, 1e-3, 0.99, 10),
        "Berka leaking": ("berka-leaking", 100, 1.0, 1e-3, 0.99, 10),
        "Heart": ("heart", 200, 0.01, 0.0, 0.999, 2),
    }
    for job in study.plan(silo).jobs:
        config, training = job.config, job.config.training()
        assert (config.model, config.split, config.cohort, config.test) == ("logreg", "natural", "all", 0.2)
        assert (training.epochs, training.batch, training.momentum, training.optimiser) == (1, 20, 0.0, "sgd")
        schedule = (training.lr, training.weight_decay, training.lr_decay, training.lr_step)
        assert (config.data, config.rounds, *schedule) == expected[job.setting]
    values = {entry.label: list(entry.keys.values())[1:] for entry in silo.methods if entry.label in LABELS}
    assert values == {
        "FedAvg": [],
        "AFL": [0.01],
        "q-FedAvg": [1.0],
        "TERM": [0.1],
        "FedMGDA": [1.0],
        "PropFair": [3.0],
        "AAggFF-S": [],
    }
    last = silo.methods[-1].inside
    assert {pattern: list(keys.values()) for pattern, keys in last.items()} == {
        "Berka*": ["normal"],
        "Heart": ["frechet"],
    }


@pytest.mark.data
def test_two_rounds_on_the_real_tables(data_root: Path, tmp_path: Path) -> None:
    from fedchord.data import SOURCES, status

    for name in ("berka", "heart"):
        if status(SOURCES[name], data_root) != "present":
            pytest.skip(f"{name} under FEDCHORD_DATA: {status(SOURCES[name], data_root)}")
    plan = study.plan(studies.load("result_silo"), None, ["rounds=2", "seeds=1"])
    outcome = study.run(plan, tmp_path, ["FedAvg", "AAggFF-S"], say=lambda line: None)
    assert (outcome.failed, outcome.done) == ({}, 6)
    for runs in plan.runs(tmp_path).values():
        values = runs[0].summary["metrics"]["auroc"]
        assert values["clients"] in (4, 7) and values["undefined"] == 0
        assert 0 <= values["worst10"] <= values["mean"] <= values["best10"] <= 1
        assert values["gap"] == pytest.approx(values["best10"] - values["worst10"])
