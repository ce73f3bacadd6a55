"""Ditto against plain torch: FedAvg on w, then a private v held near the received w."""

from __future__ import annotations

import pytest
import torch
from helpers import oracle
from helpers.oracle import CLIENTS, COHORTS, DENSE, NEVER, SETTINGS, close, squared, vector

from fedchord.check import FedchordError
from fedchord.clients.ditto import Ditto
from fedchord.core.rules import Line
from fedchord.evaluation.fitted import Fitted

CASES = [("dense", 1.0, None), ("autograd", 0.3, 3), ("batchnorm", 1.0, None), ("dense", 0.0, 1)]


@pytest.mark.parametrize(("kind", "lam", "own_epochs"), CASES)
def test_against_plain_torch(kind, lam, own_epochs):
    setting = SETTINGS[kind]
    algorithm = oracle.build("ditto", lam=lam, own_epochs=own_epochs)
    g, own = setting.first(), {}
    for t, result in enumerate(oracle.running(algorithm, setting)):
        assert result.cohort == COHORTS[t]
        trained = [oracle.descend(setting, g, i, t) for i in result.cohort]
        for i in result.cohort:
            own[i] = oracle.descend(
                setting, own.get(i, g), i, t, phase=1, epochs=own_epochs,
                penalty=lambda v, w=g: lam / 2 * squared(v, w),
            )  # fmt: skip
        g = oracle.average(trained, oracle.by_size(result.cohort))
        assert oracle.same(result.state.broadcast, g), t
        assert result.memory.clients() == sorted(own)
        for i, v in own.items():
            kept = result.memory.get(i)
            assert kept.keys() == {"v", "v_buffers"}
            assert close(kept["v"], vector(v)) and close(kept["v_buffers"], oracle.buffers(v)), (t, i)
    oracle.check_deployed(result, {i: own.get(i, g) for i in CLIENTS})


@pytest.mark.parametrize("lam", [0.0, 1.0, 7.0])
def test_the_shared_part_is_fedavg_bit_for_bit(lam):
    algorithm = oracle.build("ditto", lam=lam)
    result, plain = oracle.last(algorithm), oracle.last("fedavg")
    assert torch.equal(result.state.broadcast["theta"], plain.state.broadcast["theta"])
    assert (result.bytes_up, result.bytes_down) == (plain.bytes_up, plain.bytes_down)
    other = SETTINGS["autograd"]
    assert close(oracle.theta(algorithm, other), oracle.theta("fedavg", other), 1e-6)


def test_lam_0_is_each_client_alone():
    """From the model it first received, v hears nothing of the federation any more: other rounds' w do not matter."""
    algorithm = oracle.build("ditto", lam=0.0)
    result = oracle.last(algorithm)
    received = {t: r.state.broadcast["theta"] for t, r in enumerate(oracle.running("fedavg"), 1)}
    received[0] = vector(DENSE.first())
    for i in result.memory.clients():
        rounds = [t for t, cohort in enumerate(COHORTS) if i in cohort]
        v = DENSE.make()
        torch.nn.utils.vector_to_parameters(received[rounds[0]].clone(), v.parameters())
        for t in rounds:
            v = oracle.descend(DENSE, v, i, t, phase=1)
        assert close(result.memory.get(i)["v"], vector(v)), i


def test_a_strong_pull_keeps_v_near_w_and_none_lets_it_go():
    """The distance of v from the w it received shrinks with lam, to almost nothing."""
    far = []
    for lam in (0.0, 0.5, 3.0):
        *_, before, result = oracle.running(oracle.build("ditto", lam=lam))
        w = before.state.broadcast["theta"]
        far.append(sum(float((result.memory.get(i)["v"] - w).norm()) for i in COHORTS[-1]))
    assert far[0] > 1.2 * far[1] > 1.2 * 2 * far[2], far


def test_no_own_epochs_leave_v_where_it_started():
    result = oracle.last(oracle.build("ditto", own_epochs=0))
    first = vector(DENSE.first())
    for i in COHORTS[0]:
        assert torch.equal(result.memory.get(i)["v"], first)
    assert not torch.equal(result.memory.get(0)["v"], first)  # client 0 came in the last round


def test_batchnorm_statistics_are_kept_apart():
    setting, algorithm = SETTINGS["batchnorm"], oracle.build("ditto")
    result = oracle.last(algorithm, setting)
    kept = {i: result.memory.get(i)["v_buffers"] for i in result.memory.clients()}
    assert all(not torch.allclose(a, result.state.broadcast["buffers"]) for a in kept.values())
    assert all(not torch.allclose(a, kept[j]) for i, a in kept.items() for j in kept if j < i)
    for i, own in kept.items():
        assert torch.equal(oracle.model_of(result, i)["buffers"], own)
    # what v does leaves no trace in the shared statistics
    plain = oracle.last("fedavg", setting)
    assert close(result.state.broadcast["buffers"], plain.state.broadcast["buffers"], 1e-6)


def test_the_line_is_from_w_to_v():
    rule, result = Ditto(), oracle.last("ditto")
    line = Fitted.of(result).line(3)
    assert torch.equal(line.near, result.state.broadcast["theta"])
    assert torch.equal(line.far, result.memory.get(3)["v"]) and line.at == 1
    found = rule.deploy(DENSE.task(), result.state.broadcast, None)
    assert not isinstance(found, Line) and torch.equal(found["theta"], result.state.broadcast["theta"])
    assert all(Fitted.of(result).line(i) is None for i in NEVER)


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"lam": -0.5}, "Ditto: lam must be at least 0, got -0.5"),
        ({"lam": "1"}, "Ditto: lam must be a finite number, got '1'"),
        ({"own_epochs": -1}, "Ditto: own_epochs must be a whole number of at least 0, got -1"),
        ({"own_epochs": 2.0}, "Ditto: own_epochs must be a whole number of at least 0, got 2.0"),
    ],
)
def test_mistakes_are_told_in_one_line(parameters, line):
    with pytest.raises(FedchordError) as error:
        oracle.build("ditto", **parameters)
    assert line in str(error.value) and "\n" not in str(error.value)
