"""The control `central`, and averaged models, as settings of a run."""

from __future__ import annotations

import json

import pytest
import torch

from fedchord import FedchordError, rng
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts
from fedchord.experiments.session import Run
from fedchord.report import show

TINY = ["model=logreg", "clients=6", "cohort=2", "rounds=3", "seed=3", "lr=0.2", "batch=40"]


def config(*pairs: str) -> RunConfig:
    return RunConfig.from_pairs(TINY).with_pairs(pairs)


def finished(*pairs: str) -> Run:
    run = Run(Parts.build(config(*pairs)))
    run.finish()
    return run


@pytest.mark.parametrize("pairs", [[], ["executor=serial"], ["executor=auto"], ["mixing=uniform"]])
def test_it_is_plain_sgd_over_the_rows_of_all(pairs):
    """A loop of plain torch over all training rows, in the order that the keys of the rounds give."""
    run = finished("central=true", *pairs)
    parts = run.parts
    first = parts.task.init(rng.key(3, "model"))["theta"].clone()
    weight, bias = first[:640].reshape(10, 64).clone(), first[640:].clone()
    rows = torch.cat([parts.federation.train[client] for client in range(6)])
    for t in range(3):
        (host,) = rng.choose(rng.key(3, "cohort", t), 6, 1)
        order = rng.permutation(rng.fold(rng.fold(rng.key(3, "batches", host, t), 0), 0), len(rows))
        for chunk in rows[order].split(40):
            batch = parts.federation.batch(chunk)
            w, b = weight.clone().requires_grad_(), bias.clone().requires_grad_()
            loss = torch.nn.functional.cross_entropy(batch["x"].flatten(1) @ w.T + b, batch["y"])
            for tensor, slope in zip((weight, bias), torch.autograd.grad(loss, (w, b)), strict=True):
                tensor -= 0.2 * slope
    found = run.fitted.state.broadcast["theta"]
    torch.testing.assert_close(found, torch.cat([weight.flatten(), bias]), rtol=1e-4, atol=1e-5)
    assert run.evaluation.protocol["never_sampled"] == 0 and len(run.evaluation.clients) == 6


def test_clients_that_tune_do_so_on_their_own_rows():
    run = finished("central=true", "method=fedavg-ft")
    plain = finished("central=true")
    assert torch.equal(run.fitted.state.broadcast["theta"], plain.fitted.state.broadcast["theta"])
    work = run.fitted.work
    assert work.stream(2, 3).size == len(work.federation.train[2]) < work.stream(2, 3, central=True).size
    assert not torch.equal(run.fitted.deployed(2)["theta"], run.fitted.deployed(3)["theta"])


@pytest.mark.parametrize("method", ["local", "superfed-mm", "fedper", "ditto", "fedevg"])
def test_methods_without_one_model_are_refused(method):
    with pytest.raises(FedchordError, match="central trains one model for all"):
        RunConfig.from_pairs(["central=true", f"method={method}"])


def test_a_vectorised_run_says_why_not():
    with pytest.raises(FedchordError, match="rows of all"):
        finished("central=true", "executor=vectorised")


def test_it_is_told_in_the_notes_and_resumed_to_the_same_bits(tmp_path):
    pairs = ["central=true", "average=0.5", "rounds=6", "checkpoint_every=2"]
    whole = runs.execute(config(*pairs))
    shown = "\n".join(show.result_notes(whole, None))
    assert "one client trained on the" in shown and "the mean of the models of the last 3 rounds" in shown
    run = Run(Parts.build(config(*pairs, f"out={tmp_path / 'a'}")))
    for result in run:
        if result.round == 5:
            break
    again = runs.resume(tmp_path / "a")
    assert json.dumps(again["per_client"]) == json.dumps(whole["per_client"])
    stopped = Run(Parts.build(config(*pairs)))  # without a folder, what was reached is gone on from
    for result in stopped:
        if result.round == 5:
            break
    assert stopped.finish()["per_client"] == whole["per_client"]


def test_a_mean_of_a_share_of_all_rounds_cannot_be_made_longer(tmp_path):
    runs.execute(config("average=0.5", f"out={tmp_path / 'a'}"))
    with pytest.raises(FedchordError, match="averages a share of all rounds"):
        runs.resume(tmp_path / "a", ["rounds=9"])
