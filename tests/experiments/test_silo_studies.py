"""The studies around the silos: the numbers of the thesis, its grids, and compositions instead of new methods."""

from __future__ import annotations

import pytest

from fedchord.clients.prox import Prox
from fedchord.clients.superfed import SuPerFed
from fedchord.experiments import study
from fedchord.mixing.aaggff import AAggFFDevice, AAggFFSilo
from fedchord.mixing.online.responses import FAMILIES
from fedchord.mixing.static import BySize, Uniform
from fedchord.servers.adaptive import Adagrad, Adam, Yogi
from fedchord.servers.step import Step
from fedchord.thesis import studies


def test_ag_silo_has_the_runs_of_result_silo() -> None:
    for name in ("silo", "device"):
        for scale in studies.SCALES:
            both = [
                {job.folder for job in study.plan(studies.load(f"{t}_{name}"), scale).jobs} for t in ("ag", "result")
            ]
            assert both[0] == both[1]
    fifty = study.plan(studies.load("result_silo"), "thesis", ["seeds=1-50"]).jobs
    assert len({job.folder for job in fifty}) == 9 * 5 * 50


def test_pnp_exchanges_the_mixing_rule_and_nothing_else() -> None:
    plan = study.narrowed(study.plan(studies.load("pnp"), None, ["seeds=1"]), ["Heart"])
    rules = {job.method: job.config.algorithm() for job in plan.jobs}
    bases = ("FedAvg", "FedProx", "FedAdam", "FedYogi", "FedAdagrad", "SuPerFed")
    assert len(rules) == 3 * len(bases)
    for name in bases:
        base, even, fair = rules[name], rules[f"{name} uniform"], rules[f"{name} + AAggFF"]
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
    tiny = study.narrowed(study.plan(studies.load("pnp"), "thesis", ["seeds=1"]), ["TinyImageNet"])
    mixings = {job.method: job.config.algorithm().mixing for job in tiny.jobs}
    assert {mixings[f"{name} + AAggFF"] for name in bases} == {AAggFFDevice(cdf="exponential")}
    one = tiny.jobs[0].config
    assert (one.clients, one.cohort, one.rounds, one.split_alpha, one.lr_decay) == (1000, 5, 2000, 0.01, 0.95)


def test_cdf_effect_has_all_families_and_the_device_form_for_words() -> None:
    made = studies.load("cdf_effect")
    assert [entry.keys["method.cdf"] for entry in made.methods] == list(FAMILIES)
    for job in study.plan(made, "thesis").jobs:
        device = job.setting in ("Reddit", "Shakespeare's words")
        assert isinstance(job.config.algorithm().mixing, AAggFFDevice if device else AAggFFSilo)


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
    assert not set(grid.seeds) & set(range(1, 51))
    device = studies.load("device_grid")
    names = {entry.label for entry in grid.methods if "AFL" not in entry.label}
    assert names < {entry.label for entry in device.methods} and not set(device.seeds) & set(range(1, 51))


SILO = ("Berka", "Berka leaking", "Heart")


@pytest.mark.parametrize("name", ["ag_silo", "pnp", "cdf_effect", "silo_grid"])
def test_settings_are_those_of_result_silo(name: str) -> None:
    silo = {entry.label: entry.keys for entry in studies.load("result_silo").settings}
    jobs = [job for job in study.plan(studies.load(name)).jobs if job.setting in SILO]
    assert jobs
    for job in jobs:
        config = job.config
        assert (config.model, config.split, config.test, config.batch) == ("logreg", "natural", 0.2, 20)
        assert (config.cohort, config.epochs) == ("all", 1)
        given = config.given()
        assert {key: given[key] for key in silo[job.setting]} == silo[job.setting]
