"""Frechet distance and KID against other formulas; ranges; real samples beside."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import linalg

from fedchord import federate, load
from fedchord.check import FedchordError
from fedchord.data import Iid
from fedchord.synthetic.features import Extractor
from fedchord.synthetic.quality import Real, frechet, kid, pick, quality, reference, same_range
from fedchord.synthetic.set import SyntheticSet

GENERATOR = torch.Generator().manual_seed(3)


def normal(rows: int, columns: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    mix = torch.randn(columns, columns, generator=GENERATOR, dtype=torch.float64)
    return scale * torch.randn(rows, columns, generator=GENERATOR, dtype=torch.float64) @ mix + shift


def by_matrix_root(a: torch.Tensor, b: torch.Tensor) -> float:
    """The textbook formula, with scipy's matrix square root and numpy's covariance."""
    means = [x.numpy().mean(0) for x in (a, b)]
    first, second = (np.cov(x.numpy(), rowvar=False) for x in (a, b))
    root = linalg.sqrtm(first @ second)
    return float(((means[0] - means[1]) ** 2).sum() + np.trace(first + second - 2 * np.real(root)))


@pytest.mark.parametrize(("n", "m"), [(50, 80), (500, 40), (40, 40)])
def test_frechet_is_the_formula_with_matrix_roots(n, m):
    a, b = normal(n, 7), normal(m, 7, scale=0.5, shift=2.0)
    assert frechet(a, b) == pytest.approx(by_matrix_root(a, b), rel=1e-9)


def white(rows: int, columns: int) -> torch.Tensor:
    """Rows with mean 0 and covariance exactly I."""
    x = torch.randn(rows, columns, generator=GENERATOR, dtype=torch.float64)
    q, _ = torch.linalg.qr(x - x.mean(0))
    return q * (rows - 1) ** 0.5


def test_frechet_of_diagonal_covariances_has_a_closed_form():
    s, t = torch.tensor([1.0, 2.0, 0.5]).double(), torch.tensor([3.0, 0.1, 0.5]).double()
    shift = torch.tensor([1.0, -2.0, 0.0]).double()
    a, b = white(60, 3) * s, white(30, 3) * t + shift
    expected = float((shift**2).sum() + ((s - t) ** 2).sum())  # 5 + 4 + 3.61
    assert expected == pytest.approx(12.61) and frechet(a, b) == pytest.approx(expected, abs=1e-9)


def test_fewer_samples_than_features_is_no_problem_and_equal_sets_are_at_zero():
    a = normal(10, 30)
    assert frechet(a, a) == pytest.approx(0, abs=1e-9)
    assert frechet(a, a + 1) == pytest.approx(30, rel=1e-9)  # only the means differ, by 1 in each of 30 features


def test_few_samples_of_one_distribution_are_far_by_bias():
    small, large = torch.randn(20, 10, generator=GENERATOR), torch.randn(2000, 10, generator=GENERATOR)
    many = torch.randn(2000, 10, generator=GENERATOR)
    assert frechet(small, large) > 5 * frechet(many, large)


def by_double_loop(a: torch.Tensor, b: torch.Tensor) -> float:
    def k(x: torch.Tensor, y: torch.Tensor) -> float:
        return (sum(float(p) * float(q) for p, q in zip(x, y, strict=True)) / len(x) + 1) ** 3

    within = [
        sum(k(x[i], x[j]) for i, j in itertools.permutations(range(len(x)), 2)) / (len(x) * (len(x) - 1))
        for x in (a, b)
    ]
    across = sum(k(p, q) for p in a for q in b) / (len(a) * len(b))
    return sum(within) - 2 * across


def test_kid_is_the_double_loop(monkeypatch):
    a, b = normal(9, 4), normal(13, 4, shift=0.7)
    expected = by_double_loop(a, b)
    assert kid(a, b) == pytest.approx(expected, rel=1e-10)
    monkeypatch.setattr("fedchord.synthetic.quality.PAIRS", 20)  # in pieces
    assert kid(a, b) == pytest.approx(expected, rel=1e-10)


def test_kid_of_one_distribution_is_zero_on_average():
    values = [kid(torch.randn(15, 3, generator=GENERATOR), torch.randn(20, 3, generator=GENERATOR)) for _ in range(300)]
    found = torch.tensor(values)
    assert abs(float(found.mean())) < 4 * float(found.std()) / 300**0.5 and (found < 0).any()


@pytest.mark.parametrize("measure", [frechet, kid])
def test_wrong_features_are_refused(measure):
    with pytest.raises(FedchordError, match="both sets must have the same features, got 3 and 4"):
        measure(torch.rand(5, 3), torch.rand(5, 4))
    with pytest.raises(FedchordError, match="two rows or more"):
        measure(torch.rand(1, 3), torch.rand(5, 3))
    with pytest.raises(FedchordError, match="finite"):
        measure(torch.rand(5, 3), torch.full((5, 3), torch.nan))


# -- against real rows ---------------------------------------------------------------------------------------------

DIGITS = federate(load("digits"), Iid(), 4, seed=1)
PLAIN = Extractor("pixels", lambda x: x.flatten(1))


def digits_set(spc: int = 6, key: int = 5) -> SyntheticSet:
    real = pick(DIGITS, spc, key)
    return SyntheticSet(real.x, real.y, 0.0, 1.0, 10)


def test_real_rows_are_picked_by_class_from_training_rows_only():
    real = pick(DIGITS, 6, 5)
    assert torch.bincount(real.y).tolist() == [6] * 10 and real.y.tolist() == sorted(real.y.tolist())
    training = {tuple(row.flatten().tolist()) for row in DIGITS.columns["x"][DIGITS.train.rows]}
    assert all(tuple(row.flatten().tolist()) in training for row in real.x)
    assert not torch.equal(real.x, pick(DIGITS, 6, 6).x)


def test_the_reference_is_the_clients_test_rows_where_there_is_no_official_part():
    real = reference(DIGITS)
    assert len(real) == int(DIGITS.test.sizes.sum()) and real.which == "all clients' test rows"
    assert len(reference(DIGITS, 50)) == 50


def test_real_samples_are_as_near_as_the_row_beside_says_and_noise_is_far():
    good = quality(digits_set(), DIGITS, PLAIN)
    low, spread = good.real_frechet
    assert abs(good.frechet - low) < 6 * spread + 0.2 * low
    noise = SyntheticSet(torch.rand(60, 1, 8, 8, generator=GENERATOR), digits_set().y, 0.0, 1.0, 10)
    bad = quality(noise, DIGITS, PLAIN)
    assert bad.frechet > 2 * low and bad.kid > 10 * abs(good.kid)
    assert bad.real_frechet == good.real_frechet and bad.distance == "Frechet"


def test_sets_in_different_ranges_are_refused():
    real = reference(DIGITS)
    wide = SyntheticSet(2 * digits_set().x - 1, digits_set().y, -1.0, 1.0, 10)
    with pytest.raises(FedchordError, match="both sets must be in the same range, got the lower ends -1 and 0"):
        same_range(wide, real)
    bytes_ = Real(real.x * 255, real.y, 0.0, 1.0, "bytes")
    with pytest.raises(FedchordError, match=r"real rows: x must lie in \[0, 1\], got values from .* to 255"):
        same_range(digits_set(), bytes_)
    with pytest.raises(FedchordError, match="samples have shape"):
        same_range(SyntheticSet(torch.rand(20, 1, 4, 4), digits_set(2).y, 0.0, 1.0, 10), real)
