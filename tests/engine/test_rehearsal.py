"""What does not fit is told before training, in one line: rules whose hooks, entries and words do not go together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from helpers.federations import make_federation

from fedchord import catalog, run
from fedchord.check import FedchordError
from fedchord.clients.plain import Plain
from fedchord.core.round import Plan
from fedchord.core.rules import (
    LINE,
    Algorithm,
    ClientRule,
    Deployed,
    Line,
    Mix,
    MixingRule,
    ServerRule,
    Upload,
    shared_model,
)
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.simulate import simulate
from fedchord.evaluation.fitted import Fitted
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step

FEDERATION = make_federation([13, 20, 7, 31])
SETTINGS: dict[str, Any] = {"rounds": 1, "cohort": 3, "training": Training(batch=4), "workers": 2}
GOES = {"simulate": simulate, "run": run}


@dataclass(frozen=True)
class Counting(ClientRule):
    """Plain training that counts its steps, over all processes."""

    steps: Any = field(default_factory=lambda: multiprocessing.get_context("fork").Value("i", 0))

    def step(self, trained, memory, visit, batch, key, optimiser):
        with self.steps.get_lock():
            self.steps.value += 1
        return ClientRule.step(self, trained, memory, visit, batch, key, optimiser)


@dataclass(frozen=True)
class Extra(Counting):
    """Sends more than it says."""

    way: str = "mix"

    def finish(self, trained, visit):
        upload, own = ClientRule.finish(self, trained, visit)
        more = {"extra": torch.zeros(2)}
        mix, mean = (upload.mix | more, {}) if self.way == "mix" else (upload.mix, more)
        return Upload(mix, upload.carry, mean), own


@dataclass(frozen=True)
class Misses(Counting):
    """Sends less than it says."""

    sends: ClassVar[Mapping[str, str]] = {"theta": "mix", "control": "mean"}


@dataclass(frozen=True)
class Otherwise(Counting):
    """Sends what it says in another manner."""

    def finish(self, trained, visit):
        upload, own = ClientRule.finish(self, trained, visit)
        return Upload(carry=upload.carry, mean=upload.mix), own


@dataclass(frozen=True)
class TakesControl(Step):
    """Takes what `Misses` says it sends."""

    takes: ClassVar[Mapping[str, str]] = {"theta": "mix", "control": "mean"}


@dataclass(frozen=True)
class Forgets(ServerRule):
    """Returns what it moved, and nothing else of the broadcast."""

    def step(self, broadcast, update, state, info):
        return {"theta": broadcast["theta"] + update.mix["theta"]}, state


@dataclass(frozen=True)
class Shrinks(ServerRule):
    """Returns another shape."""

    def step(self, broadcast, update, state, info):
        return dict(broadcast) | {"theta": broadcast["theta"][:-1]}, state


BAD = {
    "leaves out": (Counting, Forgets, "Forgets: step leaves buffers out of the broadcast; return broadcast | {...}"),
    "shrinks": (Counting, Shrinks, "Shrinks: step gives theta the shape (82,), it was (83,)"),
    "one more": (Extra, Step, "Extra: finish sends extra by mix, and `sends` does not name it"),
    "one more, by mean": (
        lambda: Extra(way="mean"),
        Step,
        "Extra: finish sends extra by mean, and `sends` does not name it",
    ),
    "one less": (Misses, TakesControl, "Misses: finish does not send control by mean, and `sends` names it"),
    "otherwise": (Otherwise, Step, "Otherwise: finish does not send theta by mix, and `sends` names it"),
}


@pytest.mark.parametrize("go", GOES)
@pytest.mark.parametrize("executor", ["serial", "processes", "vectorised", "auto"])
@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_told_before_any_step(case, executor, go):
    make, server, line = BAD[case]
    rule = make()
    algorithm = Algorithm(rule, BySize(), server())
    with pytest.raises(FedchordError) as error:
        list(GOES[go](algorithm, Task(lambda: TwoNN(6, 5, 3)), FEDERATION, executor=executor, **SETTINGS))
    assert str(error.value) == line
    assert rule.steps.value == 0


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_the_steps_of_a_rule_that_fits_are_counted(executor):
    rule = Counting()
    (result,) = simulate(
        Algorithm(rule, BySize(), Step()), Task(lambda: TwoNN(6, 5, 3)), FEDERATION, executor=executor, **SETTINGS
    )
    assert rule.steps.value == sum(-(-len(FEDERATION.train[i]) // 4) for i in result.cohort)


def test_a_rehearsal_leaves_no_trace():
    """State and the rounds that follow are as they were."""
    rule = Counting()
    algorithm, task = Algorithm(rule, BySize(), Step()), Task(lambda: TwoNN(6, 5, 3))
    results = list(simulate(algorithm, task, FEDERATION, executor="serial", **SETTINGS | {"rounds": 2}))
    work, first = results[0].work, results[0].state
    before = {name: tensor.clone() for name, tensor in first.broadcast.items()}
    work.rehearse(first, Plan(2, 3, 0))
    assert all(torch.equal(tensor, before[name]) for name, tensor in first.broadcast.items())
    again = list(simulate(algorithm, task, FEDERATION, executor="serial", state=first, **SETTINGS | {"rounds": 2}))
    assert torch.equal(again[-1].state.broadcast["theta"], results[-1].state.broadcast["theta"])


# -- mixing rules -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Few(MixingRule):
    """Gives too few weights."""

    coefficients: int = 3
    shares: int = 3

    def weigh(self, state, cohort, info):
        return Mix(torch.ones(self.coefficients) / 3, torch.ones(self.shares) / 3), state


@pytest.mark.parametrize("name", ["coefficients", "shares"])
def test_too_few_weights_are_counted(name):
    algorithm = Algorithm(Plain(), Few(**{name: 2}), Step())
    with pytest.raises(FedchordError) as error:
        next(simulate(algorithm, Task(lambda: TwoNN(6, 5, 3)), FEDERATION, executor="serial", **SETTINGS))
    assert str(error.value) == f"Few: weigh gives 2 {name} for a cohort of 3"


@pytest.mark.parametrize(("mixing", "rule"), [("q-fedavg", "QFedAvg"), ("fedmgda", "FedMgda")])
def test_what_is_not_sent_cannot_be_compared(mixing, rule):
    with pytest.raises(FedchordError) as error:
        catalog.build("local", mixing=mixing)
    said = f"Algorithm: {rule} compares what clients send and cannot be used with Local, which sends nothing"
    assert str(error.value) == said


@pytest.mark.parametrize("mixing", ["afl", "uniform", "term"])
def test_clients_that_send_nothing_may_be_weighed_by_their_losses(mixing):
    algorithm = catalog.build("local", mixing=mixing)
    settings = SETTINGS | {"cohort": 4}
    (result,) = simulate(algorithm, Task(lambda: TwoNN(6, 5, 3)), FEDERATION, executor="serial", **settings)
    assert float(result.shares.sum()) == pytest.approx(1) and result.bytes_up == (0 if mixing == "uniform" else 16)


# -- hooks and words ----------------------------------------------------------------------------------------------


class Finsh(ClientRule):
    def finsh(self, trained, visit):
        return Upload(), {}


class Weight(MixingRule):
    def wiegh(self, state, cohort, info):
        return Mix(torch.ones(1), torch.ones(1)), state


class Stepp(ServerRule):
    def stepp(self, broadcast, update, state, info):
        return broadcast, state


class Deploys(ClientRule):
    def deploy(self, task, shared, own):
        return shared_model(shared)


class Words(ClientRule):
    deploys = "its own model"

    def deploy(self, task, shared, own):
        return shared_model(shared)


class SendsSum(ClientRule):
    sends: ClassVar[Mapping[str, str]] = {"theta": "sum"}


class TakesSum(Step):
    takes: ClassVar[Mapping[str, str]] = {"theta": "sum"}


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        ({"client": Finsh}, "Finsh: finsh is no hook; did you mean finish?"),
        ({"mixing": Weight}, "Weight: wiegh is no hook; did you mean weigh?"),
        ({"server": Stepp}, "Stepp: stepp is no hook; did you mean step?"),
        (
            {"client": Deploys},
            "Deploys: has a deploy of its own, so deploys must say what it is: Deployed(words, kind)",
        ),
        ({"client": Words}, "Words: deploys must be a Deployed, got 'its own model'"),
        ({"client": SendsSum}, "SendsSum: sends['theta'] must be one of mix, mean, got 'sum'"),
        ({"server": TakesSum}, "TakesSum: takes['theta'] must be one of mix, mean, got 'sum'"),
        ({"server": object}, "Algorithm: object must be a ClientRule, a MixingRule or a ServerRule"),
        (
            {"client": Misses},
            "Algorithm: Step takes theta and cannot be used with Misses, which sends theta and control (plain mean)",
        ),
        (
            {"server": TakesControl},
            "Algorithm: TakesControl takes theta and control (plain mean) and cannot be used with Plain, "
            "which sends theta",
        ),
    ],
)
def test_rules_are_checked_when_they_are_put_together(rules, line):
    made = {"client": Plain, "mixing": BySize, "server": Step} | rules
    with pytest.raises(FedchordError) as error:
        Algorithm(**{part: make() for part, make in made.items()})
    assert str(error.value) == line


def test_names_that_are_no_near_misses_are_free():
    """Helpers, private ones too, and fields may be called anything else."""

    class Free(ClientRule):
        stretch: float = 1.0

        def mixture(self):
            return 1

        def _finish_later(self):
            return 2

    assert Algorithm(Free(), BySize(), Step()).outcome == "model"


def test_the_kind_of_what_is_deployed_is_one_of_four():
    with pytest.raises(FedchordError) as error:
        Deployed("a tree", "tree")
    assert str(error.value) == "Deployed: kind must be one of global, own, line, samples, got 'tree'"


class Untold(ClientRule):
    deploys = Deployed("half of the model")

    def deploy(self, task, shared, own):
        return Line(shared["theta"], 0 * shared["theta"], 0.5, shared["buffers"])


class Told(Untold):
    deploys = Deployed("half of the model", LINE)


class Bare(Untold):
    def deploy(self, task, shared, own):
        return {"buffers": shared["buffers"]}


def fitted(rule: ClientRule) -> Fitted:
    task = Task(lambda: TwoNN(6, 5, 3))
    return Fitted.of(next(simulate(Algorithm(rule, BySize(), Step()), task, FEDERATION, executor="serial", **SETTINGS)))


def test_a_line_that_was_not_told_and_no_model_at_all():
    with pytest.raises(FedchordError) as error:
        fitted(Untold()).deployed(0)
    assert str(error.value) == "Untold: deploy gives a Line, so deploys must be Deployed(words, 'line')"
    with pytest.raises(FedchordError) as error:
        fitted(Bare()).deployed(0)
    assert str(error.value) == "Bare: deploy gives no theta, only ['buffers']"
    found = fitted(Told())
    assert torch.equal(found.deployed(0)["theta"], found.state.broadcast["theta"] / 2) and found.line(1).at == 0.5
