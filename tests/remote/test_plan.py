"""A plan: what all must know alike, told apart by its fingerprint, and nothing that is one party's alone."""

from __future__ import annotations

import json

import pytest
import torch
from helpers.remote import FEDERATION, plan_of

from fedchord.check import FedchordError
from fedchord.data import from_arrays, outline
from fedchord.data.build import federate
from fedchord.data.partition import Natural
from fedchord.experiments.config import RunConfig
from fedchord.remote.plan import Plan, facts


def test_a_plan_is_the_same_on_every_machine(tmp_path):
    plan = plan_of("superfed-mm", sweep__lambdas=[0.0, 0.5, 1.0], method__mu=0.02, metrics=["f1"])
    outline.save(facts(FEDERATION), tmp_path / "data.safetensors")
    read = Plan.read(plan.text(), outline.load(tmp_path / "data.safetensors"))
    assert read.fingerprint == plan.fingerprint and dict(read.settings) == dict(plan.settings)
    assert read.algorithm == plan.algorithm and read.course == plan.course
    a, b = (one.work().task for one in (plan, read))
    assert torch.equal(a.init(3)["theta"], b.init(3)["theta"]) and a.signature == b.signature
    assert Plan.of(dict(plan.settings), read.outline).fingerprint == plan.fingerprint


def test_what_changes_the_result_changes_the_fingerprint_and_nothing_else():
    base = plan_of("fedprox").fingerprint
    changes = [{"seed": 4}, {"lr": 0.06}, {"rounds": 4}, {"cohort": 3}, {"method__mu": 0.3}, {"model": "logreg"}]
    found = [plan_of("fedprox", **change).fingerprint for change in changes]
    assert len({base, *found, plan_of("fedavg").fingerprint}) == len(changes) + 2
    assert plan_of("fedprox", eval_every=2).fingerprint == base
    assert plan_of("fedprox", lr=5e-2, batch=5.0).fingerprint == base
    assert plan_of("fedprox", FEDERATION.only([1, 0, 2, 3])).fingerprint != base


def test_a_plan_with_rows_is_the_plan_of_its_run():
    config = RunConfig.from_pairs(["method=fedper", "clients=4", "rounds=3", "lr=0.1", "split=iid", "cohort=2"])
    whole = config.federation()
    plan = Plan.from_run(config, whole)
    assert plan.config.training() == config.training() and plan.course == config.plan()
    assert plan.settings["model"] == config.choices()["model"]
    assert not len(plan.outline.columns["x"]) and plan.clients == 4


def test_no_row_and_no_statistics_of_a_client_are_in_a_plan():
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(1)) * 100 + 17
    whole = federate(from_arrays(x, torch.arange(30) % 2, ["a"] * 12 + ["b"] * 18, scale="client"), Natural())
    plan = Plan.of({"rounds": 2, "cohort": "all"}, whole)
    assert len(plan.outline.columns["x"]) == 0 and plan.outline.holdout is None
    assert plan.outline.scaling.mean.isnan().all()
    numbers = whole.scaling.mean.flatten().tolist()
    assert not any(f"{value:.6g}"[:6] in plan.text() for value in numbers)


@pytest.mark.parametrize("key", ["data", "split", "clients", "noise", "workers", "out", "newcomers", "executor"])
def test_keys_about_rows_or_one_machine_are_refused(key):
    with pytest.raises(FedchordError, match=f"^plan: {key} is about rows or one machine, not about what all do alike$"):
        Plan.of({key: "natural" if key == "split" else 1}, FEDERATION)


def test_a_plan_that_was_changed_or_is_for_others_is_refused():
    plan = plan_of("fedavg")
    told = json.loads(plan.text())
    cases = {
        "plan: was made by fedchord 9.9": told | {"version": "9.9"},
        "plan: was changed: its settings do not fit its fingerprint": told
        | {"settings": told["settings"] | {"lr": 1.0}},
        "plan: is damaged, or no plan": {"settings": {}},
    }
    for words, changed in cases.items():
        with pytest.raises(FedchordError, match=words):
            Plan.read(json.dumps(changed), plan.outline)
    with pytest.raises(FedchordError, match="plan: is damaged, or no plan"):
        Plan.read("{", plan.outline)
    with pytest.raises(FedchordError, match="plan: is for other data: the outline is not the one it was made with"):
        Plan.read(plan.text(), facts(FEDERATION.only([0, 1, 2])))


def test_mistakes_in_settings_are_those_of_a_run():
    with pytest.raises(FedchordError, match="did you mean 'rounds'"):
        Plan.of({"ronds": 3}, FEDERATION)
    with pytest.raises(FedchordError, match="cohort must be at most the number of clients, 4, got 9"):
        Plan.of({"cohort": 9}, FEDERATION)


@pytest.mark.parametrize("key", ["central", "choose", "choose.held"])
def test_keys_of_simulations_alone_are_refused(key):
    value = {"central": True, "choose": "lambda", "choose.held": 0.1}[key]
    with pytest.raises(FedchordError, match=f"^plan: {key} is for simulations, not for several machines yet$"):
        Plan.of({"method": "fedavg-ft", key: value}, FEDERATION)
