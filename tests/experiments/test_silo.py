"""The cross-silo study: the numbers and hyperparameters of the thesis, and two rounds of it on the real tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedchord.experiments import study
from fedchord.thesis import studies

LABELS = ("FedAvg", "AFL", "q-FedAvg", "TERM", "FedMGDA", "PropFair", "AAggFF-S")


def test_it_has_the_hyperparameters_of_the_thesis() -> None:
    silo = studies.load("result_silo")
    assert (silo.metric, silo.seeds) == ("auroc", (1, 2, 3))
    assert silo.columns == ("mean", "worst10", "best10", "gini", "gap")
    assert {entry.label for entry in silo.methods} == {"Local", "Uniform", *LABELS}
    expected = {
        "Berka": ("berka", 100, 1.0, 1e-3, 0.99, 10),
        "Berka leaking": ("berka-leaking", 100, 1.0, 1e-3, 0.99, 10),
        "Heart": ("heart", 200, 0.01, 0.0, 0.999, 2),
        "MQP": ("mqp", 100, 0.0031622777, 1e-2, 0.99, 15),
        "ISIC": ("isic", 50, 1e-4, 1e-2, 0.95, 5),
    }
    models = {"MQP": "encoder:distilbert", "ISIC": "efficientnet-b0:efficientnet_b0.pth"}
    for job in study.plan(silo, "thesis").jobs:
        config, training = job.config, job.config.training()
        network = models.get(job.setting, "logreg")
        assert (config.model, config.split, config.cohort, config.test) == (network, "natural", "all", 0.2)
        assert (training.epochs, training.batch, training.momentum, training.optimiser) == (1, 20, 0.0, "sgd")
        schedule = (training.lr, training.weight_decay, training.lr_decay, training.lr_step)
        assert (config.data, config.rounds, *schedule) == expected[job.setting]
    constants: dict[str, dict[str, object]] = {}
    for job in study.plan(silo, "thesis", ["seeds=1"]).jobs:
        if job.setting in ("Berka leaking", "MQP", "ISIC"):
            own = [value for key, value in job.config.parameters if key.startswith("method.")]
            constants.setdefault(job.method, {})[job.setting] = own[0] if own else None
    assert {label: list(constants[label].values()) for label in LABELS} == {
        "FedAvg": [None] * 3,
        "AFL": [0.01] * 3,
        "q-FedAvg": [1.0, 0.1, 0.1],
        "TERM": [0.1] * 3,
        "FedMGDA": [1.0, 0.1, 0.5],
        "PropFair": [3.0, 2.0, 3.0],
        "AAggFF-S": ["normal", "logistic", "weibull"],
    }


@pytest.mark.data
def test_two_rounds_on_the_real_tables(data_root: Path, tmp_path: Path) -> None:
    from fedchord.data import SOURCES, status

    for name in ("berka", "heart"):
        if status(SOURCES[name], data_root) != "present":
            pytest.skip(f"{name} under FEDCHORD_DATA: {status(SOURCES[name], data_root)}")
    plan = study.plan(studies.load("result_silo"), None, ["rounds=2", "seeds=1"])
    here = ["FedAvg", "AAggFF-S", "Berka", "Berka leaking", "Heart"]
    outcome = study.run(plan, tmp_path, here, say=lambda line: None)
    assert (outcome.failed, outcome.done) == ({}, 6)
    for runs in plan.runs(tmp_path).values():
        values = runs[0].summary["metrics"]["auroc"]
        assert values["clients"] in (4, 7) and values["undefined"] == 0
        assert 0 <= values["worst10"] <= values["mean"] <= values["best10"] <= 1
        assert values["gap"] == pytest.approx(values["best10"] - values["worst10"])
