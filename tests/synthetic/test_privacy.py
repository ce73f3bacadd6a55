"""Nearest neighbours against brute force, the membership score against scikit-learn."""

from __future__ import annotations

import itertools

import pytest
import torch
from sklearn.metrics import roc_auc_score

from fedchord import federate, load
from fedchord.data import Iid
from fedchord.synthetic.privacy import chance, look, membership, nearest
from fedchord.synthetic.quality import members, pick
from fedchord.synthetic.set import SyntheticSet

DIGITS = federate(load("digits"), Iid(), 4, seed=1)


def brute(a: torch.Tensor, b: torch.Tensor) -> tuple[list[float], list[int]]:
    gaps = [[float(((p.double() - q.double()) ** 2).mean() ** 0.5) for q in b] for p in a]
    return [min(row) for row in gaps], [row.index(min(row)) for row in gaps]


def test_neighbours_are_those_of_brute_force(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    a, b = torch.rand(17, 2, 3, 3, generator=generator), torch.rand(23, 2, 3, 3, generator=generator)
    monkeypatch.setattr("fedchord.synthetic.privacy.BLOCK", 50)  # in pieces
    distances, rows = nearest(a, b)
    expected, which = brute(a, b)
    assert rows.tolist() == which and distances.tolist() == pytest.approx(expected, rel=1e-12)
    assert nearest(b[:3], b)[0].tolist() == [0, 0, 0]


def test_membership_is_the_auroc_of_scikit_learn():
    generator = torch.Generator().manual_seed(2)
    made, inside, outside = (torch.rand(n, 5, generator=generator) for n in (4, 30, 50))
    inside[:10] = made.repeat(3, 1)[:10] + 0.01
    scores = [-d for rows in (inside, outside) for d in brute(rows, made)[0]]
    expected = roc_auc_score([1] * 30 + [0] * 50, scores)
    assert membership(made, inside, outside) == pytest.approx(expected, abs=1e-12) and expected > 0.55


def test_copies_are_seen_and_other_real_rows_are_not():
    real = pick(DIGITS, 20, 5)
    copies = look(SyntheticSet(real.x, real.y, 0.0, 1.0, 10), DIGITS)
    assert copies.synthetic == (0.0, 0.0) and copies.closer == 1 and copies.membership > 0.5 + 3 * copies.error
    generator = torch.Generator().manual_seed(3)
    noise = look(SyntheticSet(torch.rand(200, 1, 8, 8, generator=generator), real.y, 0.0, 1.0, 10), DIGITS)
    assert noise.closer == 0 and abs(noise.membership - 0.5) < 4 * noise.error
    assert noise.real == copies.real and noise.real[0] > 0
    assert noise.members == len(members(DIGITS)) and noise.others == int(DIGITS.test.sizes.sum())


def test_the_error_is_that_of_all_orders():
    """All ways to place 4 members among 7 rows."""
    found = []
    for places in itertools.combinations(range(7), 4):
        others = [row for row in range(7) if row not in places]
        found.append(sum(p > q for p in places for q in others) / 12)
    assert chance(4, 3) == pytest.approx(float(torch.tensor(found, dtype=torch.float64).std(correction=0)), rel=1e-12)
