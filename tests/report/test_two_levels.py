"""Intervals over seeds and clients: against all resamples of a tiny case, and how often they hold the truth."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from fedchord import FedchordError
from fedchord.report.two_levels import gain, mean, worst_tenth


def test_a_tiny_case_has_the_quantiles_of_all_its_resamples():
    """Two seeds of two clients: every draw of seeds and of clients within them, listed."""
    ours, theirs = [np.array([0.9, 0.5]), np.array([0.7, 0.6])], [np.array([0.5, 0.4]), np.array([0.7, 0.1])]
    every = []
    for seeds in product(range(2), repeat=2):
        for draws in product(product(range(2), repeat=2), repeat=2):
            found = [
                np.mean([ours[s][c] - theirs[s][c] for c in clients]) for s, clients in zip(seeds, draws, strict=True)
            ]
            every.append(np.mean(found))
    found = gain(ours, theirs, resamples=40_000)
    assert found.value == pytest.approx(np.mean([0.4, 0.1, 0.0, 0.5]))
    low, high = np.quantile(every, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.03) and found.sign == 1


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    generator, held = np.random.default_rng(1), 0
    for _ in range(100):
        shift = generator.normal(0.0, 0.05, 8)  # seeds differ, and clients within them
        ours = [1.0 + s + generator.normal(0, 0.2, 30) for s in shift]
        found = gain(ours, [np.zeros(30)] * 8, resamples=300)
        held += found.low <= 1.0 <= found.high
    assert 0.85 <= held / 100 <= 0.99


def test_intervals_of_few_clients_are_widened_by_students_factor():
    """Four clients: the plain interval misses the truth more often than it says, the widened one does not."""
    generator, held = np.random.default_rng(2), {False: 0, True: 0}
    for _ in range(200):
        ours, theirs = [1.0 + generator.normal(0, 0.2, 4)], [np.zeros(4)]
        for widened in held:
            found = gain(ours, theirs, resamples=300, widened=widened)
            held[widened] += found.low <= 1.0 <= found.high
    assert held[False] / 200 < 0.88 and 0.92 <= held[True] / 200 <= 0.99
    plain, wide = (gain(ours, theirs, widened=one) for one in (False, True))
    factor = np.sqrt(4 / 3) * stats.t.ppf(0.975, 3) / stats.norm.ppf(0.975)
    assert factor == pytest.approx(1.87, abs=0.01) and wide.value == plain.value
    assert wide.high - wide.value == pytest.approx(factor * (plain.high - plain.value))
    assert wide.low - wide.value == pytest.approx(factor * (plain.low - plain.value))
    alone = gain([np.ones(1)], [np.zeros(1)], widened=True)
    assert (alone.value, alone.low, alone.high, alone.sign) == (1.0, -np.inf, np.inf, 0)


def test_the_worst_tenth_is_the_mean_of_the_lowest():
    values = np.random.default_rng(0).normal(size=(3, 25))
    assert worst_tenth(values) == pytest.approx(np.sort(values, 1)[:, :2].mean(1))
    assert worst_tenth(np.array([3.0, 1.0])) == 1.0 and mean(np.array([3.0, 1.0])) == 2.0


def test_clients_without_a_value_are_left_out_and_the_rest_must_fit():
    one, other = [np.array([1.0, np.nan, 2.0])], [np.array([0.0, 5.0, np.inf])]
    assert gain(one, other).value == 1.0
    for bad in ([one, []], [one, [np.zeros(2)]], [one, [np.full(3, np.nan)]]):
        with pytest.raises(FedchordError):
            gain(*bad)
    assert gain([np.zeros(4)], [np.zeros(4)]).sign == 0
