"""APFL against plain torch: alpha v + (1 - alpha) w is differentiated by autograd, also in alpha."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import oracle
from helpers.alone import each_alone
from helpers.oracle import CLIENTS, COHORTS, DENSE, NEVER, SETTINGS, close, vector
from torch import nn
from torch.func import functional_call

from fedchord.check import FedchordError
from fedchord.clients.apfl import Apfl
from fedchord.core.rules import Line
from fedchord.evaluation.fitted import Fitted


def mixed(v: nn.Module, w: nn.Module, alpha) -> dict:
    """The parameters of vbar; w is held fixed."""
    fixed = dict(w.named_parameters())
    return {n: alpha * p + (1 - alpha) * fixed[n].detach() for n, p in v.named_parameters()}


def train(setting, g, v, alpha, i, t, adaptive, alpha_lr):
    """One client's round by backward: w, v and alpha."""
    w, v, alpha = copy.deepcopy(g).train(), copy.deepcopy(v).train(), torch.tensor(alpha, requires_grad=True)
    both = [*w.parameters(), *v.parameters()]
    optimiser = torch.optim.SGD(both, oracle.rate(t), 0.5, weight_decay=0.01)
    for batch in oracle.batches(setting, i, t):
        optimiser.zero_grad()
        alpha.grad = None
        F.cross_entropy(w(batch["x"]), batch["y"]).backward()
        F.cross_entropy(functional_call(v, mixed(v, w, alpha), (batch["x"],)), batch["y"]).backward()
        optimiser.step()
        if adaptive:
            alpha = (alpha.detach() - alpha_lr * alpha.grad).clamp(0, 1).requires_grad_()
    return w, v, alpha.item()


CASES = [
    ("dense", 0.25, False, 0.01),
    ("autograd", 0.6, False, 0.01),
    ("batchnorm", 0.25, False, 0.01),
    ("dense", 0.3, True, 0.2),
    ("batchnorm", 0.3, True, 0.1),
]


