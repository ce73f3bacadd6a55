"""The Langevin step of the server: schedule, variance, clamp, divergence."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from fedchord.check import FedchordError
from fedchord.core.rules import RoundInfo, Update
from fedchord.servers.langevin import Langevin, repulsion


def plain(beta: float = 10.0, beta_end: float = 0.01, delta: float = 0.01, **changes) -> Langevin:
    """The step without preconditioning and repulsion."""
    return Langevin(
        beta, beta_end, delta, **({"adapt": 0.0, "momentum": 0.0, "repel": 0.0, "repel_end": 0.0} | changes)
    )


def info(round: int, rounds: int, key: int = 5) -> RoundInfo:
    return RoundInfo(round, rounds, num_clients=3, cohort=3, lr=0.1, epochs=1, key=key)


def step(rule: Langevin, x: torch.Tensor, gradient: torch.Tensor, round: int = 0, rounds: int = 5) -> torch.Tensor:
    den = torch.linspace(0.5, 2, len(x))
    mix = {"num": gradient * den.reshape(-1, *[1] * (x.ndim - 1)), "den": den}
    return rule.step({"x": x}, Update(mix), {}, info(round, rounds, round))[0]["x"]


def test_the_schedule_is_half_a_cosine():
    rule = Langevin(beta=10.0, beta_end=0.01)
    rates = [rule.rate(info(t, 500)) for t in range(500)]
    assert rates[0] == pytest.approx(10) and rates[-1] == pytest.approx(0.01)
    assert all(a > b for a, b in itertools.pairwise(rates))
    assert rule.rate(info(2, 5)) == pytest.approx((10 + 0.01) / 2)  # half-way
    assert rule.rate(info(1, 4)) == pytest.approx(0.01 + 9.99 * 0.75)  # cos(pi / 3) = 1 / 2
    assert rule.rate(info(0, 1)) == pytest.approx(10)  # a single round


def test_the_other_schedule_stays_high_and_falls_at_the_end():
    """Values of the published curve from 10 to 1 over 500 rounds, as they were read off it."""
    rule = Langevin(beta=10.0, beta_end=1.0, schedule="nichol")
    rates = {t: rule.rate(info(t, 500)) for t in (0, 100, 250, 450, 490, 499)}
    assert rates[0] == pytest.approx(10) and rates[499] == pytest.approx(1)
    seen = {100: 9.98, 250: 9.94, 450: 9.65, 490: 8.3}
    assert all(rates[t] == pytest.approx(value, abs=0.06) for t, value in seen.items())


def test_preconditioned_steps_have_a_length_of_their_own():
    """By hand: every sample's gradient over the root of a moving average of its mean square."""
    generator = torch.Generator().manual_seed(1)
    x, state, rule = torch.full((2, 3, 4), 0.5), {}, plain(0.01, 0.01, 0.0, adapt=0.9, momentum=0.6)
    m, v, expected = torch.zeros(2, 3, 4), torch.zeros(2, 3), x.clone()
    for t in range(1, 7):
        g = 50 * torch.randn(2, 3, 4, generator=generator)
        mix = {"num": g * 3, "den": torch.full((2, 3), 3.0)}
        moved, state = rule.step({"x": x}, Update(mix), state, info(t - 1, 6))
        x = moved["x"]
        for c in range(2):
            for j in range(3):
                m[c, j] = 0.6 * m[c, j] + 0.4 * g[c, j]
                v[c, j] = 0.9 * v[c, j] + 0.1 * sum(float(value) ** 2 for value in g[c, j]) / 4
                length = math.sqrt(float(v[c, j]) / (1 - 0.9**t))
                expected[c, j] -= 0.01 * (m[c, j] / (1 - 0.6**t)) / length
        assert torch.allclose(x, expected, atol=1e-6)


def test_the_scale_of_the_energies_does_not_matter():
    g = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    moved = [
        Langevin(delta=0.0).step(
            {"x": torch.full((2, 3, 4), 0.5)}, Update({"num": scale * g, "den": torch.ones(2, 3)}), {}, info(0, 5)
        )[0]["x"]
        for scale in (1e-3, 1e3)
    ]
    assert torch.allclose(*moved)
    nothing = Update({"num": torch.zeros(2, 3, 4), "den": torch.ones(2, 3)})
    still = Langevin(delta=0.0, repel=0.0, repel_end=0.0).step({"x": g}, nothing, {}, info(0, 5))[0]["x"]
    assert torch.equal(still, g.clamp(0, 1))


