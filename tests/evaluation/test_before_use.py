"""Training before use: who is asked, who trains and when, and who is left out of an evaluation on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
import torch
from helpers.federations import make_federation

import fedchord
from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.core.round import Plan, open_run
from fedchord.core.rules import GLOBAL, OWN, Algorithm, ClientRule, Deployed, Phase
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.executors import make_executor
from fedchord.engine.memory import ClientMemory
from fedchord.engine.processes import Processes
from fedchord.engine.simulate import simulate
from fedchord.engine.work import Work
from fedchord.evaluation.evaluate import Evaluation, evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import sweep
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step

FEDERATION = make_federation([13, 20, 7, 31, 10, 9, 12], test=9)
CLIENTS = range(7)
TRAINING = Training(lr=0.2, batch=4, epochs=2)
SETTINGS = {"rounds": 4, "cohort": 2, "seed": 1, "training": TRAINING, "executor": "serial"}
SPLIT = ["fedper", "lg-fedavg", "fedrep"]


def two() -> TwoNN:
    return TwoNN(6, 5, 3)


def trained(algorithm: Algorithm | str, **changes: object) -> Fitted:
    algorithm = catalog.build(algorithm) if isinstance(algorithm, str) else algorithm
    *_, last = simulate(algorithm, Task(two), FEDERATION, **SETTINGS | changes)
    return Fitted.of(last)


def opened(rule: ClientRule) -> Fitted:
    """A rule before its first round."""
    work = Work.of(Algorithm(rule, BySize(), Step()), Task(two), FEDERATION, TRAINING)
    return Fitted(work, open_run(work.algorithm, work.task, len(CLIENTS), Plan()), ClientMemory())


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """The clients that train before use, as they do; local rounds are not counted."""
    seen: list[int] = []
    train = fedchord.core.local.train

    def counted(rule, training, visit, *rest):
        seen.append(int(visit.client))
        return train(rule, training, visit, *rest)

    monkeypatch.setattr("fedchord.engine.work.train", counted)
    return seen


# -- clients that never took part ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPLIT)
def test_on_the_way_clients_that_would_first_have_to_train_are_left_out(name, calls):
    fitted = trained(name)
    never = [client for client in CLIENTS if not fitted.state.visits[client]]
    known = [client for client in CLIENTS if client not in never]
    assert never and known and calls == []
    assert [fitted.waits(client) for client in CLIENTS] == [client in never for client in CLIENTS]
    some = evaluate(fitted, everyone=False)
    assert calls == [] and some.clients == tuple(known)
    assert some.protocol["left_out"] == some.protocol["never_sampled"] == len(never)
    whole = evaluate(fitted)
    assert calls == never and whole.clients == tuple(CLIENTS) and whole.protocol["left_out"] == 0
    for metric, values in some.per_client.items():
        assert torch.equal(values, whole.per_client[metric][known]), metric
    mean = float(whole.per_client["loss"][known].mean())
    assert some.mean("loss") == pytest.approx(mean) != pytest.approx(whole.mean("loss"))


@pytest.mark.parametrize("name", SPLIT)
def test_a_run_trains_them_only_for_its_last_evaluation(name, calls):
    run = fedchord.run(catalog.build(name), Task(two), FEDERATION, eval_every=1, **SETTINGS)
    for done in run:
        never = int((done.state.visits.tensor() == 0).sum())
        last = done.round == SETTINGS["rounds"]
        assert len(calls) == (never if last else 0) and never
        assert done.evaluation.protocol["left_out"] == (0 if last else never)
        assert len(done.evaluation.clients) == (7 if last else 7 - never)
    assert len(calls) == never  # sweep and summary train nobody
    assert run.summary["protocol"]["left_out"] == 0


def test_a_rule_that_tunes_all_clients_leaves_nobody_out(calls):
    run = fedchord.run(catalog.build("fedavg-ft"), Task(two), FEDERATION, eval_every=1, **SETTINGS)
    for done in run:
        assert calls == [*CLIENTS] * done.round
        assert done.evaluation.clients == tuple(CLIENTS) and done.evaluation.protocol["left_out"] == 0
    evaluate(run.fitted, everyone=False)
    assert calls == [*CLIENTS] * 5 and not any(run.fitted.waits(client) for client in CLIENTS)


@pytest.mark.parametrize("name", ["fedavg", "local", "ditto", "apfl"])
def test_clients_that_deploy_without_training_are_never_left_out(name, calls):
    fitted = trained(name)
    some, whole = evaluate(fitted, everyone=False), evaluate(fitted)
    assert some.clients == whole.clients == tuple(CLIENTS) and same(some, whole) and calls == []


def test_before_the_first_round_there_is_nobody_to_measure():
    with pytest.raises(FedchordError) as error:
        evaluate(opened(catalog.build("fedper").client), everyone=False)
    assert str(error.value) == "evaluate: no client has taken part yet"


# -- what a rule is asked, and when --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked(ClientRule):
    """Tunes clients that took part (or nobody), and may not be asked for memory otherwise."""

    deploys: ClassVar[Deployed] = Deployed("the global model, tuned", OWN)
    tuned: bool = False
    asked: list[tuple[int, bool]] = field(default_factory=list)

    def init(self, task, shared, key):
        assert self.tuned, "memory is made for nothing"
        return {"start": shared["theta"] + 1}

    def tuning(self, visit):
        assert visit.own == {}
        self.asked.append((visit.client, visit.sampled))
        return (Phase(steps=0),) if self.tuned else ()

    def start(self, visit):
        return {"theta": visit.own["start"], "buffers": visit.shared["buffers"]}

    def deploy(self, task, shared, own):
        return own or {"theta": shared["theta"], "buffers": shared["buffers"]}


def test_tuning_is_asked_before_any_memory_is_made(calls):
    fitted = opened(Asked())
    found = evaluate(fitted)
    assert calls == [] and found.protocol["global_model"] == 7
    assert set(fitted.work.algorithm.client.asked) == {(client, False) for client in CLIENTS}
    assert fitted.line(0) is None and not fitted.tunes(0)
    tuned = opened(Asked(tuned=True))
    model = tuned.deployed(3)
    assert calls == [3]
    assert torch.equal(model["theta"], tuned.state.broadcast["theta"] + 1)  # it began where `init` says


def test_a_rule_is_told_who_took_part():
    fitted = opened(Asked())
    fitted = replace(fitted, state=replace(fitted.state, visits=fitted.state.visits.replaced([2, 5], 3)))
    rule = fitted.work.algorithm.client
    for client in CLIENTS:
        fitted.tunes(client)
    assert rule.asked == [(client, client in (2, 5)) for client in CLIENTS]


@dataclass(frozen=True)
class TwoStretches(ClientRule):
    """Tunes with a rate of its own, then with that of the last round."""

    deploys: ClassVar[Deployed] = Deployed("the global model, tuned twice", OWN)

    def tuning(self, visit):
        return Phase(epochs=1, lr=0.4), Phase(epochs=2)

    def deploy(self, task, shared, own):
        return own


def test_tuning_uses_the_rate_of_each_phase():
    """Against plain steps of a module."""
    training = replace(TRAINING, lr_decay=0.5)
    fitted = trained(Algorithm(TwoStretches(), BySize(), Step()), training=training)
    for client in (0, 3):
        module = two()
        torch.nn.utils.vector_to_parameters(fitted.state.broadcast["theta"].clone(), module.parameters())
        stream = fitted.work.stream(client, 4)
        for index, (epochs, rate) in enumerate(((1, 0.4), (2, 0.2 * 0.5**3))):
            for batch in stream.batches(index, Phase(epochs=epochs)):
                module.zero_grad()
                torch.nn.functional.cross_entropy(module(batch["x"]), batch["y"]).backward()
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter.sub_(rate * parameter.grad)
        expected = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
        assert torch.allclose(fitted.deployed(client)["theta"], expected, atol=2e-6)


# -- whether there is a line ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mute(ClientRule):
    """Must not be asked for its model."""

    deploys: ClassVar[Deployed] = Deployed("nothing that may be looked at", OWN)

    def tuning(self, visit):
        raise AssertionError("asked for training")

    def deploy(self, task, shared, own):
        raise AssertionError("asked for its model")


@pytest.mark.parametrize("kind", [OWN, GLOBAL])
def test_whether_there_is_a_line_is_known_without_a_model(kind, monkeypatch, calls):
    fitted = opened(Mute())
    if kind == GLOBAL:
        monkeypatch.setattr(Mute, "deploys", Deployed("the global model", GLOBAL))
    assert sweep(fitted) is None and fitted.line(0) is None and calls == []


@pytest.mark.parametrize("name", [*SPLIT, "fedavg", "fedavg-ft", "local"])
def test_a_sweep_of_one_model_methods_deploys_and_trains_nobody(name, calls, monkeypatch):
    fitted = trained(name)
    monkeypatch.setattr(type(fitted.work.algorithm.client), "deploy", Mute.deploy)
    assert sweep(fitted) is None and calls == []


# -- by an executor ------------------------------------------------------------------------------------------------


def same(a: Evaluation, b: Evaluation) -> bool:
    """To the bit; NaN where both are."""
    values = all(torch.equal(a.per_client[n].nan_to_num(-1), v.nan_to_num(-1)) for n, v in b.per_client.items())
    return values and a.protocol == b.protocol and a.clients == b.clients and repr(a.metrics) == repr(b.metrics)


@pytest.mark.parametrize("executor", ["processes", "serial", "vectorised"])
@pytest.mark.parametrize("name", ["fedavg", "apfl", "fedper", "fedavg-ft"])
def test_every_executor_finds_the_same_bits(name, executor, monkeypatch):
    monkeypatch.setattr("fedchord.evaluation.evaluate.ROWS", 20)  # several groups where one model is for all
    fitted = trained(name)
    runner = make_executor(executor, fitted.work, fitted.state.broadcast, 2, 2)
    try:
        assert executor != "processes" or (isinstance(runner, Processes) and len(runner._workers) == 1)
        for everyone in (True, False):
            alone = evaluate(fitted, everyone=everyone)
            found = evaluate(fitted, executor=runner, everyone=everyone)
            assert same(alone, found)
        assert not same(evaluate(trained(name, seed=2)), evaluate(fitted))
        alone, found = sweep(fitted), sweep(fitted, executor=runner)
        assert (name == "apfl") == (found is not None)
        if found is not None:
            assert torch.equal(alone.test, found.test) and torch.equal(alone.two_ended, found.two_ended)
    finally:
        runner.close()


def test_an_executor_makes_the_same_evaluation_before_and_after_its_rounds():
    """The workers of one executor train, and then measure; a client keeps what it had."""
    algorithm, task = catalog.build("apfl"), Task(two)
    work = Work.of(algorithm, task, FEDERATION, TRAINING, 1)
    runner = make_executor("processes", work, open_run(algorithm, task, 7, Plan(4, 2, 1)).broadcast, 2, 2)
    try:
        for result in simulate(algorithm, task, FEDERATION, **SETTINGS | {"executor": runner}):
            assert same(evaluate(Fitted.of(result), executor=runner), evaluate(Fitted.of(result)))
    finally:
        runner.close()
    alone = trained("apfl")
    assert torch.equal(result.state.broadcast["theta"], alone.state.broadcast["theta"])
    assert same(evaluate(Fitted.of(result)), evaluate(alone))
