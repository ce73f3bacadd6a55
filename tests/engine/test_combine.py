"""Median and trimmed mean by coordinate, against numpy and scipy, through the seam of a round."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from helpers.federations import make_federation
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine import combine
from fedchord.engine.combine import Trimmed, check_combine, combiner, median
from fedchord.engine.guards import Defence
from fedchord.engine.simulate import simulate
from fedchord.models import TwoNN
from fedchord.tensors import weighted_sum

FEDERATION = make_federation([8, 6, 9, 5, 7])
NOBODY = torch.zeros(0)


def drawn(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_cauchy(size=(rows, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("rows", range(1, 9))
def test_median_and_trimmed_mean_are_those_of_numpy_and_scipy(rows, monkeypatch):
    monkeypatch.setattr(combine, "BLOCK", 5)  # in pieces
    stacked = drawn(rows, rows)
    assert median(NOBODY, torch.tensor(stacked)).numpy() == pytest.approx(np.median(stacked, axis=0), rel=1e-5)
    for trim in (0.0, 0.1, 0.25, 0.4, 0.49):
        found = Trimmed(trim)(NOBODY, torch.tensor(stacked)).numpy()
        assert found == pytest.approx(scipy.stats.trim_mean(stacked, trim, axis=0), rel=1e-4, abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 9999), st.integers(3, 15), st.floats(-1e6, 1e6))
def test_with_fewer_than_half_hostile_every_coordinate_stays_among_the_honest(seed, rows, value):
    draw = np.random.default_rng(seed)
    wrong = int(draw.integers(0, (rows - 1) // 2 + 1))
    honest = draw.normal(size=(rows - wrong, 6))
    hostile = value * draw.normal(size=(wrong, 6))
    stacked = torch.tensor(np.concatenate([hostile, honest]))
    for rule in (median, Trimmed((wrong + 0.5) / rows if 2 * wrong + 1 < rows else wrong / rows)):
        found = rule(NOBODY, stacked).numpy()
        assert (found >= honest.min(0) - 1e-12).all() and (found <= honest.max(0) + 1e-12).all()


def test_nothing_to_combine_stays_nothing():
    assert median(NOBODY, torch.zeros(4, 0)).shape == (0,)


def test_the_default_is_the_one_mean_and_others_reach_mix_mean_and_server():
    assert Defence().combiner is weighted_sum and combiner("mean") is weighted_sum
    task = Task(lambda: TwoNN(6, 5, 3))

    def model(name, **more):
        *_, last = simulate(
            catalog.build(name), task, FEDERATION, rounds=1, seed=1, training=Training(batch=4, lr=0.1),
            executor="serial", **more,
        )  # fmt: skip
        return last.state.broadcast

    for name in ("fedavg", "scaffold"):
        plain, robust = model(name), model(name, defence=Defence(combine="median"))
        start = task.init(0)["theta"]
        assert not torch.equal(plain["theta"], robust["theta"]) and not torch.equal(start, robust["theta"])
    assert not torch.equal(plain["control"], robust["control"])


@pytest.mark.parametrize(
    ("name", "mixing", "message"),
    [
        (
            "aaggff-d",
            None,
            "run: combine=median has no place for weights, and AAggFFDevice makes some; use mixing=by-size or uniform",
        ),
        (
            "fedavg",
            "krum",
            "run: combine=median has no place for weights, and Krum makes some; use mixing=by-size or uniform",
        ),
        (
            "fedevg",
            None,
            "run: combine=median is for uploads that are models; Energy sends num and den, which mean something as "
            "sums only",
        ),
        ("local", None, "run: combine=median is for uploads that are models; Local sends nothing"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_line(name, mixing, message):
    with pytest.raises(FedchordError) as caught:
        check_combine("median", catalog.build(name, mixing=mixing))
    assert str(caught.value) == message


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(FedchordError, match=r"unknown combine 'medain'; did you mean 'median'\?"):
        combiner("medain")
