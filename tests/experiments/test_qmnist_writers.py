"""The cross-device study: what it fixes, and two rounds of it on the real writers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedchord.experiments import study
from fedchord.thesis import studies


def test_it_has_the_settings_it_tells_of() -> None:
    writers = studies.load("qmnist_writers")
    assert writers.columns == ("mean", "worst10", "best10", "gini", "gap") and len(writers.seeds) == 20
    labels = [entry.label for entry in writers.methods]
    assert labels[:2] == ["Uniform", "FedAvg"] and "AFL" not in labels
    jobs = study.plan(writers).jobs
    assert len(jobs) == 20 * len(labels)
    for job in jobs:
        config, training = job.config, job.config.training()
        assert (config.data, config.split, config.clients, config.cohort, config.rounds) == (
            "qmnist",
            "natural",
            500,
            5,
            300,
        )
        assert (training.epochs, training.batch, training.momentum, training.weight_decay) == (1, 20, 0.0, 0.0)
        assert (config.model, training.lr, training.lr_decay, training.lr_step) == ("logreg", 1.0, 0.8, 20)
        assert not config.algorithm().mixing.full


@pytest.mark.data
def test_two_rounds_on_the_real_writers(data_root: Path, tmp_path: Path) -> None:
    from fedchord.data import SOURCES, status

    if status(SOURCES["qmnist"], data_root) != "present":
        pytest.skip(f"qmnist under FEDCHORD_DATA: {status(SOURCES['qmnist'], data_root)}")
    plan = study.plan(studies.load("qmnist_writers"), None, ["rounds=2", "seeds=1"])
    outcome = study.run(plan, tmp_path, ["Uniform", "AAggFF-D", "FedMGDA"], say=lambda line: None)
    assert (outcome.failed, outcome.done) == ({}, 3)
    for runs in plan.runs(tmp_path).values():
        values = runs[0].summary["metrics"]["top1"]
        assert values["clients"] == 500 and values["undefined"] == 0
        assert 0 <= values["worst10"] <= values["mean"] <= values["best10"] <= 1
