"""SuPerFed's step in blocks: it is the direction and the optimiser, whatever the blocks."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from helpers import oracle
from helpers.oracle import FEDERATION, SETTINGS, TRAINING, close
from torch import Tensor

from fedchord import rng
from fedchord.clients import superfed_kernel
from fedchord.clients.superfed import SuPerFed
from fedchord.core.local import local_round
from fedchord.core.rules import ClientRule, RoundInfo
from fedchord.core.stream import ClientStream

INFO = RoundInfo(round=0, rounds=4, num_clients=7, cohort=3, lr=0.1, epochs=2, key=0)


@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("kind", ["dense", "batchnorm"])
def test_the_step_in_blocks_is_the_direction_and_the_optimiser(monkeypatch, layerwise, momentum, kind):
    task = SETTINGS[kind].task()
    training = dataclasses.replace(TRAINING, momentum=momentum)
    rule = SuPerFed(layerwise=layerwise, mu=0.4, nu=2.0, warmup=0.0)
    shared, own = task.init(1), rule.init(task, {}, 2)

    def run() -> tuple[Tensor, Tensor, Tensor]:
        stream = ClientStream(FEDERATION, 3, 4, 7, least=task.least_batch)
        upload, kept, _ = local_round(rule, task, training, shared, own, stream, INFO, 3, 5)
        return upload.mix["theta"], kept["own"], upload.carry["buffers"]

    ends = {}
    for block, large in itertools.product((1, 7, 18, 64, 1 << 16), (1, 6, 1 << 16)):  # gradients by tensor, and as one
        monkeypatch.setattr(superfed_kernel, "BLOCK", block)
        monkeypatch.setattr(superfed_kernel, "LARGE", large)
        ends[block, large] = run()
    called = []
    monkeypatch.setattr(SuPerFed, "step", lambda *a: called.append(1) or ClientRule.step(*a))
    by_direction = run()
    assert len(called) == 12  # steps: two epochs of 23 rows in batches of 4
    for block, end in ends.items():
        for a, b in zip(end, by_direction, strict=True):
            assert close(a, b, 3e-6), block
    assert by_direction[0].norm() > 0.1 and not close(by_direction[1], own["own"], 1e-2)


def test_a_lambda_of_zero_or_nearly_one_is_no_division_by_zero(monkeypatch):
    task = SETTINGS["dense"].task()
    rule = SuPerFed(mu=0.4, nu=2.0, warmup=0.0)
    shared, own = task.init(1), rule.init(task, {}, 2)
    for lam in (0.0, 2.0**-24, 2.0**-12, 2.0**-9, 0.01, 1 - 2.0**-9, 1 - 2.0**-12, 1 - 2.0**-24):
        monkeypatch.setattr(rng, "uniform", lambda key, n, device=None, lam=lam: torch.full((n,), lam))
        ends = []
        for step in (SuPerFed.step, ClientRule.step):
            with monkeypatch.context() as here:
                here.setattr(SuPerFed, "step", step)
                stream = ClientStream(FEDERATION, 3, 4, 7)
                ends.append(local_round(rule, task, TRAINING, shared, own, stream, INFO, 3, 5))
        assert close(ends[0][0].mix["theta"], ends[1][0].mix["theta"], 3e-6), lam
        assert close(ends[0][1]["own"], ends[1][1]["own"], 3e-6), lam


@pytest.mark.parametrize("layerwise", [False, True])
def test_steps_of_both_forms_may_follow_each_other(monkeypatch, layerwise):
    task = SETTINGS["batchnorm"].task()
    rule = SuPerFed(layerwise=layerwise, mu=0.4, nu=2.0, warmup=0.0)
    shared, own = task.init(1), rule.init(task, {}, 2)
    draw, plain, kinds = rng.uniform, ClientRule.step, []
    monkeypatch.setattr(rng, "uniform", lambda key, n, device=None: draw(key, n, device) * (key % 3 > 0))
    monkeypatch.setattr(ClientRule, "step", lambda *a: kinds.append("plain") or plain(*a))
    ends = []
    for step in (SuPerFed.step, plain):
        with monkeypatch.context() as here:
            here.setattr(SuPerFed, "step", lambda *a, step=step: kinds.append("step") or step(*a))
            stream = ClientStream(FEDERATION, 3, 4, 7, least=task.least_batch)
            ends.append(local_round(rule, task, TRAINING, shared, own, stream, INFO, 3, 5))
    assert kinds.count("step") == 24 and 2 <= kinds.count("plain") <= 10, kinds
    assert close(ends[0][0].mix["theta"], ends[1][0].mix["theta"], 3e-6)
    assert close(ends[0][1]["own"], ends[1][1]["own"], 3e-6)


def test_only_the_first_point_of_a_visit_takes_a_pass_of_its_own(monkeypatch):
    task, rule, seen = SETTINGS["dense"].task(), SuPerFed(warmup=0.0), []
    monkeypatch.setattr(superfed_kernel, "BLOCK", 64)
    take = superfed_kernel._Point.take
    monkeypatch.setattr(superfed_kernel._Point, "take", lambda p, blocks: seen.append(len(blocks)) or take(p, blocks))
    stream = ClientStream(FEDERATION, 3, 4, 7)
    local_round(rule, task, TRAINING, task.init(1), rule.init(task, {}, 2), stream, INFO, 3, 5)
    blocks = -(-task.layout.size // 64)
    assert blocks > 1 and seen == [blocks, *[1] * (blocks * 11)]  # the last of 12 steps has none to prepare


def test_blocks_of_any_size_give_the_same_run(monkeypatch):
    """MM and LM over whole runs; sums over blocks are in float64."""
    for name in ("superfed-mm", "superfed-lm"):
        monkeypatch.setattr(superfed_kernel, "BLOCK", 1 << 16)
        *_, whole = oracle.running(name)
        monkeypatch.setattr(superfed_kernel, "BLOCK", 10)
        *_, pieces = oracle.running(name)
        assert close(whole.state.broadcast["theta"], pieces.state.broadcast["theta"], 2e-6)
        for i in whole.memory.clients():
            assert close(whole.memory.get(i)["own"], pieces.memory.get(i)["own"], 2e-6)
