"""Lying clients: the lie reaches the rule and nothing else, and the robust options bound what it gains."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, final

import pytest
import torch
from helpers.cohorts import cohort, info
from helpers.federations import make_federation

from fedchord.check import FedchordError
from fedchord.clients.plain import Plain
from fedchord.core.rules import Algorithm, Cohort, Mix, MixingRule
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.simulate import simulate
from fedchord.mixing.aaggff import AAggFFDevice, AAggFFSilo
from fedchord.mixing.liars import Liars
from fedchord.mixing.qfedavg import QFedAvg
from fedchord.mixing.static import Uniform
from fedchord.mixing.term import Term
from fedchord.models import TwoNN
from fedchord.servers.step import Step


@final
@dataclass(frozen=True)
class Spy(MixingRule):
    """Equal weights; writes down the cohorts it saw."""

    needs: ClassVar[frozenset[str]] = frozenset({"loss", "norm"})
    saw: list[Cohort] = field(default_factory=list)

    def weigh(self, state, cohort, info):
        self.saw.append(cohort)
        shares = torch.full((len(cohort.ids),), 1 / len(cohort.ids), dtype=torch.float64)
        return Mix(shares, shares, {"mine": 1.0}), state


def test_the_rule_is_told_the_lie_and_all_else_is_true():
    spy = Spy()
    true = cohort([1.0, 2.0, 3.0], ids=[4, 0, 7], sizes=[5, 6, 7])
    mix, _ = Liars(spy, clients=(7, 4, 2), factor=10).weigh({}, true, info(0, 9))
    (seen,) = spy.saw
    assert seen.losses.tolist() == [10.0, 2.0, 30.0]
    assert seen.ids is true.ids and seen.sizes is true.sizes and seen.norms is true.norms
    assert true.losses.tolist() == [1.0, 2.0, 3.0]
    assert mix.log == {"mine": 1.0, "liar_share": pytest.approx(2 / 3)}


def test_it_asks_for_what_the_rule_asks_for():
    liars = Liars(QFedAvg())
    assert liars.needs == {"loss", "norm"} and not liars.full
    liars = Liars(AAggFFSilo())
    assert liars.full and liars.instead == "aaggff-d"
    plain = MixingRule()  # what the class says is not touched
    assert plain.needs == frozenset() and not plain.full and plain.instead == ""
    assert vars(liars).keys() == {"rule", "clients", "factor"}, "an instance holds its fields and nothing else"


@pytest.mark.parametrize("rule", [AAggFFSilo(), AAggFFDevice(), QFedAvg(), Term()])
def test_a_factor_of_one_is_no_lie(rule):
    def last(mixing: MixingRule) -> torch.Tensor:
        federation, task = make_federation([8, 12, 10, 9]), Task(lambda: TwoNN(6, 5, 3))
        algorithm = Algorithm(Plain(), mixing, Step())
        training = Training(epochs=1, batch=4, lr=0.1)
        *_, result = simulate(algorithm, task, federation, rounds=3, seed=1, training=training, executor="serial")
        return result.state.broadcast["theta"]

    honest = last(rule)
    assert torch.equal(last(Liars(rule, factor=1.0)), honest)
    assert not torch.equal(last(Liars(rule, factor=30.0)), honest)


@pytest.mark.parametrize("make", [AAggFFSilo, AAggFFDevice])
def test_the_liar_gains_and_the_cap_bounds_it(make):
    """Ten clients alike, one of which reports tenfold: it gets more than 1 / 10, and at most cap / 10 with a cap."""

    def share(**options: object) -> float:
        rule = Liars(make(**options), clients=(3,), factor=10)
        state = rule.init(10)
        for t in range(50):
            mix, state = rule.weigh(state, cohort([1.0] * 10), info(t, 10))
        assert mix.log["liar_share"] == float(mix.shares[3])
        return float(mix.shares[3])

    assert share() > 0.15
    assert share(cap=1.2) == pytest.approx(0.12) and share(cap=1) == pytest.approx(0.1)


def test_the_median_keeps_the_responses_of_the_others():
    """With the mean, a huge lie makes all honest clients look alike; with the median it moves none of them."""

    def shares(factor: float, centre: str) -> torch.Tensor:
        rule = Liars(AAggFFSilo(centre=centre), clients=(0,), factor=factor)
        state = rule.init(5)
        for t in range(20):
            mix, state = rule.weigh(state, cohort([1.0, 0.2, 0.6, 1.4, 1.8]), info(t, 5))
        return mix.shares[1:] / mix.shares[1:].sum()

    honest, lied = (shares(factor, "median") for factor in (10.0, 1e6))
    assert float(honest.max() - honest.min()) > 0.05
    assert float((lied - honest).abs().max()) < 0.02
    blurred = shares(1e6, "mean")
    assert float(blurred.max() - blurred.min()) < 1e-3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Liars(Uniform()), "Liars: Uniform asks for no losses, so nobody can lie"),
        (lambda: Liars(Term(), factor=0), "Liars: factor must be above 0, got 0"),
        (lambda: Liars(Term(), clients=()), "Liars: clients must name at least one"),
        (lambda: Liars(Term(), clients=(-1,)), "Liars: clients must be a whole number of at least 0, got -1"),
        (lambda: Liars(Term(), clients=(4,)).init(4), "Liars: there are 4 clients, from 0; got client 4"),
    ],
)
def test_bad_input(make, said):
    with pytest.raises(FedchordError) as error:
        make()
    assert str(error.value) == said


def test_the_program_of_the_document_runs():
    text = (Path(__file__).parents[2] / "docs" / "fairness.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    told: dict[str, object] = {}
    exec(compile(code, "docs/fairness.md", "exec", dont_inherit=True), told)
    assert told["capped"] > (0.1, 0.9)
