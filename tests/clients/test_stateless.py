"""SuPerFed without memory against plain torch: what is sent, what is kept (nothing), what is rebuilt before use."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from helpers import oracle
from helpers import superfed as superfed_oracle
from helpers.oracle import CLIENTS, COHORTS, DENSE, FEDERATION, NEVER, SEED, SETTINGS, TRAINING, Setting, assert_same
from torch import nn
from torch.func import functional_call

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.clients.stateless import StatelessSuPerFed
from fedchord.clients.superfed import SuPerFed
from fedchord.core.rules import RoundInfo, Visit
from fedchord.engine.work import Work
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import LAMBDAS, sweep

NAME = "superfed-stateless"
ROUNDS = 2
STRONG = {"mu": 0.3, "nu": 1.5, "start_round": 0}


def start_of(setting: Setting, g: nn.Module, i: int, rebuild: str) -> nn.Module:
    """Where a client's private model begins, in every round and before use."""
    return copy.deepcopy(g) if rebuild == "global" else setting.private(i)


def rebuilt(setting: Setting, g: nn.Module, own: nn.Module, i: int, layerwise: bool, nu: float, epochs: int):
    """l after its epochs with g fixed: loss((1 - lam) g + lam l) + nu cos^2(g, l), by autograd and torch.optim."""
    l, home = copy.deepcopy(own), copy.deepcopy(g).train()  # noqa: E741
    fixed = {name: p.detach().clone() for name, p in g.named_parameters()}
    optimiser = superfed_oracle.optimiser_of(TRAINING, list(l.parameters()), oracle.rate(ROUNDS - 1))
    key = rng.fold(rng.key(SEED, "tune", i, ROUNDS), 0)
    for step, batch in enumerate(oracle.batches(setting, i, ROUNDS, epochs=epochs)):
        optimiser.zero_grad()
        lam = superfed_oracle.lambdas(fixed, rng.fold(key, step), layerwise)
        mixed = {name: (1 - lam[name]) * fixed[name] + lam[name] * p for name, p in l.named_parameters()}
        loss = F.cross_entropy(functional_call(home, mixed, (batch["x"],)), batch["y"])
        (loss + nu * superfed_oracle.cos(list(fixed.values()), list(l.parameters())) ** 2).backward()
        optimiser.step()
    return l


