"""The command `synth judge` on two short runs on digits."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from helpers.invoked import invoke

from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig

SETTINGS = ["clients=3", "split=iid", "cohort=all", "rounds=2", "judge.steps=5", "judge=logreg", "executor=serial"]
WITNESS = ["method=fedevg-witness", "model=twonn", "method.spc=2", "eval_every=0"]
JUDGES = ["--classifier", "logreg", "--classifier", "twonn", "--seeds", "2", "--rows", "test"]


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """Witness energies with two steps, two seeds each."""
    folder = tmp_path_factory.mktemp("judged")
    for seed in (1, 2):
        for beta in (0.1, 0.3):
            more = [f"method.beta={beta}", f"seed={seed}", f"out={folder / f'{beta}-{seed}'}"]
            runs.execute(RunConfig.from_pairs([*SETTINGS, *WITNESS, *more]))
    return folder


def test_sets_are_judged_compared_and_not_judged_twice(done):
    told = invoke("synth", "judge", str(done), *JUDGES, "--real", "--against", "fedevg-witness, beta=0.1")
    assert told.exit_code == 0, told.output
    for words in ("fedevg-witness, beta=0.1", "fedevg-witness, beta=0.3", "as many real rows", "paired over seeds"):
        assert words in told.output
    kept = {file: file.read_text() for file in done.glob("*/judges.json")}
    marks = [mark for text in kept.values() for mark in json.loads(text)]
    assert len(kept) == 4 and len(marks) == 6  # a set each, and real rows once for each of two seeds
    assert sorted(mark for mark in marks if "real" in mark) == ["2 real 1", "2 real 2"]
    again = invoke("synth", "judge", str(done), *JUDGES, "--format", "csv")
    assert again.exit_code == 0 and {file: file.read_text() for file in kept} == kept
    first = next(iter(json.loads(kept[done / "0.1-1" / "judges.json"]).values()))
    names = [f"test {name} {seed}" for name in ("logreg", "twonn") for seed in (0, 1)]
    assert set(first) == {*names, *(f"{name} balanced-accuracy" for name in names)}


def test_every_class_can_count_alike(done):
    """The table by hand from what is kept."""
    plain, fair = (
        invoke("synth", "judge", str(done / "0.1-1"), *JUDGES, "--metric", metric, "--format", "csv")
        for metric in ("top1", "balanced-accuracy")
    )
    assert plain.exit_code == fair.exit_code == 0
    assert "top-1 in percent" in plain.output and "balanced accuracy in percent" in fair.output
    (line,) = csv.DictReader(fair.output.splitlines()[:2])
    kept = next(iter(json.loads((done / "0.1-1" / "judges.json").read_text()).values()))
    for name in ("logreg", "twonn"):
        draws = [kept[f"test {name} {seed} balanced-accuracy"] for seed in (0, 1)]
        assert float(line[name].split()[0]) == pytest.approx(100 * sum(draws) / 2, abs=0.006)


def test_as_many_real_rows_can_be_the_reference(done):
    """The difference is that of the two numbers of the table, since it is linear."""
    told = invoke("synth", "judge", str(done), *JUDGES, "--against", "real", "--format", "csv")
    assert told.exit_code == 0 and "all less that of as many real rows" in told.output
    lines = list(csv.DictReader(told.output.splitlines()[:4]))  # a head and three rows; notes follow
    accuracy = {line["set"]: float(line["all"].split()[0]) for line in lines}
    assert len(accuracy) == 3
    for line in lines:
        if line["set"] != "as many real rows":
            apart = accuracy[line["set"]] - accuracy["as many real rows"]
            assert float(line["difference"]) == pytest.approx(apart, abs=0.011)
            assert float(line["low"]) < float(line["difference"]) < float(line["high"])


def test_mistakes_are_told_in_one_line(done):
    for words, expected in (
        (["--rows", "official"], "digits has no official test rows; use --rows test"),
        (["--rows", "some"], "rows must be"),
        (["--seeds", "0", "--rows", "test"], "seeds must be"),
        (["--metric", "loss", "--rows", "test"], "metric must be"),
        ([*JUDGES, "--against", "fedcvae"], "fedcvae"),
        ([*JUDGES, "--format", "pdf"], "format"),
    ):
        told = invoke("synth", "judge", str(done), *([] if "--classifier" in words else JUDGES[:2]), *words)
        assert told.exception is not None and expected in str(told.exception), words
        assert "\n" not in str(told.exception)
    told = invoke("synth", "judge", str(done / "0.1-1"), *JUDGES, "--against", str(done / "0.3-1"))
    assert "was not judged; name it among the runs" in str(told.exception)
