"""Metrics of a run: metrics=f1,... beside the usual ones, functions of your own in Python, and the objective's name."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

import fedchord
from fedchord import FedchordError, Task, metrics
from fedchord.experiments.config import RunConfig
from fedchord.experiments.loaded import Loaded
from fedchord.experiments.run import execute
from fedchord.models import TwoNN

SMALL = ["rounds=2", "clients=4", "cohort=2", "executor=serial", "split=iid"]
USUAL = ("top1", "top5", "loss", "ece", "mce")


def test_asked_metrics_come_after_the_usual_ones_and_match_sklearn(tmp_path):
    out = tmp_path / "a"
    summary = execute(RunConfig.from_pairs([*SMALL, "metrics=f1, balanced-accuracy,top1,f1", f"out={out}"]))
    assert tuple(summary["metrics"]) == (*USUAL, "f1", "balanced-accuracy")
    loaded = Loaded.of(out)
    found = [loaded.scores_of(client) for client in loaded.clients]
    oracle = [
        f1_score(y, scores.argmax(1), labels=np.unique(y), average="macro", zero_division=0) for scores, y in found
    ]
    assert summary["per_client"]["f1"] == pytest.approx(oracle, abs=1e-12)
    assert summary["metrics"]["f1"]["mean"] == pytest.approx(np.mean(oracle))
    assert json.loads((out / "rounds.jsonl").read_text().splitlines()[-1])["metrics"]["f1"]["mean"] is not None
    assert RunConfig.from_toml(out / "config.toml").metrics == ("f1", "balanced-accuracy", "top1")


def test_without_the_key_settings_and_numbers_stay(tmp_path):
    plain, more = (execute(RunConfig.from_pairs([*SMALL, *asked])) for asked in ([], ["metrics=kappa"]))
    assert "metrics" not in RunConfig().values()
    assert {name: more["per_client"][name] for name in USUAL} == {name: plain["per_client"][name] for name in USUAL}


def test_clients_of_one_class_are_undefined_and_counted(tmp_path):
    draw = np.random.default_rng(0)
    x, client = draw.normal(size=(80, 3)).astype("float32"), np.arange(80) % 4
    np.savez(tmp_path / "two.npz", x=x, y=np.where(client == 0, 1, np.arange(80) // 4 % 2), client=client)
    settings = ["rounds=1", f"data={tmp_path / 'two.npz'}", "cohort=all", "executor=serial", "metrics=sensitivity"]
    found = execute(RunConfig.from_pairs(settings))["metrics"]["sensitivity"]
    assert (found["clients"], found["undefined"]) == (3, 1)


@pytest.mark.parametrize("value, words", [
    ("kapa", r"unknown metric 'kapa'; did you mean 'kappa'\?"),
    ("3", "metrics must be names such as f1,auroc, got 3"),
])  # fmt: skip
def test_unknown_metrics_are_told_before_any_work(value, words):
    with pytest.raises(FedchordError, match=words):
        RunConfig.from_pairs([f"metrics={value}"])


def test_the_protocol_names_the_objective():
    assert execute(RunConfig.from_pairs(SMALL))["protocol"]["objective"] == "cross-entropy"
    weighted = execute(RunConfig.from_pairs([*SMALL, "class_weights=true"]))
    assert weighted["protocol"]["objective"] == "weighted cross-entropy"


def own_run(**settings):
    digits = fedchord.federate(fedchord.load("digits"), fedchord.data.Iid(), 4, seed=0)
    return fedchord.run(
        fedchord.catalog.build("fedavg"), Task(lambda: TwoNN(64, classes=10)), digits, rounds=2, **settings
    )


def test_functions_of_your_own_by_name(tmp_path):
    def confident(scores: torch.Tensor, labels: torch.Tensor) -> float:
        return float(scores.softmax(1).amax(1).mean())

    try:
        asked = {"top1": None, "f1": None, "confident": confident}
        forked = own_run(metrics=asked, executor="processes", workers=2, out=tmp_path / "a").finish()
        serial = own_run(metrics=asked, executor="serial")
        assert serial.finish()["per_client"] == forked["per_client"]
        assert tuple(forked["metrics"]) == ("top1", "f1", "confident")
        fitted, rows = serial.fitted, serial.parts.federation.test
        batch = serial.parts.federation.batch(rows[1])
        model = fitted.deployed(1)
        oracle = confident(serial.parts.task.outputs(model["theta"], model["buffers"], batch), batch["y"])
        assert forked["per_client"]["confident"][1] == pytest.approx(oracle)
    finally:
        del metrics.METRICS["confident"]
        metrics.HIGHER_IS_BETTER.discard("confident")


def test_unknown_names_are_told_in_python_before_training():
    with pytest.raises(FedchordError, match="unknown metric 'f2'"):
        own_run(metrics=["f2"])
