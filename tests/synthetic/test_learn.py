"""The fixed classifier against a plain torch loop, its bounds, and its use in an evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, final

import pytest
import torch
import torch.nn.functional as F

from fedchord import federate, load, rng, run
from fedchord.check import FedchordError
from fedchord.core.objective import Batch
from fedchord.core.per_client import PerClient
from fedchord.core.rules import SAMPLES, Algorithm, Deployed, Phase, SamplesRule, ServerState
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.data import Iid, from_arrays
from fedchord.data.augment import Pictures
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.evaluation.evaluate import evaluate, everyone
from fedchord.evaluation.fitted import Fitted
from fedchord.mixing.static import BySize
from fedchord.models import SmallConvNet, TwoNN
from fedchord.servers.step import Step
from fedchord.synthetic.judge import judge
from fedchord.synthetic.learn import Judge, Learnt, _learn, judged, learn, move, moved
from fedchord.synthetic.quality import pick, reference
from fedchord.synthetic.set import SyntheticSet
from fedchord.synthetic.traffic import traffic
from fedchord.synthetic.utility import official, utilities, utility
from fedchord.tensors import Tensors

DIGITS = federate(load("digits"), Iid(), 4, seed=1)


def real(spc: int = 10, key: int = 3) -> Batch:
    found = pick(DIGITS, spc, key)
    return {"x": found.x, "y": found.y}


# -- the recipe ----------------------------------------------------------------------------------------------------


def test_a_network_that_died_learns_again_at_half_the_rate():
    """A dead network says the same of every row: its loss is the entropy of the labels."""
    rows, key = real(), 11
    slower = [learned(Judge("twonn", lr=12.8 / 2**halving), rows, 10, key) for halving in range(5)]
    assert slower[0].loss == pytest.approx(math.log(10), abs=0.02) and slower[4].loss < math.log(10) / 2
    first = next(one for one in slower if one.loss < math.log(10) / 2)
    found = learn(Judge("twonn", lr=12.8), rows, 10, key)
    assert found.loss == first.loss and torch.equal(found.model["theta"], first.model["theta"])
    usual = learn(Judge("twonn"), rows, 10, key)  # one that learnt is left alone
    assert torch.equal(usual.model["theta"], learned(Judge("twonn"), rows, 10, key).model["theta"])


def test_what_cannot_be_learnt_ends_and_the_least_loss_counts():
    alike = {"x": torch.zeros(20, 64), "y": torch.arange(20) % 2}
    found = learn(Judge("twonn", steps=5), alike, 10, 1)
    tried = [learned(Judge("twonn", steps=5, lr=0.1 / 2**halving), alike, 10, 1).loss for halving in range(5)]
    assert found.loss == min(tried) and found.loss > math.log(2) / 2
    linear = learn(Judge("logreg", steps=5), alike, 10, 1)  # cannot die
    assert linear.loss == learned(Judge("logreg", steps=5), alike, 10, 1).loss


def learned(recipe: Judge, rows: Batch, classes: int, key: int) -> Learnt:
    """One training at the rate of the recipe."""
    return _learn(recipe, rows, classes, key, recipe.pace(tuple(rows["x"].shape[1:]))[1])


def test_the_recipe_is_a_plain_loop_of_torch():
    recipe, rows, key = Judge("twonn", steps=40, batch=16, lr=0.1, weight_decay=0.01, clip=0.5), real(), 11
    found = learn(recipe, rows, 10, key)
    model = TwoNN(64, classes=10)
    first = found.task.fresh(rng.key(key, "model"))
    model.load_state_dict(found.task.state_dict(first["theta"], first["buffers"]))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    whole = from_arrays(rows["x"], rows["y"])
    stream = ClientStream(federate(whole, Iid(), 1, test=0.0), 0, 16, rng.key(key, "batches"))
    stream._rows = torch.arange(100)
    norms: list[float] = []
    for t, batch in enumerate(stream.batches(0, Phase(steps=40))):
        optimiser.zero_grad()
        F.cross_entropy(model(batch["x"]), batch["y"]).backward()
        for parameter in model.parameters():
            parameter.grad = (parameter.grad + 0.01 * parameter.data) * (0.5 + 0.5 * math.cos(math.pi * t / 40))
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimiser.step()
    expected = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    assert torch.allclose(found.model["theta"], expected, atol=1e-5) and max(norms) > 0.5 > min(norms)
    with torch.no_grad():
        assert found.loss == pytest.approx(float(F.cross_entropy(model(rows["x"]), rows["y"])), abs=1e-5)


def test_pictures_are_moved_by_whole_pixels_and_filled_with_their_smallest_value():
    x = torch.arange(1.0, 13).reshape(1, 1, 3, 4)
    (found,) = move(x, torch.tensor([2 + 1]), torch.tensor([2 - 2]), 2)  # one down, two to the left
    assert found[0].tolist() == [[1, 1, 1, 1], [3, 4, 1, 1], [7, 8, 1, 1]]
    assert torch.equal(move(x, torch.tensor([2]), torch.tensor([2]), 2), x)


def test_every_shift_occurs_and_rows_move_on_their_own():
    x = torch.zeros(3000, 1, 5, 5)
    x[:, 0, 2, 2] = 1
    found = moved({"x": x, "y": torch.zeros(3000)}, 1, 7)["x"]
    places = found.flatten(1).argmax(1)
    counts = torch.bincount(places, minlength=25).reshape(5, 5)
    assert counts.sum() == 3000 and torch.equal(counts > 0, F.pad(torch.ones(3, 3), (1, 1, 1, 1)) > 0)
    assert int(counts[1:4, 1:4].min()) > 250 and float(found.sum()) == 3000


@pytest.mark.parametrize(
    ("shape", "name", "pixels"),
    [((1, 28, 28), "smallconv", 2), ((3, 64, 64), "smallconv", 5), ((1, 8, 8), "twonn", 0), ((13,), "logreg", 0)],
)
def test_the_classifier_follows_the_shape(shape, name, pixels):
    assert Judge().name(shape) == name and Judge().pixels(shape) == pixels
    assert Judge("logreg").name(shape) == "logreg" and name in Judge().told(shape)


def test_two_classes_are_one_logit():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 4, generator=generator)
    found = learn(Judge(steps=200), {"x": x, "y": (x[:, 0] > 0).long()}, 2, 1)
    assert found.task.objective.name == "binary cross-entropy" and found.loss < 0.2


def test_a_convolutional_classifier_learns_pictures():
    """A bright spot in one of three places, moved by a pixel: found again in pictures not seen."""

    def spots(count: int, seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        y = torch.arange(3).repeat_interleave(count)
        x = 0.2 * torch.rand(3 * count, 1, 16, 16, generator=generator)
        for row, label in enumerate(y.tolist()):
            x[row, 0, 2 + 5 * label : 5 + 5 * label, 6:9] = 1
        return {"x": x, "y": y}

    found = learn(Judge(steps=60), spots(10, 1), 3, 2)
    assert isinstance(next(iter(found.task.named_modules()))[1], SmallConvNet)
    test = spots(5, 9)
    outputs = found.task.outputs(found.model["theta"], found.model["buffers"], test)
    assert float((outputs.argmax(1) == test["y"]).float().mean()) > 0.9


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"lr": 0},
        {"shift": 0.5},
        {"batch": 0},
        {"classifier": "towcnn"},
        {"classifier": "cvae"},
        {"momentum": 1},
    ],
)
def test_wrong_recipes_are_refused(change):
    with pytest.raises(FedchordError):
        Judge(**change)


# -- bounds --------------------------------------------------------------------------------------------------------


def test_a_set_lies_between_its_bounds():
    rows = real()
    blurred = SyntheticSet(
        (rows["x"] + 0.3 * torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(1))).clamp(0, 1),
        rows["y"],
        0.0,
        1.0,
        10,
    )
    found = utilities(Judge(), blurred, DIGITS, 5)
    assert found.upper.clients["top1"] > 0.8 > 0.35 > found.lower.clients["top1"]
    assert found.upper.clients["top1"] + 0.03 > found.synthetic.clients["top1"] > found.lower.clients["top1"]
    learnt = judged(Judge(), blurred, 5)
    assert found.synthetic.clients["top1"] == everyone(learnt.task, DIGITS, learnt.model)[0]["top1"]["mean"]
    assert found.synthetic.official is None and found.synthetic.loss < 0.1


def test_official_rows_are_measured_as_one_set():
    rows = pick(DIGITS, 8, 4)
    held = replace(DIGITS, holdout={"x": rows.x, "y": rows.y})
    learnt = learn(Judge(steps=50), real(), 10, 1)
    outputs = learnt.task.outputs(learnt.model["theta"], learnt.model["buffers"], {"x": rows.x})
    found = official(learnt, held)
    assert found["top1"] == pytest.approx(float((outputs.argmax(1) == rows.y).double().mean()), abs=1e-12)
    assert found["loss"] == pytest.approx(float(F.cross_entropy(outputs.double(), rows.y)), abs=1e-9)
    assert utility(learnt, held).official == found


def test_official_pictures_are_shown_as_clients_pictures_are():
    """A crop and a scale: an official part equal to the client's test rows gives the same number and the same rows."""
    shown = Pictures(6, (0.4,), (0.5,))
    whole = replace(federate(load("digits"), Iid(), 1, seed=1), pictures=shown)
    held = replace(whole, holdout={name: column[whole.test[0]] for name, column in whole.columns.items()})
    learnt = learn(Judge(steps=30), whole.batch(whole.train[0][:200]), 10, 1)
    found = utility(learnt, held)
    assert found.official["top1"] == found.clients["top1"] > 0.2
    assert torch.equal(reference(held).x, reference(whole).x) and reference(held).x.shape[1:] == (1, 6, 6)


