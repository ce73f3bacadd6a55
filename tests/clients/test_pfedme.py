"""pFedMe against plain torch: inner steps on the Moreau envelope, then a step of w."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import oracle
from helpers.oracle import CLIENTS, COHORTS, DENSE, FEDERATION, SETTINGS, TRAINING, close, squared
from torch import nn

from fedchord.check import FedchordError
from fedchord.clients.pfedme import PFedMe
from fedchord.core.local import local_round
from fedchord.core.rules import RoundInfo
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.models import LogisticRegression


def train(setting, g, i, t, lam, inner, inner_lr):
    """One client's round; plain SGD whatever the run's momentum and weight decay."""
    theta, w = copy.deepcopy(g).train(), copy.deepcopy(g)
    optimiser = torch.optim.SGD(theta.parameters(), oracle.rate(t) if inner_lr is None else inner_lr)
    for batch in oracle.batches(setting, i, t):
        for _ in range(inner):
            optimiser.zero_grad()
            (F.cross_entropy(theta(batch["x"]), batch["y"]) + lam / 2 * squared(theta, w)).backward()
            optimiser.step()
        with torch.no_grad():
            for a, b in zip(w.parameters(), theta.parameters(), strict=True):
                a -= oracle.rate(t) * lam * (a - b)
    for a, b in zip(w.buffers(), theta.buffers(), strict=True):
        a.copy_(b)
    return w, theta


def blended(g: nn.Module, mean: nn.Module, beta: float) -> nn.Module:
    """(1 - beta) w + beta mean; buffers are the mean's."""
    after = copy.deepcopy(mean)
    with torch.no_grad():
        for p, a, b in zip(after.parameters(), g.parameters(), mean.parameters(), strict=True):
            p.copy_((1 - beta) * a + beta * b)
    return after


CASES = [
    ({"lam": 3.0, "inner": 5}, "dense"),
    ({"lam": 3.0, "inner": 2}, "autograd"),
    ({"lam": 0.7, "inner": 3, "inner_lr": 0.3}, "dense"),
    ({"lam": 3.0, "inner": 3, "inner_lr": 0.05, "beta": 0.5}, "dense"),
    ({"lam": 3.0, "inner": 3, "beta": 2.0}, "autograd"),
    ({"lam": 3.0, "inner": 3, "beta": 0.5}, "batchnorm"),
]


@pytest.mark.parametrize(("parameters", "kind"), CASES)
def test_against_plain_torch(parameters, kind):
    setting = SETTINGS[kind]
    algorithm = oracle.build("pfedme", **parameters)
    settings = {"inner_lr": None} | {n: v for n, v in parameters.items() if n != "beta"}
    g, own = setting.first(), {}
    for t, result in enumerate(oracle.running(algorithm, setting)):
        assert result.cohort == COHORTS[t]
        moved = []
        for i in result.cohort:
            w, own[i] = train(setting, g, i, t, **settings)
            moved.append(w)
        g = blended(g, oracle.average(moved, oracle.by_size(result.cohort)), parameters.get("beta", 1.0))
        assert oracle.same(result.state.broadcast, g), t
        assert result.memory.clients() == sorted(own)
        for i, theta in own.items():
            assert result.memory.get(i).keys() == {"theta", "buffers"}
            assert oracle.same(result.memory.get(i), theta), (t, i)
    models = {i: own.get(i, g) for i in CLIENTS}
    oracle.check_deployed(result, models)


def test_momentum_and_weight_decay_are_switched_off_and_it_is_said():
    changed = PFedMe().local(Training(momentum=0.9, weight_decay=0.1, clip=1.0, optimiser="adam", lr=0.3, epochs=4))
    assert changed == Training(lr=0.3, epochs=4)
    plain = Training(epochs=2, batch=4, lr=0.1, lr_decay=0.9, lr_step=2)
    assert torch.equal(oracle.theta("pfedme"), oracle.theta("pfedme", training=plain))


def test_many_inner_steps_solve_the_proximal_problem():
    """On one batch: grad f(theta) + lam (theta - w) = 0, and w moves by lr lam (theta - w)."""
    task, lam = Task(lambda: LogisticRegression(6, 3)), 2.0  # smooth, so that a gradient of zero is reached
    rule = PFedMe(lam=lam, inner=200, inner_lr=0.2)
    shared = task.init(1)
    info = RoundInfo(round=0, rounds=1, num_clients=7, cohort=3, lr=0.05, epochs=1, key=0)
    stream = ClientStream(FEDERATION, 3, 0, 7)
    training = rule.local(Training(epochs=1, batch=0))
    upload, kept, _ = local_round(rule, task, training, shared, {}, stream, info, 3, 5)
    module = LogisticRegression(6, 3)
    nn.utils.vector_to_parameters(kept["theta"], module.parameters())
    batch = FEDERATION.batch(FEDERATION.train[3])
    F.cross_entropy(module(batch["x"]), batch["y"]).backward()
    slope = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    assert slope.norm() > 0.05
    assert close(slope, -lam * (kept["theta"] - shared["theta"]), 1e-5)
    assert close(upload.mix["theta"], 0.05 * lam * (kept["theta"] - shared["theta"]), 1e-6)


def test_beta_0_is_refused_and_beta_1_is_the_mean():
    with pytest.raises(FedchordError, match=r"Blend: beta must be above 0, got 0\.0"):
        oracle.build("pfedme", beta=0.0)
    assert torch.equal(oracle.theta(oracle.build("pfedme", beta=1.0)), oracle.theta("pfedme"))
    first = DENSE.task().init(oracle.rng.key(oracle.SEED, "model"))["theta"]
    ends = {b: oracle.theta(oracle.build("pfedme", beta=b), rounds=1) - first for b in (0.25, 1.0)}
    assert close(ends[0.25], 0.25 * ends[1.0], 1e-7)


def test_the_inner_rate_follows_the_decay_only_if_it_is_the_local_one():
    """None means the rate of the round; a number stays what it is."""
    same = oracle.build("pfedme", inner_lr=TRAINING.lr)
    assert torch.equal(oracle.theta(same, rounds=2), oracle.theta("pfedme", rounds=2))
    assert not torch.equal(oracle.theta(same, rounds=3), oracle.theta("pfedme", rounds=3))


def test_personal_models_differ_and_only_w_travels():
    result, plain = oracle.last("pfedme"), oracle.last("fedavg")
    models = [result.memory.get(i)["theta"] for i in result.memory.clients()] + [result.state.broadcast["theta"]]
    assert all(not torch.allclose(a, b) for i, a in enumerate(models) for b in models[:i])
    assert (result.bytes_up, result.bytes_down) == (plain.bytes_up, plain.bytes_down)


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"lam": 0}, "PFedMe: lam must be above 0, got 0"),
        ({"lam": -1.0}, "PFedMe: lam must be above 0, got -1.0"),
        ({"inner": 0}, "PFedMe: inner must be a whole number of at least 1, got 0"),
        ({"inner_lr": 0.0}, "PFedMe: inner_lr must be above 0, got 0.0"),
        ({"beta": -1.0}, "Blend: beta must be above 0, got -1.0"),
    ],
)
def test_mistakes_are_told_in_one_line(parameters, line):
    with pytest.raises(FedchordError) as error:
        oracle.build("pfedme", **parameters)
    assert line in str(error.value) and "\n" not in str(error.value)
