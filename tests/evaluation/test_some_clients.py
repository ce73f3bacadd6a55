"""Measuring some of the clients: the same ones each time, with the numbers that all of them would have had."""

from __future__ import annotations

import json

import pytest
import torch
from helpers.federations import make_federation
from helpers.invoked import invoke

import fedchord
from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.core.task import Task
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute
from fedchord.models import TwoNN

RUN = ("data=digits", "clients=12", "cohort=3", "eval_every=2", "executor=serial")


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_some_are_measured_on_the_way_and_all_in_the_end_if_asked(tmp_path):
    whole, some, both = (
        execute(RunConfig.from_pairs([*RUN, "rounds=4", f"out={tmp_path / name}", *more]))
        for name, more in (("a", ()), ("b", ("eval_clients=5",)), ("c", ("eval_clients=5", "eval_all=true")))
    )
    chosen = some["per_client"]["client"]
    assert len(chosen) == 5 and chosen == sorted(chosen, key=int)
    at = [whole["per_client"]["client"].index(client) for client in chosen]
    for name in ("top1", "loss"):  # the very numbers, of fewer clients
        assert some["per_client"][name] == [whole["per_client"][name][i] for i in at]
        assert some["metrics"][name]["mean"] == pytest.approx(sum(some["per_client"][name]) / 5)
    assert both["metrics"] == whole["metrics"] and "among" not in both["protocol"]
    assert (some["protocol"]["evaluated"], some["protocol"]["among"], some["protocol"]["without_rows"]) == (5, 12, 0)
    ways = [lines(tmp_path / name)[1]["metrics"] for name in "bc"]
    assert ways[0] == ways[1] != lines(tmp_path / "a")[1]["metrics"]  # the same five in both, on the way


def test_the_same_clients_for_every_method_of_a_seed():
    chosen = {
        tuple(
            execute(RunConfig.from_pairs([*RUN, "eval_clients=4", f"method={method}", *more]))["per_client"]["client"]
        )
        for method in ("fedavg", "superfed-mm", "ditto")
        for more in (("rounds=3",), ("rounds=2",))
    }
    other = execute(RunConfig.from_pairs([*RUN, "eval_clients=4", "seed=1", "rounds=2"]))["per_client"]["client"]
    assert len(chosen) == 1 and tuple(other) not in chosen


def test_own_objects_and_a_number_above_all():
    federation, task = make_federation([7, 3, 4, 5, 6, 7]), Task(lambda: TwoNN(6, 5, 3))
    run = fedchord.run(catalog.build("fedavg"), task, federation, rounds=2, cohort=2, eval_clients=4, executor="serial")
    run.finish()
    assert len(run.evaluation.clients) == 4 and torch.isfinite(run.evaluation.per_client["loss"]).all()
    summary = execute(RunConfig.from_pairs([*RUN, "rounds=1", "eval_clients=99"]))
    assert summary["protocol"]["evaluated"] == 12 and "among" not in summary["protocol"]


def test_it_is_said_and_bad_numbers_are_refused():
    done = invoke("run", *RUN, "rounds=1", "eval_clients=5")
    assert "5 of 12 clients, drawn once, on their own test rows" in " ".join(done.output.split())
    for bad, why in (
        (("eval_clients=0",), "eval_clients must be a whole number"),
        (("eval_all=true",), "eval_all is given, but not eval_clients"),
        (("eval_clients=3", "method=fedevg", "model=smallconv"), "needs a method that ends with a model"),
    ):
        with pytest.raises(FedchordError, match=why):
            RunConfig.from_pairs([*RUN, *bad])