def test_momentum_alone_is_a_moving_average():
    x, rule, state = torch.full((1, 2, 2), 0.5), plain(0.1, 0.1, 0.0, momentum=0.5), {}
    ones = {"num": torch.ones(1, 2, 2), "den": torch.ones(1, 2)}
    for t, expected in enumerate((0.4, 0.3)):  # of equal gradients: themselves
        moved, state = rule.step({"x": x}, Update(ones), state, info(t, 2))
        x = moved["x"]
        assert torch.allclose(x, torch.full((1, 2, 2), expected))
    moved, _ = rule.step({"x": x}, Update(ones | {"num": torch.zeros(1, 2, 2)}), state, info(2, 3))
    m = (1 - 0.5**2) * 0.5  # the sum before, halved
    assert torch.allclose(moved["x"], torch.full((1, 2, 2), 0.3 - 0.1 * m / (1 - 0.5**3)))


def test_the_step_divides_and_descends():
    x, gradient = torch.full((4, 1, 2, 2), 0.5), torch.randn(4, 1, 2, 2) / 100
    moved = step(plain(2.0, 1.0, 0.0), x, gradient)
    assert torch.allclose(moved, x - 2 * gradient)
    assert torch.equal(step(plain(0.0, 0.0, 0.0), x, gradient), x)


def test_noise_has_the_given_scale_and_is_new_in_every_round():
    rule, x = plain(0.0, 0.0, 0.01), torch.full((100, 200), 0.5)
    a, b = (step(rule, x, torch.zeros_like(x), t) - x for t in (0, 1))
    assert float(a.std()) == pytest.approx(0.01, rel=0.03) and abs(float(a.mean())) < 2e-4
    assert abs(float((a * b).mean())) < 1e-5


def test_samples_stay_in_range():
    x, gradient = torch.rand(6, 3), torch.randn(6, 3) * 100
    moved = step(plain(), x, gradient)
    assert moved.min() == 0 and moved.max() == 1
    wide = step(plain(margin=0.5), x, gradient)
    assert wide.min() == -0.5 and wide.max() == 1.5


def test_the_walk_on_a_gaussian_energy_has_the_right_variance():
    """E = (x - 1/2)^2 / (2 s^2) with noise sqrt(2 beta): variance s^2 / (1 - beta / (2 s^2)) of the discrete walk."""
    s, beta = 0.05, 0.001
    rule = plain(beta, beta, math.sqrt(2 * beta))
    x = torch.full((100, 200), 0.5)
    for t in range(60):
        x = step(rule, x, (x - 0.5) / s**2, t, 60)
    assert float(x.var()) == pytest.approx(s**2 / (1 - beta / (2 * s**2)), rel=0.05)
    assert abs(float(x.var()) / s**2 - 1) > 0.15  # the step is long enough to tell it from s^2


def test_repulsion_is_stein_s_kernel_gradient_within_a_class():
    x = torch.rand(2, 5, 1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rows = x.reshape(2, 5, 6)
    for c in range(2):
        squares = [float(((a - b) ** 2).sum()) for a, b in itertools.combinations(rows[c], 2)]
        width = sorted(squares)[(len(squares) - 1) // 2]
        for j in range(5):
            point = rows[c].clone().requires_grad_()
            kernels = torch.exp(-((point - rows[c, j]) ** 2).sum(1) * math.log(6) / width)
            (gradient,) = torch.autograd.grad(kernels.sum(), point)  # sum over l of the gradient of k(x_l, x_j) in x_l
            expected = gradient.sum(0) / gradient.sum(0).square().mean().sqrt()
            assert torch.allclose(repulsion(x)[c, j].flatten(), expected)


def test_repulsion_parts_neighbours_and_fades():
    x = torch.tensor([[[0.45, 0.5], [0.55, 0.5]]])
    rule = plain(0.01, 0.01, 0.0, repel=2.0, repel_end=1.0)
    for t, force in ((0, 2.0), (4, 1.0)):
        moved = step(rule, x, torch.zeros_like(x), t)
        assert torch.allclose(moved, x + 0.01 * force * torch.tensor([[[-1.0, 0], [1.0, 0]]]) * math.sqrt(2))
    assert torch.equal(repulsion(torch.full((2, 3, 4), 0.5)), torch.zeros(2, 3, 4))
    assert torch.equal(repulsion(torch.rand(3, 1, 4)), torch.zeros(3, 1, 4))


def test_divergence_names_the_round():
    x = torch.rand(3, 2)
    with pytest.raises(FedchordError, match="diverged in round 4; the last good set is that of round 3"):
        step(plain(), x, torch.full((3, 2), math.nan), 3)


def test_mistakes_are_told():
    for name in ("beta", "beta_end", "delta", "margin", "repel"):
        with pytest.raises(FedchordError, match=rf"Langevin: {name} must be at least 0, got -1"):
            Langevin(**{name: -1})