@pytest.mark.parametrize(("kind", "alpha", "adaptive", "alpha_lr"), CASES)
def test_against_plain_torch(kind, alpha, adaptive, alpha_lr):
    setting = SETTINGS[kind]
    algorithm = oracle.build("apfl", alpha=alpha, adaptive=adaptive, alpha_lr=alpha_lr)
    g, own, alphas = setting.first(), {}, {}
    for t, result in enumerate(oracle.running(algorithm, setting)):
        assert result.cohort == COHORTS[t]
        trained = []
        for i in result.cohort:
            w, own[i], alphas[i] = train(setting, g, own.get(i, g), alphas.get(i, alpha), i, t, adaptive, alpha_lr)
            trained.append(w)
        g = oracle.average(trained, oracle.by_size(result.cohort))
        assert oracle.same(result.state.broadcast, g), t
        assert result.memory.clients() == sorted(own)
        for i, v in own.items():
            kept = result.memory.get(i)
            assert kept.keys() == {"v", "v_buffers", "alpha"}
            assert close(kept["v"], vector(v), 1e-5) and close(kept["v_buffers"], oracle.buffers(v), 1e-5), (t, i)
            assert float(kept["alpha"]) == pytest.approx(alphas[i], abs=1e-5), (t, i)
    assert adaptive == any(abs(value - alpha) > 0.01 for value in alphas.values())
    models = {i: copy.deepcopy(g) for i in CLIENTS}
    for i, v in own.items():
        models[i] = copy.deepcopy(v)
        for name, value in mixed(v, g, alphas[i]).items():
            models[i].state_dict()[name].copy_(value.detach())
    oracle.check_deployed(result, models, 1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_w_is_fedavg_whatever_alpha_is(alpha):
    """v never reaches w: the global model is FedAvg's, bit for bit."""
    assert torch.equal(oracle.theta(oracle.build("apfl", alpha=alpha)), oracle.theta("fedavg"))
    adaptive = oracle.build("apfl", alpha=alpha, adaptive=True, alpha_lr=0.5)
    assert torch.equal(oracle.theta(adaptive), oracle.theta("fedavg"))
    other = SETTINGS["autograd"]
    assert close(oracle.theta(oracle.build("apfl", alpha=alpha), other), oracle.theta("fedavg", other), 1e-6)


def test_alpha_0_deploys_w():
    algorithm = oracle.build("apfl", alpha=0.0)
    result, plain = oracle.last(algorithm), oracle.last("fedavg")
    for i in CLIENTS:
        model = oracle.model_of(result, i)
        assert torch.equal(model["theta"], plain.state.broadcast["theta"])
    mine, theirs = (each_alone(Fitted.of(one)).per_client["loss"] for one in (result, plain))
    assert torch.equal(mine, theirs)


def test_alpha_1_is_every_client_alone():
    """With all clients from the first round on, v is what the client would learn alone, and it is deployed."""
    algorithm = oracle.build("apfl", alpha=1.0)
    result, alone = oracle.last(algorithm, cohort=7), oracle.last("local", cohort=7)
    for i in CLIENTS:
        assert close(result.memory.get(i)["v"], alone.memory.get(i)["theta"], 1e-6)
        assert torch.equal(oracle.model_of(result, i)["theta"], result.memory.get(i)["v"])
    assert torch.allclose(result.evaluation.per_client["loss"], alone.evaluation.per_client["loss"], atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_adaptive_alpha_stays_in_the_unit_interval(alpha):
    """A step length that would throw it far outside."""
    seen = set()
    for result in oracle.running(oracle.build("apfl", alpha=alpha, adaptive=True, alpha_lr=100.0)):
        for i in result.memory.clients():
            seen.add(float(result.memory.get(i)["alpha"]))
    assert all(0 <= value <= 1 for value in seen)
    assert seen & {0.0, 1.0}


def test_alpha_is_each_clients_own():
    result = oracle.last(oracle.build("apfl", adaptive=True, alpha_lr=0.2))
    alphas = [float(result.memory.get(i)["alpha"]) for i in result.memory.clients()]
    assert len(set(alphas)) == len(alphas) == 5


def test_batchnorm_statistics_are_kept_apart():
    """The private ones are not averaged, and the private model is deployed with them."""
    setting, algorithm = SETTINGS["batchnorm"], oracle.build("apfl")
    result = oracle.last(algorithm, setting)
    shared = result.state.broadcast["buffers"]
    kept = {i: result.memory.get(i)["v_buffers"] for i in result.memory.clients()}
    assert all(not torch.allclose(a, shared) for a in kept.values())
    assert all(not torch.allclose(a, kept[j]) for i, a in kept.items() for j in kept if j < i)
    for i, own in kept.items():
        assert torch.equal(oracle.model_of(result, i)["buffers"], own)


def test_the_line_is_from_w_to_v():
    rule, result = Apfl(), oracle.last(oracle.build("apfl", adaptive=True, alpha_lr=0.2))
    line = Fitted.of(result).line(3)
    assert torch.equal(line.near, result.state.broadcast["theta"])
    assert torch.equal(line.far, result.memory.get(3)["v"])
    assert float(line.at) == float(result.memory.get(3)["alpha"]) != rule.alpha
    found = rule.deploy(DENSE.task(), result.state.broadcast, None)
    assert not isinstance(found, Line) and torch.equal(found["theta"], result.state.broadcast["theta"])
    assert all(Fitted.of(result).line(i) is None for i in NEVER)


def test_only_w_travels():
    result, plain = oracle.last("apfl", rounds=1), oracle.last("fedavg", rounds=1)
    assert (result.bytes_up, result.bytes_down) == (plain.bytes_up, plain.bytes_down)
    assert result.state.broadcast.keys() == {"theta", "buffers"}


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"alpha": 1.5}, "Apfl: alpha must be between 0 and 1, got 1.5"),
        ({"alpha": -0.1}, "Apfl: alpha must be between 0 and 1, got -0.1"),
        ({"alpha": float("nan")}, "Apfl: alpha must be a finite number, got nan"),
        ({"alpha_lr": 0.0}, "Apfl: alpha_lr must be above 0, got 0.0"),
        ({"lam": 1.0}, "unknown parameter of apfl 'method.lam'"),
    ],
)
def test_mistakes_are_told_in_one_line(parameters, line):
    with pytest.raises(FedchordError) as error:
        oracle.build("apfl", **parameters)
    assert line in str(error.value) and "\n" not in str(error.value)
