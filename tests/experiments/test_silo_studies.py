"""The studies around the silos: the numbers of the thesis, its grids, and compositions instead of new methods."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedchord.clients.prox import Prox
from fedchord.clients.superfed import SuPerFed
from fedchord.experiments import study
from fedchord.mixing.aaggff import AAggFFSilo
from fedchord.mixing.online.responses import FAMILIES
from fedchord.mixing.static import BySize, Uniform
from fedchord.servers.adaptive import Adagrad, Adam, Yogi
from fedchord.servers.step import Step
from fedchord.thesis import studies


def printed(table: str) -> list[dict]:
    place = os.environ.get("FEDCHORD_THESIS")
    if not place:
        pytest.skip("FEDCHORD_THESIS does not point to the thesis' tables.json")
    path = Path(place) / "tables.json" if Path(place).is_dir() else Path(place)
    return json.loads(path.read_text())[table]["rows"]


def test_ag_silo_holds_the_numbers_of_the_thesis() -> None:
    rows = [row for row in printed("ag_silo") if row["dataset"] == "Berka"]
    expected = {(row["method"], "Berka leaking", "gap"): (row["mean"], row["std"]) for row in rows}
    assert len(expected) == 7 and studies.load("ag_silo").reference.values == expected


def test_ag_silo_has_the_runs_of_result_silo() -> None:
    for scale in (None, "fifty"):
        folders = [{job.folder for job in study.plan(studies.load(n), scale).jobs} for n in ("ag_silo", "result_silo")]
        assert folders[0] == folders[1]
    assert len(folders[0]) == 9 * 3 * 50


def test_pnp_holds_the_numbers_of_the_thesis() -> None:
    expected = {}
    for row in printed("pnp"):
        if row["dataset"] == "Heart":
            label = row["method"] + (" AAggFF-S" if row["setting"]["with_AAggFF"] else "")
            expected[label, "Heart", {"avg": "mean", "worst": "worst10"}[row["metric"]]] = (row["mean"], row["std"])
    assert len(expected) == 20 and studies.load("pnp").reference.values == expected


def test_pnp_exchanges_the_mixing_rule_and_nothing_else() -> None:
    plan = study.plan(studies.load("pnp"), None, ["seeds=1"])
    rules = {job.method: job.config.algorithm() for job in plan.jobs}
    bases = ("FedAvg", "FedProx", "FedAdam", "FedYogi", "FedAdagrad", "SuPerFed")
    assert len(rules) == 3 * len(bases)
    for name in bases:
        base, even, fair = rules[name], rules[f"{name} uniform"], rules[f"{name} AAggFF-S"]
        assert base.client == even.client == fair.client and base.server == even.server == fair.server
        assert (base.mixing, even.mixing, fair.mixing) == (BySize(), Uniform(), AAggFFSilo(cdf="frechet"))
    assert rules["FedProx"].client == Prox(mu=1e-3) and isinstance(rules["SuPerFed"].client, SuPerFed)
    servers = {name: rules[name].server for name in bases}
    adaptive = {"lr": 0.01, "beta1": 0.9, "tau": 1e-4}
    assert servers["FedAdam"] == Adam(**adaptive, beta2=0.999) and servers["FedYogi"] == Yogi(**adaptive, beta2=0.999)
    assert servers["FedAdagrad"] == Adagrad(lr=0.01, tau=1e-4) and servers["FedAvg"] == Step()
    training = plan.jobs[0].config.training()
    schedule = (training.lr, training.weight_decay, training.lr_decay, training.lr_step)
    assert (plan.jobs[0].config.rounds, *schedule) == (200, 0.01, 0.0, 0.999, 2)


def test_cdf_effect_holds_the_numbers_of_the_thesis_and_all_families() -> None:
    made = studies.load("cdf_effect")
    assert [entry.keys["method.cdf"] for entry in made.methods] == list(FAMILIES)
    columns = {"avg_AUROC": "mean", "worst_AUROC": "worst10"}
    rows = [row for row in printed("cdf_effect") if row["dataset"] == "Berka"]
    expected = {
        (row["method"].split("/")[1], "Berka leaking", columns[row["metric"]]): (row["mean"], None) for row in rows
    }
    assert len(expected) == 4 and made.reference.values == expected


def test_the_grid_is_that_of_the_thesis_on_seeds_of_its_own() -> None:
    grid = studies.load("silo_grid")
    found: dict[str, list[object]] = {}
    for entry in grid.methods:
        found.setdefault(str(entry.keys["method"]), []).extend(v for k, v in entry.keys.items() if k != "method")
    assert found.pop("fedavg") == []
    assert found == {
        "afl": [0.01, 0.1, 1.0],
        "q-fedavg": [0.1, 1.0, 5.0],
        "term": [0.1, 1.0, 10.0],
        "fedmgda": [0.1, 0.5, 1.0],
        "propfair": [2.0, 3.0, 5.0],
    }
    tables = {seed for name in ("result_silo", "pnp") for seed in study.plan(studies.load(name), "fifty").study.seeds}
    assert not set(grid.seeds) & (tables | set(range(1, 51)))


@pytest.mark.parametrize("name", ["ag_silo", "pnp", "cdf_effect", "silo_grid"])
def test_settings_are_those_of_result_silo(name: str) -> None:
    silo = {entry.label: entry.keys for entry in studies.load("result_silo").settings}
    for job in study.plan(studies.load(name)).jobs:
        config = job.config
        assert (config.model, config.split, config.test, config.batch) == ("logreg", "natural", 0.2, 20)
        assert (config.cohort, config.epochs) == ("all", 1)
        given = config.given()
        assert {key: given[key] for key in silo[job.setting]} == silo[job.setting]