# -- in a run ------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Giver(SamplesRule):
    """A rule that ends with real digits moved by `shift` in value: nothing is learnt."""

    deploys: ClassVar[Deployed] = Deployed("a classifier trained on what was given", SAMPLES)
    shift: float = 0.0
    rows: int = 100

    def synthesise(self, task: Task, shared: Tensors, key: int) -> Batch:
        found = real(key=key)
        return {"x": found["x"][: self.rows] + self.shift, "y": found["y"][: self.rows]}


def giver(**fields: object) -> Algorithm:
    return Algorithm(Giver(**fields), BySize(), Step(), "giver")


TASK = Task(lambda: TwoNN(64, 8, 10))


def test_an_evaluation_measures_the_classifier_of_the_samples():
    *_, last = run(giver(), TASK, DIGITS, rounds=2, seed=3, executor="serial", judge=Judge(steps=80))
    found, samples = last.evaluation, last.samples
    assert samples is not None and samples.spc == 10
    learnt = judged(Judge(steps=80), samples, 3)
    assert found.mean("top1") == everyone(learnt.task, DIGITS, learnt.model)[0]["top1"]["mean"] > 0.7
    assert found.protocol["samples"] == 100 and found.protocol["deploys"]["words"] == Giver.deploys.words
    key = rng.key(3, "synthesise", 2)
    assert torch.equal(samples.x, real(key=key)["x"])
    again, drawn = judge(last.fitted, Judge(steps=80))
    assert torch.equal(drawn.x, samples.x) and again.metrics == found.metrics and again.clients == found.clients
    with pytest.raises(FedchordError, match="evaluate: Giver ends with samples, not with a model"):
        evaluate(last.fitted)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shift": 0.5}, r"giver: x must lie in \[0, 1\], got values from"),
        ({"rows": 95}, "giver: the number of samples must be a multiple of the 10 classes, got 95"),
        ({"rows": 90}, "giver: every class must have 9 rows"),
    ],
)
def test_samples_that_do_not_fit_the_data_are_refused(fields, message):
    state = ServerState(1, TASK.init(1), {}, {}, PerClient.filled(4, 1, torch.int32))
    with pytest.raises(FedchordError, match=message):
        judge(Fitted(Work.of(giver(**fields), TASK, DIGITS), state, ClientMemory()))


# -- bytes ---------------------------------------------------------------------------------------------------------


def test_the_account_of_the_thesis():
    """MNIST at 32 pixels: M D = 102,400 numbers down, as many and 100 up; ResNet-10 has about 49 times as many."""
    found = traffic(10 * 4 * 102_500, 10 * 4 * 102_400, 10, ("smallconv", 30_000), (1, 32, 32), 10)
    assert found.up + found.down == 4 * (2 * 102_400 + 100)
    assert found.parameters["resnet10"] == pytest.approx(4.9e6, rel=0.01)
    assert found.ratios["resnet10"] == pytest.approx(2 * found.parameters["resnet10"] / 204_900)
    told = " ".join(found.told())
    assert "Exchanging smallconv (30,000 parameters) would take 0.24 MB: the model is smaller, 0.29 times" in told
    assert "resnet10" in told and "39.2 MB: 47.8 times as much" in told


def test_tables_have_no_resnet():
    assert list(traffic(10, 10, 1, ("logreg", 14), (13,), 2).parameters) == ["logreg"]