CASES = {
    "global": ("dense", {"rebuild": "global"}),
    "global, layers, 2 epochs": ("autograd", {"rebuild": "global", "layerwise": True, "tune_epochs": 2}),
    "global, batchnorm": ("batchnorm", {"rebuild": "global", "blend": 0.3}),
    "seed": ("dense", {"rebuild": "seed"}),
    "seed, layers": ("dense", {"rebuild": "seed", "layerwise": True, "blend": 0.8}),
    "seed, batchnorm, 2 epochs": ("batchnorm", {"rebuild": "seed", "tune_epochs": 2}),
    "warm-up": ("dense", {"rebuild": "seed", "start_round": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_two_rounds_against_plain_torch(case):
    kind, parameters = CASES[case]
    setting, parameters = SETTINGS[kind], STRONG | parameters
    algorithm = oracle.build(NAME, **parameters)
    layerwise, rebuild, begin = parameters.get("layerwise", False), parameters["rebuild"], parameters["start_round"]
    g = setting.first()
    for t, result in enumerate(oracle.running(algorithm, setting, rounds=ROUNDS)):
        assert result.cohort == COHORTS[t]
        trained = []
        for i in result.cohort:
            if t < begin:
                trained.append(superfed_oracle.warm(setting, g, i, t, 0.3, TRAINING))
                continue
            own = start_of(setting, g, i, rebuild)
            trained.append(superfed_oracle.train(setting, g, own, i, t, layerwise, 0.3, 1.5, TRAINING)[0])
        g = oracle.average(trained, oracle.by_size(result.cohort))
        assert oracle.same(result.state.broadcast, g, 1e-5), t
        assert result.memory.clients() == []
    models = {}
    for i in CLIENTS:  # also those that were never sampled
        own = start_of(setting, g, i, rebuild)
        own = rebuilt(setting, g, own, i, layerwise, 1.5, parameters.get("tune_epochs", 1))
        models[i] = superfed_oracle.blended(g, own, parameters.get("blend", 0.5), i)
    oracle.check_deployed(result, models, 2e-5)
    assert result.evaluation.protocol["never_sampled"] == sum(i not in COHORTS[0] + COHORTS[1] for i in CLIENTS)


@pytest.mark.parametrize("rebuild", ["global", "seed"])
@pytest.mark.parametrize("kind", SETTINGS)
def test_nothing_is_kept_and_only_f_travels(kind, rebuild):
    setting = SETTINGS[kind]
    plain = oracle.last("fedavg", setting)
    for result in oracle.running(oracle.build(NAME, rebuild=rebuild), setting):
        assert len(result.memory) == 0 and all(result.memory.get(i) is None for i in CLIENTS)
    assert (result.bytes_up, result.bytes_down) == (plain.bytes_up, plain.bytes_down)


def test_a_rebuilt_start_is_the_same_in_every_round_and_differs_between_clients():
    """The random start of "seed" is the start of SuPerFed's private model; one round of both is the same."""
    algorithm, task = oracle.build(NAME, rebuild="seed", **STRONG), DENSE.task()
    work = Work(algorithm, task, FEDERATION, TRAINING, SEED)
    shared = task.init(1)
    starts = [work.own(i, None, shared)["own"] for i in CLIENTS]
    assert all(torch.equal(start, work.own(i, {}, shared)["own"]) for i, start in enumerate(starts))
    assert all(torch.equal(start, oracle.vector(DENSE.private(i))) for i, start in enumerate(starts))
    assert all(not torch.allclose(a, b) for i, a in enumerate(starts) for b in starts[:i])
    first = [
        next(oracle.running(a)).state.broadcast["theta"] for a in (algorithm, oracle.build("superfed-mm", **STRONG))
    ]
    assert torch.equal(*first)


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_a_warm_up_to_the_end_sends_what_fedavg_or_fedprox_sends(mu):
    rival = oracle.build("fedprox", mu=mu) if mu else oracle.build("fedavg")
    plain, result = oracle.last(rival), oracle.last(oracle.build(NAME, warmup=1.0, mu=mu, nu=2.0, tune_epochs=0))
    assert torch.equal(result.state.broadcast["theta"], plain.state.broadcast["theta"])
    for metric, values in plain.evaluation.per_client.items():  # no epochs of tuning deploy the global model
        assert torch.equal(result.evaluation.per_client[metric], values)


def test_the_last_end_without_a_cosine_is_fine_tuning_where_lam_is_nearly_one(monkeypatch):
    """J(g, l) at lam -> 1 is the plain loss of l: with blend = 1 the client deploys fine-tuned FedAvg."""
    nearly = 1 - 2.0**-24
    monkeypatch.setattr(SuPerFed, "_lambda", lambda self, task, key: torch.full((1,), nearly))
    settings = {"mu": 0.0, "nu": 0.0, "warmup": 1.0, "blend": 1.0}
    *_, result = oracle.running(oracle.build(NAME, **settings))
    *_, tuned = oracle.running("fedavg-ft")
    assert torch.allclose(result.evaluation.per_client["loss"], tuned.evaluation.per_client["loss"], atol=1e-5)


@pytest.mark.parametrize("parameters", [{"rebuild": "global"}, {"rebuild": "seed", "layerwise": True}])
@pytest.mark.parametrize("kind", ["dense", "batchnorm"])
def test_executors_agree(kind, parameters):
    algorithm, setting = oracle.build(NAME, **STRONG | parameters), SETTINGS[kind]
    serial = oracle.last(algorithm, setting)
    assert_same(serial, oracle.last(algorithm, setting, executor="processes", workers=2), tolerance=0.0)
    if kind == "dense":
        assert_same(serial, oracle.last(algorithm, setting, executor="vectorised"), tolerance=1e-4)
        return
    with pytest.raises(FedchordError, match=r"norm \(BatchNorm1d\).*GroupNorm has none"):
        oracle.last(algorithm, setting, executor="vectorised")


@pytest.mark.parametrize("rebuild", ["global", "seed"])
def test_the_lambda_sweep_runs_from_g_to_the_rebuilt_model(rebuild):
    algorithm = oracle.build(NAME, rebuild=rebuild, blend=0.3, **STRONG)
    fitted = Fitted.of(oracle.last(algorithm))

    def twin(**changes: object) -> Fitted:
        client = dataclasses.replace(algorithm.client, **changes)
        work = dataclasses.replace(fitted.work, algorithm=dataclasses.replace(algorithm, client=client))
        return dataclasses.replace(fitted, work=work)

    swept = sweep(fitted, metric="loss")
    assert swept.two_ended.all() and NEVER  # also clients that were never sampled
    for lam, far in ((0.0, 0.0), (0.3, 0.3), (1.0, 1.0)):
        measured = evaluate(twin(blend=far))
        point = swept.test[:, LAMBDAS.index(lam)]
        assert torch.allclose(point, measured.per_client["loss"], atol=1e-5), lam
    assert sweep(twin(tune_epochs=0), metric="loss") is None  # without tuning there is one model


def test_the_cosine_acts_where_the_ends_start_apart():
    """At l = g the square of the cosine is at its maximum: nu does not change the first slope, from a seed it does."""
    task = DENSE.task()
    info = RoundInfo(round=0, rounds=1, num_clients=7, cohort=1, lr=0.1, epochs=1, key=0)
    batch = oracle.batches(DENSE, 0, 0)[0]
    for rebuild, acts in (("global", False), ("seed", True)):
        slopes = []
        for nu in (0.0, 5.0):
            rule = StatelessSuPerFed(rebuild=rebuild, nu=nu)
            own = rule.init(task, {}, 2)
            visit = Visit(task, task.init(1), own, info, 0, 13)
            visit = dataclasses.replace(visit, phase=rule.tuning(visit)[0])
            slopes.append(rule.direction(rule.start(visit), visit, batch, 3)["own"])
        assert torch.allclose(*slopes, atol=1e-6) != acts, rebuild


def test_the_warm_up_is_that_of_superfed():
    info = RoundInfo(round=0, rounds=10, num_clients=4, cohort=2, lr=0.1, epochs=1, key=0)
    rule = StatelessSuPerFed(warmup=0.4)
    assert [rule.mixes_in(dataclasses.replace(info, round=t)) for t in range(10)] == [t >= 4 for t in range(10)]


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"rebuild": "disk"}, "StatelessSuPerFed: rebuild must be one of global, seed, got 'disk'"),
        ({"tune_epochs": -1}, "StatelessSuPerFed: tune_epochs must be a whole number of at least 0, got -1"),
        (
            {"warmup": 40},
            "SuPerFed: warmup (a share of the rounds; start_round is a round) must be between 0 and 1, got 40",
        ),
        ({"blend": 2}, "SuPerFed: blend must be between 0 and 1, got 2"),
        ({"nu": -1.0}, "SuPerFed: nu must be at least 0, got -1.0"),
    ],
)
def test_mistakes_are_told_in_one_line(parameters, line):
    with pytest.raises(FedchordError) as error:
        oracle.build(NAME, **parameters)
    assert str(error.value) == line
