"""Noise that only a node can know, and reports that are made with it where the loss is."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.remote import FEDERATION, OPEN, QUICK, SECRET, assert_same_state, plan_of
from scipy import stats

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.core.round import Plan as Course
from fedchord.core.round import close_round, open_round, open_run
from fedchord.data.alone import alone
from fedchord.engine.executors import Serial
from fedchord.engine.memory import ClientMemory
from fedchord.remote import noise
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.node import Node
from fedchord.remote.serve import serve


def test_noise_is_standard_normal():
    drawn = noise.normal(b"secret", "plan", 3, "hash", "report", (50_000,)).numpy()
    assert drawn.dtype == np.float64 and np.isfinite(drawn).all()
    assert stats.kstest(drawn, "norm").pvalue > 0.01
    assert abs(drawn.mean()) < 4 / math.sqrt(50_000) and abs(drawn.std() - 1) < 4 / math.sqrt(100_000)
    assert abs(np.corrcoef(drawn[:25_000], drawn[25_000:])[0, 1]) < 4 / math.sqrt(25_000)


def test_noise_repeats_and_no_two_messages_share_it():
    usual = (b"secret", "plan", 3, "hash", "report")
    first = noise.normal(*usual, (8,))
    assert torch.equal(first, noise.normal(*usual, (8,)))
    others = [(b"other", *usual[1:]), *(tuple("x" if i == at else v for i, v in enumerate(usual)) for at in (1, 3, 4))]
    others.append((*usual[:2], 4, *usual[3:]))
    drawn = [first, *(noise.normal(*other, (8,)) for other in others)]
    assert len({float(value) for part in drawn for value in part}) == 8 * len(drawn)


def test_a_private_method_needs_a_secret(tmp_path):
    with pytest.raises(FedchordError, match="node: aaggff-p needs a secret of the node, for the noise of its reports"):
        Node(plan_of("aaggff-p"), 0, alone(FEDERATION, 0), tmp_path)


def shaken(key: bytes) -> float:
    """The first number of the stream by hand: Box and Muller's cosine of two uniform numbers of 53 bits."""
    words = [int.from_bytes(hashlib.shake_256(key).digest(16)[at : at + 8], "little") >> 11 for at in (0, 8)]
    u, v = ((word + 0.5) / 2**53 for word in words)
    return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)


def hashed(shared, facts) -> str:
    mark = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, tensor in sorted(shared.items()):
        mark.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode() + tensor.numpy().tobytes())
    return mark.hexdigest()


def test_reports_from_nodes_are_those_of_the_simulator_under_the_same_secret(tmp_path):
    """The rounds by the simulator's parts, with noise drawn by hand from each client's secret."""
    plan = plan_of("aaggff-p", rounds=4, method__noise=0.3)
    run = serve(plan, Direct(nodes_of(plan, FEDERATION, tmp_path, SECRET, OPEN)), service=QUICK)
    served = list(run)
    work, course = plan.work(FEDERATION), plan.course
    state, memory, executor = open_run(work.algorithm, work.task, 4, course), ClientMemory(), Serial(work)
    rule, seen = work.algorithm.mixing, []
    for done in served:
        info, ids = open_round(state, Course(course.rounds, course.cohort, course.seed), work.training)
        results = executor.run(state.broadcast, ids, info, memory)
        told = []
        for client, loss in zip(ids, results.losses.tolist(), strict=True):
            counted = int(state.counted[client])
            mark = hashed(state.broadcast, {"round": state.round, "counted": counted, "cohort": 2})
            secret = SECRET + client.to_bytes(4, "little")
            text = "\n".join((plan.fingerprint, str(state.round), mark, "report")).encode()
            drawn = noise.normal(secret, plan.fingerprint, state.round, mark, "report", (1,))
            assert abs(float(drawn) - shaken(hmac.digest(secret, text, "sha256"))) < 1e-12
            seen.append(float(drawn))
            told.append(rule.report(torch.tensor([loss], dtype=torch.float64), drawn))
        private = replace(results, losses=None, reports=torch.cat(told))
        state, mix = close_round(work.algorithm, work.task, state, private, info)
        assert torch.equal(done.shares, mix.shares) and done.losses is None
    assert_same_state(run.fitted.state, state)
    assert len(set(seen)) == len(seen) == 8


def test_the_server_never_sees_a_loss_and_cannot_make_the_noise(tmp_path):
    plan = plan_of("aaggff-p", rounds=1, cohort="all")
    reports = {}
    for secret in (b"one", b"two"):
        transport = Direct(nodes_of(plan, FEDERATION, tmp_path / secret.decode(), secret, OPEN))
        asked = {}

        class Listening(Direct):
            def ask(self, kind, parcels, seconds, asked=asked):
                found = super().ask(kind, parcels, seconds)
                if kind == "train":
                    asked |= {client: parcel.tensors for client, parcel in found.parcels.items()}
                return found

        serve(plan, Listening(transport.nodes), service=QUICK).finish()
        assert all("loss" not in tensors for tensors in asked.values())
        reports[secret] = torch.cat([asked[client]["report"] for client in range(4)])
    assert (reports[b"one"] != reports[b"two"]).all()  # the same run but for the secrets
    key = rng.key(plan.course.seed, "server", 0)
    assert not any(
        torch.allclose(reports[a] - reports[b], rng.normal(key, (4,)).double())
        for a, b in itertools.permutations(reports)
    )
