"""AAggFF-A against its formulas on whole K-vectors, and its regret against its bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.cohorts import cohort
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from fedchord.check import FedchordError
from fedchord.core.rules import RoundInfo
from fedchord.mixing.adaptive import AAggFFAdaptive


def info(t: int, clients: int, size: int) -> RoundInfo:
    return RoundInfo(t, 1000, clients, size, 0.1, 1, 0)


class Oracle:
    """The game with a vector of all K clients: true decisions, true gaps of the mixed gain, regret by the discounts."""

    def __init__(self, clients: int, size: int, step: float, keep: float) -> None:
        self.fade, self.step, self.spread = keep ** (size / clients), step, math.log(clients)
        self.sums, self.total, self.regret = np.zeros(clients), 0.0, np.zeros(clients)

    def decision(self) -> np.ndarray:
        exponents = self.spread / max(self.spread / self.step, self.total) * self.sums
        return np.exp(exponents - exponents.max()) / np.exp(exponents - exponents.max()).sum()

    def play(self, ids: np.ndarray, losses: np.ndarray) -> tuple[float, float]:
        """One round: the gap as the formula has it, and the true one, which it must not be below."""
        p, d = self.decision(), np.zeros(len(self.sums))
        u = stats.norm.cdf(losses / losses.mean() - 1)
        d[ids] = u - u.mean()
        eta = self.spread / max(self.spread / self.step, self.total)
        x = eta / self.fade
        bound = np.minimum(1, np.exp(eta * self.sums) / len(d)) @ (np.exp(x * d) - 1 - x * d) / x
        gap, true = min(d.max() - d.min(), bound), np.log(p @ np.exp(x * d)) / x - p @ d
        self.regret = self.fade * self.regret + d - p @ d
        self.sums, self.total = self.fade * self.sums + d, self.fade * self.total + gap
        return gap, true


@pytest.mark.parametrize(("step", "keep"), [(1.0, 0.01), (4.0, 1.0), (30.0, 0.5)])
def test_weights_and_bound_by_whole_vectors(step, keep):
    generator, rule, oracle = np.random.default_rng(3), AAggFFAdaptive(step=step, keep=keep), Oracle(9, 3, step, keep)
    state = rule.init(9)
    for t in range(60):
        ids = generator.choice(9, 3, replace=False)
        losses = generator.gamma(1.0, size=3) * (1 + ids)
        ceiling = max(math.log(9) / step, oracle.total)
        oracle.play(ids, losses)
        mix, state = rule.weigh(state, cohort(losses, ids=ids.tolist()), info(t, 9, 3))
        p = oracle.decision()[ids]
        assert mix.shares.numpy() == pytest.approx(p / p.sum(), rel=1e-9)
        assert torch.equal(mix.shares, mix.coefficients)
        assert mix.log["bound"] == pytest.approx(oracle.fade * ceiling + oracle.total)
        assert mix.log["step"] == pytest.approx(math.log(9) / max(math.log(9) / step, oracle.total))
    assert step == 1.0 or mix.log["step"] < step  # the gaps took the step down


SEQUENCES = {
    "random": lambda t, p, g: g.gamma(1.0, size=len(p)),
    "one loud client": lambda t, p, g: np.where(np.arange(len(p)) == 2, 9.0, 0.01),
    "one, then another": lambda t, p, g: np.where(np.arange(len(p)) == (1 if t < 60 else 4), 9.0, 0.01),
    "the least weighed": lambda t, p, g: np.where(np.arange(len(p)) == p.argmin(), 9.0, 0.01),
    "in turn": lambda t, p, g: np.where(np.arange(len(p)) == t % 2, 9.0, 0.01),
}


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("size", [7, 3])
@pytest.mark.parametrize(("step", "keep"), [(1.0, 1.0), (20.0, 1.0), (1.0, 0.3), (20.0, 0.3)])
def test_regret_is_within_the_bound(name, size, step, keep):
    clients, generator = 7, np.random.default_rng(4)
    rule, oracle = AAggFFAdaptive(step=step, keep=keep), Oracle(clients, size, step, keep)
    state = rule.init(clients)
    for t in range(120):
        ids = np.sort(generator.choice(clients, size, replace=False))
        losses = SEQUENCES[name](t, oracle.decision(), generator)[ids]
        gap, true = oracle.play(ids, losses)
        mix, state = rule.weigh(state, cohort(losses, ids=ids.tolist()), info(t, clients, size))
        assert true <= gap + 1e-12
        assert oracle.regret.max() <= mix.log["bound"] + 1e-12
    if keep == 1:
        assert mix.log["bound"] < 0.8 * 120 * (
            0.84 if size == clients else 0.6
        )  # says more than that gains are bounded


def test_keep_zero_is_a_softmax_of_this_round():
    rule = AAggFFAdaptive(keep=0.0, cdf="exponential", step=2.0)
    state = rule.init(6)
    for t in range(5):
        losses = np.random.default_rng(t).gamma(2.0, size=4)
        mix, state = rule.weigh(state, cohort(losses, ids=[5, 0, 2, 1]), info(t, 6, 4))
        rate = min(2.0, math.log(6) / float(state["gaps"]))
        expected = np.exp(rate * (1 - np.exp(-losses / losses.mean())))
        assert mix.shares.numpy() == pytest.approx(expected / expected.sum())


def test_a_round_costs_what_the_cohort_costs():
    """No tensor of a round has K entries, and a million clients get the weights of the formula."""

    class Widest(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.seen = max(self.seen, out.numel())
            return out

    rule, clients = AAggFFAdaptive(), 1_000_000
    with Widest() as widest:
        state = rule.init(clients)
        for t in range(30):
            mix, state = rule.weigh(
                state, cohort([1.0, 2.0, 3.0], ids=[7 * t, 7 * t + 1, 999_999]), info(t, clients, 3)
            )
    assert 0 < widest.seen <= 2 * 3 * 30
    assert float(mix.shares.sum()) == pytest.approx(1) and mix.shares.argmax() == 2


def test_many_visits_do_not_overflow():
    rule = AAggFFAdaptive()
    state = rule.init(3)
    for t in range(700):
        mix, state = rule.weigh(state, cohort([1.0, 2.0, 3.0]), info(t, 3, 3))
    assert mix.shares.isfinite().all() and all(table.isfinite().all() for table in state.values())


def test_bad_input():
    for options, said in (
        ({"step": 0}, "AAggFFAdaptive: step must be above 0, got 0"),
        ({"keep": 2}, "AAggFFAdaptive: keep must be between 0 and 1, got 2"),
        ({"centre": "mode"}, "AAggFFAdaptive: centre must be one of mean, median, got 'mode'"),
    ):
        with pytest.raises(FedchordError) as error:
            AAggFFAdaptive(**options)
        assert str(error.value) == said
    rule = AAggFFAdaptive()
    with pytest.raises(FedchordError, match="losses must be at least 0, got -1 from client 1"):
        rule.weigh(rule.init(2), cohort([1.0, -1.0]), info(0, 2, 2))
    with pytest.raises(FedchordError, match="client 3 twice"):
        rule.weigh(rule.init(5), cohort([1.0, 1.0], ids=[3, 3]), info(0, 5, 2))
    for losses in ([math.nan, 1.0, 2.0], [math.inf, 1.0, 2.0], [0.0, 0.0, 0.0], [1e300, 1.0, 0.0]):
        mix, _ = rule.weigh(rule.init(3), cohort(losses), info(0, 3, 3))
        assert mix.shares.isfinite().all() and float(mix.shares.sum()) == pytest.approx(1)
    alone, _ = rule.weigh(rule.init(1), cohort([2.0]), info(0, 1, 1))
    assert alone.shares.tolist() == [1.0]
