"""A run in bad weather: the keys, what is written down, and going on to the same bits."""

from __future__ import annotations

import json

import pytest

from fedchord.check import FedchordError
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts
from fedchord.experiments.run import execute, resume
from fedchord.experiments.session import Run

BASE = ["method=scaffold", "clients=6", "cohort=3", "rounds=6", "model=logreg", "executor=serial", "seed=2"]
BAD = [*BASE, "weather.lost=0.4", "weather.away=0.2", "weather.minimum=0.3"]


def test_what_is_missing_is_written_down_and_counted(tmp_path):
    config = RunConfig.from_pairs([*BAD, f"out={tmp_path / 'a'}"])
    summary = execute(config)
    lines = [json.loads(line) for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()]
    lost = sum(len(line.get("missing", {})) for line in lines)
    assert lost > 0 and summary["missing"] == {"lost": lost}
    assert any(len(line["cohort"]) < 3 for line in lines)
    assert "missing" not in execute(RunConfig.from_pairs(BASE))
    assert RunConfig.from_pairs(BAD).fingerprint() != RunConfig.from_pairs(BASE).fingerprint()
    assert RunConfig.from_pairs([*BASE, "weather.lost=0"]).fingerprint() == RunConfig.from_pairs(BASE).fingerprint()


def test_a_run_in_bad_weather_goes_on_to_the_same_bits(tmp_path):
    whole = execute(RunConfig.from_pairs(BAD))
    config = RunConfig.from_pairs([*BAD, f"out={tmp_path / 'b'}", "checkpoint_every=1"])
    rounds = iter(Run(Parts.build(config)))
    for _ in range(3):
        next(rounds)
    rounds.close()
    assert resume(tmp_path / "b")["metrics"] == whole["metrics"]


def test_a_round_in_which_nobody_is_there_ends_in_one_line():
    pairs = ["method=uniform", "clients=3", "cohort=all", "rounds=9", "model=logreg", "executor=serial"]
    with pytest.raises(FedchordError, match=r"^round 1: only 0 of 3 clients answered, 1 are needed"):
        execute(RunConfig.from_pairs([*pairs, "seed=1", "weather.away=0.9"]))


def test_a_rule_that_needs_everyone_ends_in_one_line(tmp_path):
    pairs = ["method=aaggff-s", "clients=3", "cohort=all", "rounds=4", "model=logreg", "weather.away=1:3"]
    config = RunConfig.from_pairs([*pairs, f"out={tmp_path / 'c'}", "checkpoint_every=1"])
    with pytest.raises(FedchordError) as caught:
        execute(config)
    told = "round 3: only 2 of 3 clients answered, 3 are needed; the last checkpoint is of round 2; go on with: "
    assert str(caught.value) == f"{told}fedchord resume {tmp_path / 'c'}"
    assert (tmp_path / "c" / "checkpoints" / "round-000002").is_dir()


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("weather.lost=2", "run: weather.lost must be between 0 and 1, got 2"),
        ("weather.away=often", "run: weather.away must be a share such as 0.1, or clients and rounds"),
        ("weather.attempts=0", "run: attempts must be a whole number of at least 1, got 0"),
        ("weather.minimum=2", "run: minimum must be between 0 and 1, got 2"),
        ("weather.lots=1", "did you mean 'weather.lost'"),
    ],
)
def test_mistakes_are_one_line(pair, words):
    with pytest.raises(FedchordError, match=words) as error:
        RunConfig.from_pairs([pair])
    assert "\n" not in str(error.value)
