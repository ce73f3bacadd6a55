"""Private decisions: the price by numerical integration and by counting, the weights by whole vectors, the regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.cohorts import cohort
from scipy import integrate, stats

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.core.rules import RoundInfo
from fedchord.mixing.perturbed import AAggFFPrivate, spent


def info(t: int, clients: int, key: int = 0) -> RoundInfo:
    return RoundInfo(t, 1000, clients, clients, 0.1, 1, rng.fold(key, t))


# -- the price -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("reports", [1, 9])
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_epsilon_by_integration(noise, reports, delta):
    """delta is the mass by which one density exceeds e^epsilon times the other: the reports of a client whose losses
    are the least against one whose losses are the highest, of which the sum says all."""
    epsilon = spent(noise, reports, delta)
    far, width = float(reports), noise * math.sqrt(reports)

    def excess(y: float) -> float:
        return max(0.0, stats.norm.pdf(y, far, width) - math.exp(epsilon) * stats.norm.pdf(y, 0, width))

    edge = far / 2 + epsilon * width**2 / far
    mass, _ = integrate.quad(excess, edge, edge + 12 * width, limit=200)
    assert mass == pytest.approx(delta, rel=1e-4)
    rho = reports / (2 * noise**2)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


def test_more_noise_costs_less_and_more_reports_cost_more():
    assert spent(1.0, 0, 1e-5) == 0
    assert spent(2.0, 4, 1e-5) == pytest.approx(spent(1.0, 1, 1e-5))
    assert spent(1.0, 1, 1e-5) < spent(1.0, 2, 1e-5) < spent(0.5, 2, 1e-5)
    assert spent(0.01, 100, 1e-5) > 1e5  # and no overflow


def test_epsilon_by_counting():
    """Reports of the two losses that differ most; the rate of the best test does not exceed what (epsilon, delta)
    allows, and reaches it."""
    count, delta = 20_000, 0.05
    least, most = torch.zeros(count), torch.full((count,), math.inf)
    rule = AAggFFPrivate(noise=1.25, cdf="weibull")
    low, high = (
        rule.report(losses, rng.normal(seed, (count,)).double()).numpy() for seed, losses in ((1, least), (2, most))
    )
    epsilon = spent(1.25, 1, delta)

    def best(epsilon: float) -> float:
        """The highest P(high > edge) - e^epsilon P(low > edge)."""
        edges = np.linspace(-3, 5, 81)
        return max((high > edge).mean() - math.exp(epsilon) * (low > edge).mean() for edge in edges)

    assert best(epsilon) == pytest.approx(delta, abs=0.03)
    assert best(epsilon / 2) > delta + 0.06
    assert stats.kstest(low / 1.25, "norm").pvalue > 1e-3 and stats.kstest((high - 1) / 1.25, "norm").pvalue > 1e-3


# -- the decisions ---------------------------------------------------------------------------------------------------


def test_the_weights_by_whole_vectors():
    rule = AAggFFPrivate(noise=0.3, scale=2.0, step=0.5)
    losses = np.random.default_rng(1).gamma(2.0, size=(6, 3))
    visits = [[0, 2, 5], [2, 3, 6], [0, 1, 6], [4, 5, 6], [0, 2, 6], [1, 2, 3]]
    state, sums = rule.init(7), np.zeros(7)
    for t, (row, ids) in enumerate(zip(losses, visits, strict=True)):
        y = stats.norm.cdf(row / 2.0 - 1) + 0.3 * rng.normal(rng.fold(3, t), (3,)).double().numpy()
        sums[ids] += y - y.mean()
        weights = np.exp(math.sqrt(math.log(7) / ((1 + 4 * 0.09) * (t + 2))) * sums)
        order = [2, 0, 1]
        shuffled = cohort(row[order], ids=[ids[i] for i in order])
        mix, state = rule.weigh(state, shuffled, info(t, 7, key=3))
        assert mix.shares.numpy() == pytest.approx((weights / weights[ids].sum())[ids][order], rel=1e-6)
        assert torch.equal(mix.shares, mix.coefficients)
    assert mix.log["epsilon"] == spent(0.3, 1, 1e-5) and mix.log["epsilon_total"] == spent(0.3, 6, 1e-5)


def test_a_report_depends_on_the_own_loss_only():
    """The sums of two clients in one cohort differ by the difference of their reports, whoever else is there."""
    rule = AAggFFPrivate(noise=0.5)

    def difference(other: float) -> float:
        _, state = rule.weigh(rule.init(3), cohort([0.4, 1.3, other]), info(0, 3))
        sums = state["late"][1]
        return float(sums[1] - sums[0])

    assert difference(0.0) == pytest.approx(difference(1e9), abs=1e-12)


SEQUENCES = {
    "random": lambda t, p, g: g.gamma(1.0, size=len(p)),
    "one loud client": lambda t, p, g: np.where(np.arange(len(p)) == 2, 9.0, 0.0),
    "one, then another": lambda t, p, g: np.where(np.arange(len(p)) == (1 if t < 30 else 4), 9.0, 0.0),
    "the least weighed": lambda t, p, g: np.where(np.arange(len(p)) == p.argmin(), 9.0, 0.0),
}


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize(("noise", "step"), [(0.05, 1.0), (1.0, 1.0), (0.05, 0.2)])
def test_expected_regret_is_within_the_bound(name, noise, step):
    rule, clients, rounds = AAggFFPrivate(noise=noise, step=step, cdf="weibull"), 6, 60
    generator, repeats, gained = np.random.default_rng(5), 8, np.zeros(6)
    for repeat in range(repeats):
        state, p = rule.init(clients), np.full(clients, 1 / clients)
        for t in range(rounds):
            losses = SEQUENCES[name](t, p, generator)
            response = 1 - np.exp(-(losses**2))
            mix, state = rule.weigh(state, cohort(losses), info(t, clients, key=repeat))
            gained += (response - p @ response) / repeats
            p = mix.shares.numpy()
    assert gained.max() <= mix.log["bound"]
    best = math.sqrt((1 + 4 * noise**2) * rounds * math.log(clients))
    assert mix.log["bound"] == pytest.approx(best * {1.0: 1.0, 0.2: 2.6}[step])
    if name == "one loud client" and step == 1:
        assert gained.max() < (rounds / 4 if noise < 1 else rounds * 5 / 6)  # it learns


def test_bad_input():
    for options, said in (
        ({"noise": 0}, "AAggFFPrivate: noise must be above 0, got 0"),
        ({"scale": -1}, "AAggFFPrivate: scale must be above 0, got -1"),
        ({"delta": 1.0}, "AAggFFPrivate: delta must be above 0 and below 1, got 1.0"),
    ):
        with pytest.raises(FedchordError) as error:
            AAggFFPrivate(**options)
        assert str(error.value) == said
    with pytest.raises(FedchordError, match="normal"):
        AAggFFPrivate(cdf="norml")
    rule = AAggFFPrivate()
    with pytest.raises(FedchordError, match=r"losses must be at least 0, got -1 from client 1"):
        rule.weigh(rule.init(2), cohort([1.0, -1.0]), info(0, 2))
    with pytest.raises(FedchordError, match="client 3 twice"):
        rule.weigh(rule.init(5), cohort([1.0, 1.0], ids=[3, 3]), info(0, 5))
    mix, _ = rule.weigh(rule.init(3), cohort([math.nan, math.inf, 0.0]), info(0, 3))
    assert mix.shares.isfinite().all() and float(mix.shares.sum()) == pytest.approx(1)
    alone, _ = rule.weigh(rule.init(1), cohort([2.0]), info(0, 1))
    assert alone.shares.tolist() == [1.0]
