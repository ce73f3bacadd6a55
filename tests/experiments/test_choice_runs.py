"""Runs whose clients choose together: settings, summary, going on, use afterwards."""

from __future__ import annotations

import json

import pytest
import torch

from fedchord import FedchordError
from fedchord.data.hold import hold_out
from fedchord.evaluation.choice import Chooser
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.loaded import Loaded
from fedchord.experiments.opened import opened, with_rows
from fedchord.experiments.parts import Parts
from fedchord.experiments.session import Run
from fedchord.report import show

TINY = ["model=twonn", "clients=6", "cohort=2", "rounds=4", "seed=3", "lr=0.1", "executor=serial", "eval_every=0"]


def config(*pairs: str) -> RunConfig:
    return RunConfig.from_pairs(TINY).with_pairs(pairs)


CHOICES = [
    ["method=fedavg-ft", "choose=both", "choose.epochs=0,1,3", "choose.lambdas=0,0.5,1"],
    ["method=superfed-mm", "choose=lambda", "method.warmup=0.25"],
    ["method=superfed-stateless", "choose=epochs", "choose.epochs=1,2", "average=0.5"],
]


@pytest.mark.parametrize("pairs", CHOICES)
def test_what_is_chosen_is_deployed_written_down_and_found_again(pairs, tmp_path):
    folder = tmp_path / "a"
    run = Run(Parts.build(config(*pairs, f"out={folder}")))
    summary = run.finish()
    told = summary["choice"]
    flat = [(loss, at, effort) for row, effort in zip(told["losses"], told["efforts"], strict=True)
            for loss, at in zip(row, told["lambdas"], strict=True)]  # fmt: skip
    assert min(flat, key=lambda point: point[0])[1:] == (told["at"], told["epochs"])
    assert "rows held out of training" in "\n".join(show.result_notes(summary, None))
    assert run.fitted.at == told["at"] and run.fitted.work.federation.held is None
    here, again = RunFolder(folder), config(*pairs, f"out={folder}")
    read = with_rows(opened(here, here.read_config(), lambda line: None), here.read_config())
    others = [Loaded.of(folder).fitted, read, _finished(again)]
    for client in (0, 4):
        expected = run.fitted.deployed(client)["theta"]
        assert all(torch.equal(expected, other.deployed(client)["theta"]) for other in others)


def _finished(again: RunConfig):
    run = Run(Parts.build(again), resume=True)
    run.finish()
    return run.fitted


def test_an_interrupted_run_chooses_the_same(tmp_path):
    pairs = [*CHOICES[0], "checkpoint_every=1"]
    whole = runs.execute(config(*pairs))
    for result in Run(Parts.build(config(*pairs, f"out={tmp_path / 'a'}"))):
        if result.round == 3:
            break
    with pytest.raises(FedchordError, match="is not finished, and what its clients choose"):
        opened(RunFolder(tmp_path / "a"), config(*pairs, f"out={tmp_path / 'a'}"), lambda line: None)
    again = runs.resume(tmp_path / "a")
    assert again["choice"] == whole["choice"] and again["per_client"] == whole["per_client"]
    (tmp_path / "a" / "summary.json").unlink()  # measured once more from the last checkpoint
    assert runs.resume(tmp_path / "a")["choice"] == whole["choice"]


def test_newcomers_train_on_all_their_rows():
    parts = Parts.build(config(*CHOICES[0], "newcomers=2"))
    plain = Parts.build(config("method=fedavg-ft", "newcomers=2"))
    assert sorted(parts.newcomers.train.rows.tolist()) == sorted(plain.newcomers.train.rows.tolist())
    assert len(parts.federation.train.rows) < len(plain.federation.train.rows)


def test_objects_in_python_choose_too():
    parts = Parts.build(config("method=fedavg-ft"))
    algorithm, task, whole = parts.algorithm, parts.task, parts.federation
    chooser = Chooser("lambda", (0.0, 1.0))
    with pytest.raises(FedchordError, match="held out"):
        runs.run(algorithm, task, whole, choose=chooser)
    held = hold_out(whole, 0.2)
    summary = runs.run(algorithm, task, held, rounds=1, cohort=2, choose=chooser, executor="serial").finish()
    assert summary["choice"]["at"] in (0.0, 1.0) and json.dumps(summary)
