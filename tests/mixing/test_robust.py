"""Krum and the geometric median, against brute force, scipy and what is proven of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.optimize
import torch
from helpers.cohorts import cohort, info
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchord.check import FedchordError
from fedchord.mixing.robust import GeometricMedian, Krum, squared_distances


def drawn(count: int, width: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width))


def weights(rule, updates, sizes=None) -> np.ndarray:
    mix, memory = rule.weigh({}, cohort(updates=updates.tolist(), sizes=sizes), info(clients=len(updates)))
    assert memory == {} and torch.equal(mix.coefficients, mix.shares)
    return mix.shares.numpy()


def brute_krum(updates: np.ndarray, wrong: int, keep: int) -> set[int]:
    """The lowest scores, where the score is the least sum over all choices of n - f - 2 others."""
    count, scores = len(updates), []
    for i in range(count):
        others = [((updates[i] - updates[j]) ** 2).sum() for j in range(count) if j != i]
        scores.append(min(sum(some) for some in itertools.combinations(others, count - wrong - 2)))
    return set(sorted(range(count), key=lambda i: scores[i])[:keep])


@pytest.mark.parametrize(("count", "hostile", "keep"), [(3, 0.0, 1), (7, 0.2, 1), (9, 0.34, None), (10, 0.2, 4)])
def test_krum_keeps_what_brute_force_keeps(count, hostile, keep):
    for seed in range(8):
        updates, wrong = drawn(count, seed=seed), int(hostile * count)
        kept = keep or count - wrong - 2
        found = weights(Krum(hostile, keep), updates)
        chosen = brute_krum(updates, wrong, kept)
        assert set(found.nonzero()[0]) == chosen
        assert found[list(chosen)] == pytest.approx(1 / kept)


def test_distances_are_those_of_the_updates():
    updates = drawn(6)
    gram = torch.tensor(updates @ updates.T)
    found = squared_distances(gram).numpy()
    assert found == pytest.approx(((updates[:, None] - updates[None]) ** 2).sum(-1), abs=1e-12)
    assert (found.diagonal() == 0).all()


@pytest.mark.parametrize("sizes", [None, [5, 1, 1, 2, 9]])
def test_the_geometric_median_is_the_minimum_that_scipy_finds(sizes):
    for seed in range(4):
        updates = drawn(5, 3, seed)
        share = np.array(sizes or [1] * 5) / sum(sizes or [1] * 5)

        def total(point, updates=updates, share=share):
            return float(share @ np.linalg.norm(updates - point, axis=1))

        best = scipy.optimize.minimize(
            total, updates.mean(0), method="Nelder-Mead", tol=1e-11, options={"maxiter": 9999}
        )
        mixed = weights(GeometricMedian(), updates, sizes) @ updates
        assert total(mixed) <= best.fun + 1e-6  # a client with most of the weight is itself the minimum
        assert mixed == pytest.approx(best.x, abs=1e-3)


def test_on_a_line_the_geometric_median_is_the_median():
    values = np.array([[0.0], [1.0], [5.0], [100.0], [-3.0]])
    assert (weights(GeometricMedian(), values) @ values)[0] == pytest.approx(np.median(values), abs=1e-3)


def test_equal_updates_and_one_client_have_their_static_weights():
    same = np.ones((4, 3))
    assert weights(GeometricMedian(), same, [1, 2, 3, 4]) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert weights(GeometricMedian(), np.ones((1, 3))) == pytest.approx([1.0])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([1.0, 30.0, 1e4, 1e6]))
def test_a_minority_cannot_lead_the_result_away(seed, wrong, far):
    """Honest updates lie within 1 of the origin, hostile ones at a distance of their choice."""
    draw = np.random.default_rng(seed)
    count = 2 * wrong + 3
    honest = draw.normal(size=(count - wrong, 5))
    honest /= np.maximum(1.0, np.linalg.norm(honest, axis=1, keepdims=True))
    away = draw.normal(size=(wrong, 5))
    away *= far / np.linalg.norm(away, axis=1, keepdims=True)
    updates = np.concatenate([away, honest])
    share = wrong / count
    median = weights(GeometricMedian(), updates) @ updates
    # a share a of hostile weight: ||z|| <= 2 (1 - a) / (1 - 2 a) times the longest honest (Lopuhaa and Rousseeuw, 1991)
    assert np.linalg.norm(median) <= 2 * (1 - share) / (1 - 2 * share) + 1e-3
    kept = weights(Krum(wrong / count, 1), updates) @ updates
    # the kept one has a score of at most an honest one's, (n - f - 2) 4, and an honest update among its neighbours
    assert np.linalg.norm(kept) <= 1 + np.sqrt(4 * (count - wrong - 2))


def test_a_mean_is_led_away_by_the_same_minority():
    updates = np.concatenate([np.full((2, 3), 1e6), drawn(5, 3)])
    assert np.linalg.norm(updates.mean(0)) > 1e5
    for rule in (Krum(0.3), GeometricMedian()):
        assert np.linalg.norm(weights(rule, updates) @ updates) < 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Krum(0.5), "Krum: hostile must be at least 0 and below 0.5, got 0.5"),
        (lambda: Krum(0.2, 0), "Krum: keep must be a whole number of at least 1, got 0"),
        (
            lambda: weights(Krum(0.4), drawn(5)),
            "Krum: hostile=0.4 of a cohort of 5 is f = 2, which needs 2 f + 3 = 7 clients; use a larger cohort or "
            "mixing=geometric-median",
        ),
        (lambda: weights(Krum(0.2, 9), drawn(10)), "Krum: keep must be at most n - f = 8, got 9"),
    ],
)
def test_bad_input_is_one_line(make, message):
    with pytest.raises(FedchordError) as caught:
        make()
    assert str(caught.value) == message
