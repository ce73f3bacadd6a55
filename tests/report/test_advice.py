"""Advice: the answers that made-up pilots must give, and a real one on digits."""

from __future__ import annotations

import csv

import pytest
import torch
from helpers.invoked import invoke

from fedchord.experiments import pilot
from fedchord.experiments.config import RunConfig
from fedchord.report import advice

LEVELS = {"local": 0.7, "FedAvg": 0.8, "central": 0.9, "fine-tuned": 0.8, "chosen together": 0.8, "uniform": 0.8}


def made(spread: float = 0.01, rise: float = 0.0, **changes: float) -> list[pilot.Piloted]:
    """Pilots with given means; `spread` is how much a client varies from pilot to pilot."""
    base = RunConfig.from_pairs(["clients=30"])
    generator = torch.Generator().manual_seed(0)
    levels = LEVELS | {"q-FedAvg": 0.8, "AAggFF": 0.8} | {key.replace("_", "-"): v for key, v in changes.items()}
    clients = torch.randn(3, 30, generator=generator).double() * 0.05
    found = []
    for one in pilot.pilots(base, 30):
        noise = torch.randn(3, 30, generator=generator).double() * spread
        values = tuple(levels[one.label] + clients + noise)
        curve = tuple((t, 0.8 + rise * t) for t in (5, 10, 15, 20))
        found.append(pilot.Piloted(one, "top1", values, (curve,) * 3, 2.0, 1e6))
    return found


def answers(found: list[pilot.Piloted], *asked: str) -> advice.Advice:
    return advice.advise(found, RunConfig.from_pairs(["clients=30", *asked]), ["clients=30", *asked])


def test_answers_follow_the_differences():
    good = answers(made(fine_tuned=0.9, **{"chosen together": 0.9}, AAggFF=0.83), "rounds=40")
    assert (good.federate, good.own, good.weights) == (1, 1, 1)
    assert good.sentences[0].startswith("Federating pays (models chosen together less clients that learn alone: +20.")
    assert good.sentences[1].startswith("Clients should have models of their own")
    assert good.sentences[2].startswith("Weights matter: AAggFF")
    assert good.command == (
        "fedchord run clients=30 method=fedavg-ft choose=both choose.held=0.05 choose.within=2.0 "
        "mixing=aaggff-a rounds=40 seed=1 out=runs/full"
    )
    bad = answers(made(fine_tuned=0.6, AAggFF=0.7, q_FedAvg=0.7, **{"chosen together": 0.6}))
    assert (bad.federate, bad.own, bad.weights) == (-1, -1, -1)
    assert "method=local cohort=all" in bad.command and "do harm" in bad.sentences[2]
    one = answers(made(fine_tuned=0.6))
    assert one.federate == 1 and "method=fedavg rounds" in one.command and "share one model" in one.sentences[1]


def test_it_says_cannot_tell_where_intervals_hold_zero():
    found = answers(made(spread=0.2, local=0.8))
    assert (found.federate, found.own, found.weights) == (0, 0, 0)
    assert all(sentence.startswith("Cannot tell whether") for sentence in found.sentences)
    assert "choose=both" in found.command  # which is either end


def test_a_curve_that_rises_asks_for_more_rounds():
    assert "rounds=100" in answers(made(rise=0.002)).command and answers(made(rise=0.002)).rising
    assert "rounds=20" in answers(made(rise=0.0005)).command


def test_a_lower_error_is_better():
    found = [pilot.Piloted(one.pilot, "mse", one.values, one.curves, 1.0, 1.0) for one in made(fine_tuned=0.9)]
    assert answers(found).own == -1 and answers(found).federate == -1
    assert advice.Judged(found).level("fine-tuned") == pytest.approx(0.9, abs=0.03)


def test_pilots_are_measured_on_training_rows_alone():
    config = RunConfig.from_pairs(["clients=5", "noise=pair", "noise.rate=0.3", "validation=0.1"])
    whole = config.federation()
    found = pilot.cut(whole, 1)
    rows = set(found.train.rows.tolist()) | set(found.test.rows.tolist())
    assert rows == set(whole.train.rows.tolist()) and not len(found.validation.rows)
    assert not set(found.train.rows.tolist()) & set(found.test.rows.tolist())


def test_clients_that_learn_alone_count_as_they_were_at_their_best():
    """Too long a step: what was reached on the way is better than the end."""
    config = RunConfig.from_pairs(["clients=4", "model=twonn", "rounds=4", "lr=1.5", "executor=serial", "split=iid"])
    alone = pilot.pilots(config, 4)[0]
    assert alone.config.rounds == pilot.ALONE and alone.config.eval_every == 5
    (found,) = pilot.fly([alone], {1: pilot.cut(config.federation(), 1)})
    curve = [value for _, value in found.curves[0]]
    assert curve[-1] < max(curve) == pytest.approx(float(found.values[0].mean()))


def test_the_command_gives_a_table_a_picture_and_three_sentences(tmp_path):
    settings = ["model=logreg", "clients=8", "rounds=4", "lr=0.3", "executor=serial", "cohort=all"]
    done = invoke("advise", *settings, "--seeds", "2", "--out", str(tmp_path / "a"))
    assert done.exit_code == 0, done.output
    told = done.output
    for words in ("8 clients with", "total variation", "lies between clients", "differ from most of their neighbours"):
        assert words in told
    assert "Federating" in told or "whether federating pays" in told
    assert "models of their own" in told or "share one model" in told
    assert "eights" in told and "fedchord run model=logreg clients=8" in told and "aaggff-s" in told
    with open(tmp_path / "a" / "advice.csv") as handle:
        table = list(csv.reader(handle))
    assert [row[0] for row in table[1:]] == [one.label for one in pilot.pilots(RunConfig(), 20)]
    assert (tmp_path / "a" / "advice.png").stat().st_size > 5000
