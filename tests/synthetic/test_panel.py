"""Several judges on one set: the numbers by hand, what is kept, and when it is not used."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.data import Iid, federate, load
from fedchord.synthetic import panel as judges
from fedchord.synthetic.learn import Judge, learn
from fedchord.synthetic.panel import FILE, Panel, judge_folder, measured, overall, usual, verdicts
from fedchord.synthetic.quality import pick
from fedchord.synthetic.set import SET, SyntheticSet, save

PANEL = Panel(("logreg", "twonn"), seeds=2, rows="test")


@pytest.fixture(scope="module")
def digits():
    return federate(load("digits"), Iid(), 3, test=0.2, validation=0.1, seed=1)


@pytest.fixture
def made(digits) -> SyntheticSet:
    real = pick(digits, 3, 7)
    return SyntheticSet(real.x, real.y, 0.0, 1.0, 10)


def by_hand(made: SyntheticSet, federation, classifier: str, seed: int, part: str, fair: bool = False) -> float:
    """The mean over clients of the accuracy, or of that of each class, of a classifier trained by the recipe."""
    learnt = learn(Judge(classifier), {"x": made.x, "y": made.y}, 10, rng.key(seed, "judge"))
    hits = []
    for client in range(federation.num_clients):
        batch = federation.batch(federation.part(part)[client])
        outputs = learnt.task.outputs(learnt.model["theta"], learnt.model["buffers"], batch)
        right = (outputs.argmax(1) == batch["y"]).double()
        each = [right[batch["y"] == v].mean() for v in batch["y"].unique()]
        hits.append(float(torch.stack(each).mean() if fair else right.mean()))
    return sum(hits) / len(hits)


@pytest.mark.parametrize("part", ["test", "validation"])
def test_every_judge_is_the_recipe_with_its_own_seed(made, digits, part):
    found = verdicts(replace(PANEL, rows=part), made, digits, {})
    assert list(found) == ["logreg", "twonn"]
    for classifier, values in found.items():
        assert values == pytest.approx([by_hand(made, digits, classifier, seed, part) for seed in (0, 1)])
    assert any(first != second for first, second in found.values())
    fair = verdicts(replace(PANEL, rows=part, metric="balanced-accuracy"), made, digits, {})
    assert fair["logreg"][0] == pytest.approx(by_hand(made, digits, "logreg", 0, part, fair=True))
    means = [(a + b) / 2 for a, b in found.values()]
    assert overall(found) == pytest.approx((means[0] + means[1]) / 2)


def test_official_rows_are_those_of_the_data(made, digits):
    """Rows that stand for official ones: the accuracy is that over all of them, not a mean over clients."""
    batch = digits.batch(digits.test.rows[:50])
    held = replace(digits, holdout={"x": batch["x"], "y": batch["y"]})
    learnt = learn(Judge("twonn"), made.batch, 10, 3)
    outputs = learnt.task.outputs(learnt.model["theta"], learnt.model["buffers"], batch)
    answers, labels = outputs.argmax(1), batch["y"]
    recalls = [float((answers[labels == v] == v).double().mean()) for v in labels.unique()]
    expected = {"top1": float((answers == labels).double().mean()), "balanced-accuracy": sum(recalls) / len(recalls)}
    assert measured(learnt, held, "official") == pytest.approx(expected) and len(set(expected.values())) == 2
    with pytest.raises(FedchordError, match="digits has no official test rows; use --rows test"):
        measured(learnt, replace(digits, holdout=None), "official")


def test_what_was_found_is_kept_and_belongs_to_its_set(tmp_path: Path, made, digits, monkeypatch):
    save(made, tmp_path / SET)
    first = judge_folder(PANEL, tmp_path, digits)
    learned: list[str] = []

    def counted(judge, *arguments):
        learned.append(judge.classifier)
        return learn(judge, *arguments)

    monkeypatch.setattr(judges, "learn", counted)
    assert judge_folder(PANEL, tmp_path, digits) == first and not learned
    assert judge_folder(replace(PANEL, seeds=3), tmp_path, digits)["twonn"][:2] == first["twonn"]
    assert learned == ["logreg", "twonn"]  # the third draw of each
    save(replace(made, x=1 - made.x), tmp_path / SET)
    assert judges.kept_verdicts(tmp_path) == {}
    second = judge_folder(PANEL, tmp_path, digits)
    assert second != first and len(learned) == 6
    real = judge_folder(PANEL, tmp_path, digits, real=5)
    picked = pick(digits, 3, rng.key(5, "upper"))
    assert real == verdicts(PANEL, SyntheticSet(picked.x, picked.y, 0.0, 1.0, 10), digits, {})
    assert len(json.loads((tmp_path / FILE).read_text())) == 3  # two sets, and real rows
    before = len(learned)
    fair = replace(PANEL, metric="balanced-accuracy")
    here = named(second) | named(judge_folder(fair, tmp_path, digits), " balanced-accuracy")
    there = named(real) | named(judge_folder(fair, tmp_path, digits, real=5), " balanced-accuracy")
    assert len(learned) == before  # one training is measured by both
    assert judges.kept_verdicts(tmp_path) == here and judges.kept_verdicts(tmp_path / "nowhere") == {}
    assert judges.kept_verdicts(tmp_path, 5) == there != here and judges.kept_verdicts(tmp_path, 6) == {}


def test_what_is_undefined_is_not_kept(tmp_path: Path, made, digits):
    """Clients with one class each have no balanced accuracy; the file keeps the other metric and can be read."""
    y = digits.columns["y"]
    rows = [part[y[part] == client] for client, part in enumerate(digits.test)]
    alone = replace(digits, test=type(digits.test).of(rows))
    save(made, tmp_path / SET)
    one = Panel(("logreg",), seeds=1, rows="test", metric="balanced-accuracy")
    assert math.isnan(judge_folder(one, tmp_path, alone)["logreg"][0])
    assert list(judges.kept_verdicts(tmp_path)) == ["test logreg 0"]
    plain = replace(one, metric="top1")
    assert judge_folder(plain, tmp_path, alone) == verdicts(plain, made, alone, {})


def named(found: dict[str, list[float]], metric: str = "") -> dict[str, float]:
    """Verdicts by the names under which they are kept."""
    return {f"{PANEL.rows} {name} {n}{metric}": one for name, values in found.items() for n, one in enumerate(values)}


def test_a_set_judged_before_by_one_metric_is_learnt_again_for_another(made, digits):
    known = {f"test {name} {seed}": 0.5 for name in PANEL.classifiers for seed in (0, 1)}
    assert verdicts(PANEL, made, digits, known) == {"logreg": [0.5, 0.5], "twonn": [0.5, 0.5]}
    fair = replace(PANEL, metric="balanced-accuracy")
    assert verdicts(fair, made, digits, known) == verdicts(fair, made, digits, {})


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 3}'])
def test_a_damaged_file_counts_as_none(tmp_path: Path, made, digits, text):
    save(made, tmp_path / SET)
    (tmp_path / FILE).write_text(text)
    one = Panel(("logreg",), seeds=1, rows="test")
    assert judge_folder(one, tmp_path, digits) == verdicts(one, made, digits, {})
    assert len(json.loads((tmp_path / FILE).read_text())) == 1


def test_an_interruption_keeps_what_is_done(tmp_path: Path, made, digits, monkeypatch):
    save(made, tmp_path / SET)

    def stopped(judge, *arguments):
        if judge.classifier == "twonn":
            raise KeyboardInterrupt
        return learn(judge, *arguments)

    monkeypatch.setattr(judges, "learn", stopped)
    with pytest.raises(KeyboardInterrupt):
        judge_folder(PANEL, tmp_path, digits)
    (kept,) = json.loads((tmp_path / FILE).read_text()).values()
    assert list(kept) == [f"test logreg {seed}{by}" for seed in (0, 1) for by in ("", " balanced-accuracy")]


def test_the_usual_judges_follow_the_shape():
    assert usual((1, 28, 28)) == Panel().classifiers == ("smallconv", "twonn", "leafconv")
    assert usual((1, 8, 8)) == usual((13,)) == ("twonn", "logreg")


def test_mistakes_are_told():
    for wrong, words in (
        ({"classifiers": ()}, "at least one"),
        ({"classifiers": ("twonn", "twonn")}, "named once"),
        ({"classifiers": ("cgan",)}, "draws samples"),
        ({"seeds": 0}, "seeds"),
        ({"rows": "all"}, "rows"),
        ({"metric": "loss"}, "metric"),
    ):
        with pytest.raises(FedchordError, match=words):
            Panel(**wrong)
