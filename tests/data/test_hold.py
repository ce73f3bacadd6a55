"""Rows held out of training: which, how many, and that they carry the labels of training."""

from __future__ import annotations

import pytest
import torch

from fedchord import FedchordError, federate, load
from fedchord.data import Dirichlet
from fedchord.data.hold import hold_out


def test_they_are_training_rows_and_carry_their_noise():
    digits = load("digits")
    whole = federate(digits, Dirichlet(alpha=0.5), 10, validation=0.1, noise="pair", noise_rate=0.4, seed=2)
    found = hold_out(whole, 0.25, seed=2)
    for client in range(10):
        rows = found.held[client].tolist()
        assert sorted(found.train[client].tolist() + rows) == sorted(whole.train[client].tolist())
        wanted = int(len(whole.train[client]) * 0.25 + 0.5)
        assert len(rows) == min(max(wanted, 1), len(whole.train[client]) - 1)
    wrong = (found.columns["y"] != digits.columns["y"])[found.held.rows].double().mean()
    assert 0.3 < wrong < 0.5  # validation rows have none
    assert torch.equal(found.columns["y"][found.validation.rows], digits.columns["y"][found.validation.rows])
    for part in ("validation", "test"):
        assert torch.equal(found.part(part).rows, whole.part(part).rows)
    back = found.whole()
    assert back.held is None and sorted(back.train.rows.tolist()) == sorted(whole.train.rows.tolist())
    some = found.only([3, 1])
    assert torch.equal(some.held[1], found.held[1]) and "held out to choose by" in found.notes[-1]


def test_another_seed_holds_other_rows_out_and_the_same_seed_the_same():
    whole = federate(load("digits"), Dirichlet(alpha=0.5), 10)
    first, again, other = (hold_out(whole, 0.25, seed).held.rows for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, float("nan")])
def test_bad_shares_are_refused(share):
    whole = federate(load("digits"), Dirichlet(alpha=0.5), 10)
    with pytest.raises(FedchordError, match="share must lie between"):
        hold_out(whole, share)
    with pytest.raises(FedchordError, match="held out already"):
        hold_out(hold_out(whole, 0.2), 0.2)
