"""Attacks on labels, uploads and losses: what hostile clients send, and who they are."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers.documents import blocks
from helpers.federations import make_federation

from fedchord import catalog
from fedchord.attacks.attack import ATTACKS, Attack
from fedchord.check import FedchordError
from fedchord.core.round import Results
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.ragged import Ragged
from fedchord.engine.simulate import simulate
from fedchord.models import TwoNN

FEDERATION = make_federation([8, 6, 9, 5, 7, 8, 6, 7, 9, 5])


def uploads(ids: list[int], seed: int = 0) -> Results:
    draw = torch.Generator().manual_seed(seed)
    rows = {"theta": torch.randn(len(ids), 3, 50, generator=draw)}
    carry = {"buffers": torch.randn(len(ids), 4, generator=draw)}
    mean = {"control": torch.randn(len(ids), 20, generator=draw)}
    losses = torch.rand(len(ids), generator=draw, dtype=torch.float64)
    return Results(torch.tensor(ids), torch.ones(len(ids)), rows, carry, mean, losses=losses)


def attacked(name, ids, scale=None, seed=3, share=0.4) -> tuple[Results, Results, list[int]]:
    attack, honest = Attack(name, share, scale), uploads(ids)
    wrong = [slot for slot, client in enumerate(ids) if client in attack.hostile(seed, 10)]
    return honest, attack.sent(honest, seed, 5, 10), wrong


ALL = list(range(10))


def test_who_is_hostile_is_drawn_by_the_seed_and_grows_with_the_share():
    shares = [set(Attack("noise", share).hostile(1, 50)) for share in (0.0, 0.1, 0.2, 0.5, 0.99)]
    assert [len(part) for part in shares] == [0, 5, 10, 25, 49]
    assert all(few < more for few, more in pairwise(shares))
    counts = np.bincount([c for seed in range(500) for c in Attack("noise", 0.2).hostile(seed, 10)], minlength=10)
    assert counts.sum() == 1000 and abs(counts - 100).max() < 5 * math.sqrt(80)


@pytest.mark.parametrize("name", ATTACKS)
def test_honest_clients_and_what_is_not_summed_stay_as_they_are(name):
    honest, sent, wrong = attacked(name, ALL)
    right = [slot for slot in ALL if slot not in wrong]
    assert len(wrong) == 4
    for part in ("mix", "mean"):
        for key, rows in getattr(honest, part).items():
            assert torch.equal(getattr(sent, part)[key][right], rows[right])
    assert torch.equal(sent.carry["buffers"], honest.carry["buffers"])
    assert torch.equal(sent.losses[right], honest.losses[right])
    assert torch.equal(honest.mix["theta"], uploads(ALL).mix["theta"])  # what was given is not touched


@pytest.mark.parametrize(("name", "factor"), [("sign-flip", -2.5), ("scaled", 2.5)])
def test_flipped_and_scaled_uploads(name, factor):
    honest, sent, wrong = attacked(name, ALL, 2.5)
    for part, key in (("mix", "theta"), ("mean", "control")):
        rows = getattr(honest, part)[key].numpy()[wrong]
        assert getattr(sent, part)[key].numpy()[wrong] == pytest.approx(factor * rows)


def test_noise_has_the_length_that_was_asked_for_and_a_key_of_its_own():
    honest, sent, wrong = attacked("noise", ALL, 3.0)
    rows, noise = (part.mix["theta"][wrong].flatten(1).double() for part in (honest, sent))
    ratio = noise.norm(dim=1) / rows.norm(dim=1)
    assert ratio.numpy() == pytest.approx(3.0, rel=0.3)
    angles = noise @ noise.t() / torch.outer(noise.norm(dim=1), noise.norm(dim=1)) - torch.eye(len(wrong))
    assert angles.abs().max() < 0.4
    again = Attack("noise", 0.4, 3.0).sent(uploads(ALL), 3, 5, 10)
    later = Attack("noise", 0.4, 3.0).sent(uploads(ALL), 3, 6, 10)
    assert torch.equal(again.mix["theta"], sent.mix["theta"])
    assert not torch.equal(later.mix["theta"], sent.mix["theta"])
    alone = Attack("noise", 0.4, 3.0).sent(uploads(ALL[::-1]), 3, 5, 10)  # a client's noise is not its place's
    mine = alone.mix["theta"][9 - wrong[0]] / uploads(ALL[::-1]).mix["theta"][9 - wrong[0]].norm()
    assert mine.numpy() == pytest.approx((sent.mix["theta"][wrong[0]] / rows[0].norm().float()).numpy(), rel=1e-4)


def test_a_little_is_the_mean_less_some_std_of_the_hostile_alone():
    honest, sent, wrong = attacked("little", ALL, 1.2)
    rows = honest.mix["theta"].numpy().astype(np.float64)[wrong]
    known = rows.mean(0) - 1.2 * rows.std(0)
    for slot in wrong:
        assert sent.mix["theta"][slot].numpy() == pytest.approx(known, rel=1e-4, abs=1e-6)
    honest, sent, wrong = attacked("little", [wrong[0], *(c for c in ALL if c not in wrong)], 1.2)
    assert len(wrong) == 1 and torch.equal(sent.mix["theta"], honest.mix["theta"])  # one alone has no std


def test_liars_report_more_and_send_what_they_learnt():
    honest, sent, wrong = attacked("lying", ALL, 7.0)
    assert torch.equal(sent.mix["theta"], honest.mix["theta"])
    assert sent.losses[wrong].numpy() == pytest.approx(7 * honest.losses[wrong].numpy())


def test_flipped_labels_are_in_the_training_rows_of_the_hostile_and_nowhere_else():
    shared = torch.cat([FEDERATION.train[0], FEDERATION.train[4][:2]])
    lists = [shared if client == 0 else FEDERATION.train[client] for client in range(10)]  # two rows are of both
    federation = replace(FEDERATION, train=Ragged.of(lists))
    attack = next(a for share in (0.4, 0.5) if 0 in (a := Attack("label-flip", share)).hostile(1, 10) or share == 0.5)
    hostile = attack.hostile(1, 10)
    found = attack.among(federation, 1)
    for client in range(10):
        before, after = (part.columns["y"][part.train[client]] for part in (federation, found))
        assert torch.equal(after, 2 - before if client in hostile else before)
        x = [part.columns["x"][part.train[client]] for part in (federation, found)]
        assert torch.equal(*x)
        assert len(found.test[client]) == (0 if client in hostile else 4)
        if client not in hostile:
            assert torch.equal(found.columns["y"][found.test[client]], federation.columns["y"][federation.test[client]])


@pytest.mark.parametrize("name", ["sign-flip", "noise", "little", "label-flip"])
def test_executors_agree_to_the_bit_in_an_attack(name):
    def models(executor):
        found = simulate(
            catalog.build("superfed-mm"), Task(lambda: TwoNN(6, 5, 3)), FEDERATION, rounds=2, cohort=6, seed=1,
            training=Training(batch=4, lr=0.1), executor=executor, workers=2, attack=Attack(name, 0.4),
        )  # fmt: skip
        *_, last = found
        return last.state.broadcast["theta"], last.log["hostile_share"], last.memory

    (serial, share, kept), (forked, other, mine) = models("serial"), models("processes")
    assert torch.equal(serial, forked) and share == other > 0
    for client in kept.clients():
        assert all(torch.equal(tensor, mine.get(client)[part]) for part, tensor in kept.get(client).items())


def test_without_hostile_clients_an_attack_changes_no_bit():
    def model(**more):
        *_, last = simulate(
            catalog.build("fedavg"), Task(lambda: TwoNN(6, 5, 3)), FEDERATION, rounds=2, cohort=4, seed=1,
            training=Training(batch=4, lr=0.1), executor="serial", **more,
        )  # fmt: skip
        return last.state.broadcast["theta"]

    assert torch.equal(model(), model(attack=Attack("scaled", 0.0)))
    assert not torch.equal(model(), model(attack=Attack("scaled", 0.5)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Attack("sign-flp"), "unknown attack 'sign-flp'; did you mean 'sign-flip'?"),
        (lambda: Attack("noise", 1.0), "run: attack.share must be at least 0 and below 1, got 1.0"),
        (lambda: Attack("noise", -0.1), "run: attack.share must be at least 0 and below 1, got -0.1"),
        (lambda: Attack("noise", 0.1, 0.0), "run: attack.scale must be above 0, got 0.0"),
        (lambda: Attack("label-flip", 0.1, 2.0), "run: attack.scale is not for attack=label-flip"),
        (lambda: Attack("noise", 0.05).hostile(0, 10), "run: attack.share=0.05 of 10 clients is nobody; 0.1 is one"),
        (
            lambda: Attack("lying").check(catalog.build("fedavg")),
            "run: attack=lying needs a mixing rule that asks for losses, as those of aaggff-d do",
        ),
        (
            lambda: Attack("noise").check(catalog.build("local")),
            "run: attack=noise changes what clients send, and local sends nothing",
        ),
    ],
)
def test_bad_input_is_one_line(make, message):
    with pytest.raises(FedchordError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_the_code_of_the_page_on_trust_holds():
    (code,) = [code for _, code in blocks("docs/trust.md", "python") if "Attack(" in code]
    exec(compile(code, "docs/trust.md", "exec", dont_inherit=True), {})
