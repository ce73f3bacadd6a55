"""The projection and the quadratic problem against quadprog, brute force and hand-computed cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import quadprog
import torch

from fedchord.check import FedchordError
from fedchord.mixing.online import simplex
from fedchord.mixing.online.simplex import Spread, minimise, project, residual


def reference(matrix, linear, low, high, total=1.0):
    """The same problem by quadprog (Goldfarb and Idnani's dual method)."""
    n = len(linear)
    constraints = np.concatenate([np.ones((1, n)), np.eye(n), -np.eye(n)]).T
    bounds = np.concatenate([[total], np.broadcast_to(low, n), -np.broadcast_to(high, n)])
    return quadprog.solve_qp(matrix.numpy(), -linear.numpy(), constraints, bounds, meq=1)[0]


def draw(seed: int, boxed: bool):
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 25, (1,), generator=generator))
    factor = torch.randn(n, n, generator=generator, dtype=torch.float64)
    matrix = factor @ factor.t() + 0.05 * torch.eye(n)
    linear = 3 * torch.randn(n, generator=generator, dtype=torch.float64)
    static = torch.rand(n, generator=generator, dtype=torch.float64)
    static = static / static.sum()
    if not boxed:
        return matrix, linear, torch.zeros_like(static), torch.ones_like(static), static
    width = float(torch.rand(1, generator=generator)) / 2
    return matrix, linear, (static - width).clamp_min(0), (static + width).clamp_max(1), static


@pytest.mark.parametrize("boxed", [False, True])
def test_quadratic_problems_match_quadprog(boxed):
    for seed in range(150):
        matrix, linear, low, high, start = draw(seed, boxed)
        p = minimise(matrix, linear, low, high, start=start if seed % 2 else None)
        assert np.allclose(p, reference(matrix, linear, low, high), atol=1e-8), seed
        assert residual(matrix, linear, p, low, high) < 1e-8
        assert abs(float(p.sum()) - 1) < 1e-12 and (p >= low).all() and (p <= high).all()


def test_the_primal_method_alone_finds_the_same(monkeypatch):
    monkeypatch.setattr(simplex, "_pivots", lambda *_: None)
    for seed in range(60):
        matrix, linear, low, high, start = draw(seed, seed % 2 == 1)
        p = minimise(matrix, linear, low, high, start=start)
        assert np.allclose(p, reference(matrix, linear, low, high), atol=1e-8), seed


def test_on_the_simplex_pivoting_needs_no_help(monkeypatch):
    """Random problems, near-singular ones and starts in corners: few faces, and never the second method."""
    faces, on_face = [0], simplex._on_face

    def counted(*args):
        faces[0] += 1
        return on_face(*args)

    monkeypatch.setattr(simplex, "_on_face", counted)
    monkeypatch.setattr(simplex, "_primal_sets", None)
    generator, most = torch.Generator().manual_seed(9), 0
    for seed in range(200):
        matrix, linear, _, _, start = draw(seed, False)
        n = len(linear)
        if seed % 3 == 1:
            thin = torch.randn(max(1, n // 4), n, generator=generator, dtype=torch.float64)
            matrix = thin.t() @ thin + 1e-6 * torch.eye(n, dtype=torch.float64)
        if seed % 3 == 2:
            start = torch.eye(n, dtype=torch.float64)[seed % n]
        faces[0] = 0
        p = minimise(matrix, linear, start=start)
        most = max(most, faces[0])
        assert residual(matrix, linear, p) < 1e-8 and abs(float(p.sum()) - 1) < 1e-12 and (p >= 0).all()
    assert most <= 30


@pytest.mark.parametrize("boxed", [False, True])
def test_a_spread_is_the_matrix_it_stands_for(boxed):
    generator = torch.Generator().manual_seed(4)
    for seed in range(60):
        _, linear, low, high, start = draw(seed, boxed)
        rows = torch.randn(1 + seed % 5, len(linear), generator=generator, dtype=torch.float64)
        spread = Spread(0.3, rows)
        whole = 0.3 * np.eye(len(linear)) + rows.numpy().T @ rows.numpy()
        assert np.allclose(spread.whole(), whole, atol=1e-14)
        p = minimise(spread, linear, low, high, start=start)
        assert np.allclose(p, reference(torch.from_numpy(whole), linear, low, high), atol=1e-8), seed
        assert residual(spread, linear, p, low, high) < 1e-8
        assert residual(spread, linear, start, low, high) == pytest.approx(
            residual(torch.from_numpy(whole), linear, start, low, high)
        )


def test_one_exchange_at_a_time_ends_at_the_same_point(monkeypatch):
    """Murty's rule alone."""
    monkeypatch.setattr(simplex, "PATIENCE", -1)
    monkeypatch.setattr(simplex, "_primal_sets", None)
    for seed in range(40):
        matrix, linear, low, high, start = draw(seed, False)
        assert np.allclose(minimise(matrix, linear, start=start), reference(matrix, linear, low, high), atol=1e-8), seed


def test_the_residual_sees_a_wrong_answer():
    matrix, linear, *_, start = draw(4, False)
    p = minimise(matrix, linear)
    assert residual(matrix, linear, p) < 1e-10
    assert residual(matrix, linear, start) > 1e-2
    assert residual(matrix, linear, p * 1.01) > 5e-3
    assert residual(matrix, linear + torch.linspace(0, 1, len(p), dtype=torch.float64), p) > 1e-3


def test_small_quadratic_problems_by_hand():
    eye = torch.eye(2, dtype=torch.float64)
    assert minimise(eye, torch.tensor([0.0, 0.5])).tolist() == pytest.approx([0.75, 0.25])
    assert minimise(eye, torch.tensor([0.0, 3.0])).tolist() == [1.0, 0.0]
    assert minimise(torch.eye(1), torch.tensor([5.0])).tolist() == [1.0]
    corner = torch.tensor([0.7, 0.3], dtype=torch.float64)
    assert minimise(eye, torch.tensor([0.0, 3.0]), corner, corner).tolist() == corner.tolist()


def test_projection_matches_quadprog_and_brute_force():
    for seed in range(100):
        _, values, low, high, _ = draw(seed, seed % 2 == 1)
        p = project(values, low, high)
        assert np.allclose(p, reference(torch.eye(len(p), dtype=torch.float64), -values, low, high), atol=1e-9), seed
        assert abs(float(p.sum()) - 1) < 1e-12
    values = torch.tensor([0.9, 0.3, -0.4], dtype=torch.float64)
    grid = [i / 200 for i in range(201)]
    near = min(
        ((a, b, 1 - a - b) for a, b in itertools.product(grid, grid) if a + b <= 1 + 1e-12),
        key=lambda p: sum((x - v) ** 2 for x, v in zip(p, values.tolist(), strict=True)),
    )
    assert project(values).tolist() == pytest.approx(near, abs=6e-3)
    assert project(values).tolist() == pytest.approx([0.8, 0.2, 0.0])


def test_projection_survives_huge_numbers():
    assert project(torch.tensor([1e100, 3.0, 1e100], dtype=torch.float64)).tolist() == [0.5, 0.0, 0.5]
    assert project(torch.tensor([-1e300, 0.2, 0.1], dtype=torch.float64)).tolist() == pytest.approx([0, 0.55, 0.45])


def test_bounds_without_a_point_are_refused():
    with pytest.raises(FedchordError, match="no point between the bounds sums to 1"):
        project(torch.zeros(3), 0.0, 0.3)
