"""Runs with hostile clients: who is measured, what is written down, what ends a run and what is kept then."""

from __future__ import annotations

import json

import pytest
import torch

from fedchord.attacks.attack import Attack
from fedchord.check import FedchordError
from fedchord.engine import checkpoint
from fedchord.engine.guards import Diverged
from fedchord.engine.memory import ClientMemory
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.parts import Parts
from fedchord.report.words import sentences

SMALL = ["clients=10", "cohort=5", "rounds=4", "split=iid", "model=logreg", "lr=0.1", "executor=serial", "eval_every=0"]


def config(*pairs: str) -> RunConfig:
    return RunConfig.from_pairs(pairs, RunConfig.from_pairs(SMALL).given())


def test_results_are_those_of_the_honest_clients_and_say_so(tmp_path):
    asked = config("attack=sign-flip", "attack.share=0.3", "validation=0.1", f"out={tmp_path / 'a'}")
    summary = runs.execute(asked)
    hostile = Attack("sign-flip", 0.3).hostile(0, 10)
    honest = [str(client) for client in range(10) if client not in hostile]
    assert [str(name) for name in summary["per_client"]["client"]] == honest
    assert summary["metrics"]["top1"]["clients"] == 7 == summary["validation"]["evaluated"]
    assert summary["metrics"]["top1"]["mean"] == pytest.approx(sum(summary["per_client"]["top1"]) / 7)
    told = sentences(summary["protocol"], "fedavg")
    assert told[-1] == "attack: 3 of 10 clients are hostile (sign-flip, scale 1); numbers are of the 7 honest clients"
    for line in RunFolder(tmp_path / "a").read_rounds():
        expected = sum(s for c, s in zip(line["cohort"], line["shares"], strict=True) if c in hostile)
        assert line["log"]["hostile_share"] == pytest.approx(expected)
    again = RunConfig.from_toml(tmp_path / "a" / "config.toml")
    assert again.fingerprint() == asked.fingerprint() and again.hostile() == Attack("sign-flip", 0.3)


def test_newcomers_are_honest_and_hostile_clients_are_drawn_among_those_who_train():
    parts = Parts.build(config("attack=label-flip", "attack.share=0.5", "newcomers=2"))
    assert parts.federation.num_clients == 8 and int((parts.federation.test.sizes == 0).sum()) == 4
    assert int((parts.newcomers.test.sizes == 0).sum()) == 0


def test_updates_that_were_left_out_are_named_and_counted(tmp_path):
    told: list[str] = []
    asked = config("attack=scaled", "attack.share=0.2", "attack.scale=1e12", f"out={tmp_path / 'a'}")
    summary = runs.execute(asked, report=told.append)
    lines = RunFolder(tmp_path / "a").read_rounds()
    left = [(line["round"], client) for line in lines for client in line.get("missing", {})]
    assert left and summary["missing"] == {"exploded": len(left)}
    named = [line for line in told if "was left out (exploded: theta of length" in line]
    assert [line.partition(" was")[0] for line in named] == [f"round {r}: the update of client {c}" for r, c in left]
    calm = runs.execute(config())  # a usual run is as it was, with no word of it
    assert "missing" not in calm


def test_where_too_few_updates_are_left_the_last_good_round_is_kept(tmp_path):
    hostile = ["attack=scaled", "attack.share=0.4", "attack.scale=1e12"]
    asked = config("method=ditto", *hostile, "rounds=20", "seed=2", f"out={tmp_path / 'a'}")
    with pytest.raises(Diverged) as caught:
        runs.execute(asked)
    folder = RunFolder(tmp_path / "a")
    done = len(folder.read_rounds())
    assert done > 0 and folder.checkpoint_rounds() == [done]
    text = str(caught.value)
    assert text.startswith(f"round {done + 1}: only ") and "\n" not in text
    assert text.endswith(f"the last checkpoint is of round {done}; go on with: fedchord resume {folder.path}")
    memory = ClientMemory()
    found = checkpoint.load(folder.checkpoints, memory)
    whole = runs.execute(asked.with_values(rounds=done, out=str(tmp_path / "b")))
    other = ClientMemory()
    known = checkpoint.load(tmp_path / "b" / "checkpoints", other)
    assert whole["rounds"] == done and memory.clients() == other.clients()
    assert all(torch.equal(found.state.broadcast[n], t) for n, t in known.state.broadcast.items())
    for client in memory.clients():
        assert all(torch.equal(part, other.get(client)[name]) for name, part in memory.get(client).items())


def test_a_run_whose_loss_outgrows_all_measure_ends_early_and_says_what_to_try(tmp_path):
    pairs = [
        "attack=scaled",
        "attack.share=0.4",
        "attack.scale=300",
        "eval_every=1",
        "checkpoint_every=1",
        "cohort=all",
    ]
    with pytest.raises(Diverged) as caught:
        runs.execute(config(*pairs, "diverged=20", f"out={tmp_path / 'a'}"))
    text = str(caught.value)
    assert ": diverged, the median client's loss is" in text and "more than 20 times the first" in text
    assert "try a lower lr, a limit on gradients (clip=1) or on updates (bound=median)" in text
    assert runs.execute(config(*pairs, "diverged=0"))["rounds"] == 4
    lines = (tmp_path / "a" / "rounds.jsonl").read_text().splitlines() if (tmp_path / "a").exists() else []
    assert len(lines) < 4 and all(json.loads(line) for line in lines)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["attack=sign-flp"], "unknown attack 'sign-flp'; did you mean 'sign-flip'?"),
        (["attack=noise", "attack.share=1"], "run: attack.share must be at least 0 and below 1, got 1.0"),
        (["attack=noise", "attack.share=0.01"], "run: attack.share=0.01 of 10 clients is nobody; 0.1 is one"),
        (["attack.share=0.1"], "run: attack.share is given, but attack is not"),
        (["attack=lying"], "run: attack=lying needs a mixing rule that asks for losses, as those of aaggff-d do"),
        (["attack=noise", "central=true"], "run: attack is about clients, and central trains on the rows of all"),
        (["bound=none"], "run: bound must be a length above 0 or median, got 'none'"),
        (["bound=-1"], "run: bound must be above 0, got -1"),
        (["combine.trim=0.1"], "run: combine.trim needs combine=trimmed"),
        (["combine=trimmed", "combine.trim=0.6"], "run: combine.trim must be at least 0 and below 0.5, got 0.6"),
        (["combine=medain"], "unknown combine 'medain'; did you mean 'median'?"),
        (["combine=median", "method=term"], "run: combine=median has no place for weights, and Term makes some"),
        (["mixing=krum", "method=fedevg"], "Algorithm: Krum mixes models and cannot be used with"),
        (["method=fedevg", "combine=median"], "run: combine=median is for uploads that are models"),
        (["privacy=clients", "privacy.epsilon=8", "bound=median"], "privacy: bound=median lets one client change"),
        (["diverged=-1"], "run: diverged must be at least 0, got -1"),
    ],
)
def test_bad_input_is_one_line_before_any_work(pairs, message):
    with pytest.raises(FedchordError) as caught:
        config(*pairs)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_krum_with_too_few_clients_is_told_before_training(tmp_path):
    asked = config("mixing=krum", "mixing.hostile=0.4", f"out={tmp_path / 'a'}")
    with pytest.raises(FedchordError, match=r"Krum: hostile=0.4 of a cohort of 5 is f = 2, which needs 2 f \+ 3 = 7"):
        runs.execute(asked)
    assert not (tmp_path / "a").exists()
