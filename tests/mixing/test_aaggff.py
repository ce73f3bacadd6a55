"""AAggFF against the thesis' formulas written out in full: scipy for the Newton step, K-vectors for FTRL."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import torch
from helpers.cohorts import cohort, info
from helpers.federations import make_federation
from scipy import optimize, stats

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.core.round import Plan, open_run
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.simulate import simulate
from fedchord.mixing import aaggff
from fedchord.mixing.aaggff import AAggFFDevice, AAggFFSilo
from fedchord.mixing.online import ledger, simplex
from fedchord.models import TwoNN

# -- AAggFF-S --------------------------------------------------------------------------------------------------------


def silo_oracle(losses: np.ndarray, safe: bool) -> list[np.ndarray]:
    """Equation (ons) as printed: the sum of linear terms, (alpha / 2) |p|^2 and (beta / 2) <g, p - p_tau>^2."""
    count = losses.shape[1]
    lip = 1 / count
    alpha, beta = 4 * count * lip, 1 / (4 * lip)
    beta = min(0.5, beta) if safe else beta
    p, past, played = np.full(count, 1 / count), [], []
    for row in losses:
        r = stats.norm.cdf(row / row.mean() - 1) / count
        past.append((-r / (1 + p @ r), p))

        def value(x):
            return (
                sum(g @ x for g, _ in past)
                + alpha / 2 * x @ x
                + beta / 2 * sum((g @ (x - old)) ** 2 for g, old in past)
            )

        found = optimize.minimize(
            value,
            p,
            method="SLSQP",
            bounds=[(0, 1)] * count,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            options={"ftol": 1e-15, "maxiter": 500},
        )
        p = found.x
        played.append(p)
    return played


@pytest.mark.parametrize("safe", [False, True])
def test_newton_steps_follow_the_equation(safe):
    losses = np.random.default_rng(2).gamma(1.0, size=(8, 5)) * np.array([1, 1, 2, 4, 0.2])
    rule = AAggFFSilo(safe=safe)
    state = rule.init(5)
    for t, (row, expected) in enumerate(zip(losses, silo_oracle(losses, safe), strict=True)):
        mix, state = rule.weigh(state, cohort(row), info(t, 5))
        assert mix.shares.numpy() == pytest.approx(expected, abs=2e-6), t
        assert torch.equal(mix.shares, mix.coefficients)
    assert mix.shares.numpy() != pytest.approx(silo_oracle(losses, not safe)[-1], abs=2e-4)


def test_newton_steps_are_solved_exactly(monkeypatch):
    """By the primal-dual method alone: the slower one is not needed here."""
    monkeypatch.setattr(simplex, "_primal_sets", None)
    generator = torch.Generator().manual_seed(1)
    rule = AAggFFSilo(cdf="weibull", track=False)
    state = rule.init(9)
    drift = 4 * torch.rand(9, generator=generator, dtype=torch.float64)
    for t in range(150):
        mix, state = rule.weigh(state, cohort(drift * torch.rand(9, generator=generator).double()), info(t, 9))
        assert mix.log["kkt"] < 1e-8 and abs(float(mix.shares.sum()) - 1) < 1e-12 and (mix.shares >= 0).all()
    assert (mix.shares == 0).any(), "some clients are at the border of the simplex"


def test_rows_and_matrix_give_the_same_newton_steps(monkeypatch):
    """60 clients: by rows for 30 rounds, as a matrix after them; against a matrix from the first round."""
    losses = np.random.default_rng(5).gamma(1.0, size=(36, 60)) * np.linspace(0.2, 4, 60)
    rule = AAggFFSilo(track=False)
    by_rows, kept = rule.init(60), []
    for t, row in enumerate(losses):
        mix, by_rows = rule.weigh(by_rows, cohort(row), info(t, 60))
        assert mix.log["kkt"] < 1e-8 and (len(by_rows["matrix"]) == 0) == (t < 30)
        kept.append(mix.shares)
    monkeypatch.setattr(aaggff, "FEW", 100)
    whole = rule.init(60)
    assert whole["matrix"].shape == (60, 60)
    for t, row in enumerate(losses):
        mix, whole = rule.weigh(whole, cohort(row), info(t, 60))
        assert torch.allclose(mix.shares, kept[t], atol=1e-12), t
    assert torch.allclose(whole["matrix"], by_rows["matrix"], atol=1e-12)


def test_equal_losses_keep_the_weights_uniform():
    silo, device = AAggFFSilo(), AAggFFDevice()
    states = silo.init(4), device.init(9)
    for t in range(5):
        mix, a = silo.weigh(states[0], cohort([0.7] * 4), info(t, 4))
        assert mix.shares.tolist() == pytest.approx([0.25] * 4, abs=1e-12)
        mix, b = device.weigh(states[1], cohort([0.3] * 3, ids=[t, 5, 7] if t != 5 else [1, 5, 7]), info(t, 9, 3))
        assert mix.shares.tolist() == pytest.approx([1 / 3] * 3, abs=1e-12)
        states = a, b


def test_the_decision_charged_was_made_before_the_losses_were_seen():
    rule = AAggFFSilo()
    _, state = rule.weigh(rule.init(3), cohort([1.0, 2.0, 0.5]), info(0))
    p = state["p"]
    for losses in ([3.0, 0.1, 1.0], [0.0, 0.0, 9.0]):
        mix, _ = rule.weigh(state, cohort(losses), info(1))
        assert mix.log["objective"] == pytest.approx(float(p @ torch.tensor(losses).double()))


@pytest.mark.parametrize("rule", [AAggFFSilo(), AAggFFDevice(), AAggFFDevice(imputation="leave-one-out")])
def test_the_given_state_stays_as_it_is(rule):
    state = rule.init(4)
    for t in range(3):
        before = {name: tensor.clone() for name, tensor in state.items()}
        _, after = rule.weigh(state, cohort([1.0, 3.0, 0.2, 0.5]), info(t, 4))
        assert all(torch.equal(before[name], tensor) for name, tensor in state.items())
        assert after.keys() == state.keys()
        state = after


def test_the_order_in_which_clients_report_is_irrelevant_to_the_last_bit():
    rule, left, right = AAggFFDevice(), AAggFFDevice().init(30), AAggFFDevice().init(30)
    for t, (ids, losses) in enumerate(draws(30, 6, 20)):
        turned = np.random.default_rng(t).permutation(6)
        a, left = rule.weigh(left, cohort(losses, ids.tolist()), info(t, 30, 6))
        b, right = rule.weigh(right, cohort(losses[turned], ids[turned].tolist()), info(t, 30, 6))
        assert torch.equal(a.shares[torch.from_numpy(turned)], b.shares) and a.log == b.log
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_one_client_has_all_the_weight():
    for rule in (AAggFFSilo(), AAggFFDevice()):
        mix, state = rule.weigh(rule.init(1), cohort([2.0]), info(0, 1))
        mix, _ = rule.weigh(state, cohort([3.0]), info(1, 1))
        assert mix.shares.tolist() == [1.0] and all(math.isfinite(v) for v in mix.log.values())


# -- AAggFF-D --------------------------------------------------------------------------------------------------------


def device_oracle(draws, count, imputation):
    """Section 3.4 with vectors of K numbers: the doubly robust estimate, both terms of the gradient, the softmax."""
    total, p, shares, gradients, decisions = np.zeros(count), np.full(count, 1 / count), [], [], []
    for t, (ids, losses) in enumerate(draws, start=1):
        size = len(ids)
        c = size / count
        r = np.zeros(count)
        r[ids] = c * stats.norm.cdf(losses / losses.mean() - 1)
        mean, inside = r[ids].mean(), np.isin(np.arange(count), ids)
        base = np.full(count, mean)
        if imputation == "leave-one-out":
            base[ids] = [np.delete(r[ids], j).mean() for j in range(size)]
        estimate = (1 - inside / c) * base + inside / c * r
        r0 = np.full(count, mean)
        g = -estimate / (1 + p @ r0) + r0 * (p @ (estimate - r0)) / (1 + p @ r0) ** 2
        lip = c + 2 if imputation == "in-sample" else c + 2 * c * (count - 1) / size
        assert np.abs(g).max() <= lip
        gradients.append(g)
        decisions.append(p)
        total += g
        powers = np.exp(-np.sqrt(np.log(count)) * total / (lip * np.sqrt(t + 1)))
        p = powers / powers.sum()
        shares.append(p[ids] / p[ids].sum())
    return shares, np.array(decisions), np.array(gradients)


def draws(count, size, rounds, seed=0):
    generator = np.random.default_rng(seed)
    level = generator.gamma(2.0, size=count)
    return [
        (ids := generator.permutation(count)[:size], level[ids] * generator.uniform(0.5, 1.5, size))
        for _ in range(rounds)
    ]


@pytest.mark.parametrize("imputation", ["in-sample", "leave-one-out"])
@pytest.mark.parametrize(("count", "size"), [(30, 5), (12, 12), (6, 2)])
def test_lazy_sums_equal_the_full_vectors(count, size, imputation):
    rule, seen = AAggFFDevice(imputation=imputation), draws(count, size, 40)
    state = rule.init(count)
    expected, decisions, gradients = device_oracle(seen, count, imputation)
    for t, (ids, losses) in enumerate(seen):
        mix, state = rule.weigh(state, cohort(losses, ids.tolist()), info(t, count, size))
        assert mix.shares.numpy() == pytest.approx(expected[t], abs=1e-13), t
        paid = (decisions[: t + 1] * gradients[: t + 1]).sum()
        best = gradients[: t + 1].sum(0).min()
        assert mix.log["regret"] == pytest.approx(paid - best, abs=1e-10)
        assert mix.log["best"] == pytest.approx(best, abs=1e-10)
        assert mix.log["decision"] == pytest.approx(decisions[t] @ gradients[t], abs=1e-12)
        assert mix.log["regret"] <= mix.log["bound"]
    assert float(mix.shares.max() - mix.shares.min()) > 1e-3


def test_a_client_that_was_never_sampled_has_the_sum_of_a_new_one():
    rule, count = AAggFFDevice(), 20
    state = rule.init(count)
    for t, (ids, losses) in enumerate(draws(count, 4, 3)):
        _, state = rule.weigh(state, cohort(losses, ids.tolist()), info(t, count, 4))
    numbers, _ = ledger.written(state)
    unseen = [i for i in range(count) if i not in numbers.tolist()]
    assert (np.diff(numbers) > 0).all()
    mix, _ = rule.weigh(state, cohort([1.0, 1.0], ids=unseen[:2]), info(3, count, 2))
    assert mix.shares.tolist() == [0.5, 0.5]


def test_memory_and_work_do_not_depend_on_the_number_of_clients():
    """The most memory in use while decisions are made, NumPy's included, and the size of the state."""
    most = {}
    for count in (500, 1_500_000):
        rule, seen = AAggFFDevice(track=False), set()
        state = rule.init(count)
        tracemalloc.start()
        for t in range(40):
            ids = sorted((997 * t + 101 * j) % count for j in range(5))
            seen |= set(ids)
            _, state = rule.weigh(state, cohort([0.5, 1.0, 2.0, 0.1, t], ids), info(t, count, 5))
        most[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert ledger.written(state).shape == (2, len(seen))
        assert sum(tensor.numel() for tensor in state.values()) <= 2 * 5 * 40 + 1
    assert most[1_500_000] < 2 * most[500] + 20_000 and most[1_500_000] < 8 * 1_500_000 / 20


def estimates(rule: AAggFFDevice, response: torch.Tensor, size: int) -> torch.Tensor:
    """The doubly robust estimate, averaged over all cohorts of a size."""
    count = len(response)
    rows = []
    for subset in itertools.combinations(range(count), size):
        mean = response[list(subset)].mean()
        row = torch.full((count,), float(mean), dtype=torch.float64)
        row[list(subset)] += (1 + mean) * row.new_tensor(rule.innovation(response[list(subset)].tolist(), count))
        rows.append(row)
    return torch.stack(rows).mean(0)


@pytest.mark.parametrize("size", [2, 3, 5, 6])
def test_bias_of_the_doubly_robust_estimate(size):
    response = torch.tensor([0.1, 0.9, 0.3, 0.5, 0.2, 0.7], dtype=torch.float64)
    count, mean = 6, response.mean()
    shrunk = response - (response - mean) * (count - size) / (size * (count - 1))
    assert torch.allclose(estimates(AAggFFDevice(), response, size), shrunk, atol=1e-14)
    unbiased = estimates(AAggFFDevice(imputation="leave-one-out"), response, size)
    assert torch.allclose(unbiased, response, atol=1e-14)
    if size == 2:
        assert shrunk.tolist() == pytest.approx([0.24, 0.72, 0.36, 0.48, 0.30, 0.60])


@pytest.mark.parametrize("imputation", ["in-sample", "leave-one-out"])
def test_the_gradient_stays_below_its_bound(imputation):
    generator = torch.Generator().manual_seed(5)
    ratio = 0.0
    for _ in range(1500):
        count = int(torch.randint(2, 40, (1,), generator=generator))
        size = int(torch.randint(2, count + 1, (1,), generator=generator))
        low = float(torch.rand(1, generator=generator)) / 2
        high = low + float(torch.rand(1, generator=generator)) + 0.01
        rule = AAggFFDevice(imputation=imputation, low=low, high=high)
        r = low + (high - low) * torch.rand(size, generator=generator, dtype=torch.float64).round(decimals=0)
        p = torch.softmax(5 * torch.randn(count, generator=generator, dtype=torch.float64), 0)
        d, mean = torch.zeros(count, dtype=torch.float64), r.mean()
        d[:size] = torch.tensor(rule.innovation(r.tolist(), count), dtype=torch.float64)
        g = -mean / (1 + mean) - d + mean * (p @ d) / (1 + mean)
        ratio = max(ratio, float(g.abs().max()) / rule.lipschitz(count, size))
    assert 0.5 < ratio <= 1
    assert AAggFFDevice().lipschitz(100, 5) == pytest.approx(0.05 + 2)
    assert AAggFFDevice(imputation="leave-one-out").lipschitz(100, 5) == pytest.approx(0.05 + 2 * 0.99)


@pytest.mark.parametrize("imputation", ["in-sample", "leave-one-out"])
def test_a_cohort_of_one_changes_nothing(imputation):
    rule = AAggFFDevice(imputation=imputation)
    state = rule.init(5)
    for t in range(4):
        mix, state = rule.weigh(state, cohort([10.0 * t], ids=[t]), info(t, 5, 1))
        assert mix.shares.tolist() == [1.0]
    assert np.abs(ledger.written(state)[1]).max() == 0


def test_the_closed_form_is_the_minimiser():
    """<G, p> + zeta sum p log p is least at the softmax of -G / zeta, which is what sums and steps are made into."""
    from fedchord.mixing.aaggff import _entropic, _rate

    sums, count, t, lip = [0.5, -1.0, 2.0, 0.0], 4, 7, 0.8
    zeta = lip * math.sqrt(t) / math.sqrt(math.log(count))
    found = optimize.minimize(
        lambda p: -p @ np.array(sums) + zeta * (p * np.log(p)).sum(),
        np.full(count, 0.25),
        method="SLSQP",
        bounds=[(1e-9, 1)] * count,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-15},
    )
    assert _entropic(sums, _rate(count, t, lip)) == pytest.approx(found.x, abs=1e-6)


def test_the_linearised_gradient_is_the_tangent():
    """The oracle's two terms are value and Jacobian of -r / (1 + <p, r>) at r0 (checked by autograd)."""
    p, r0 = torch.tensor([0.5, 0.3, 0.2]).double(), torch.full((3,), 0.4).double()
    jacobian = torch.autograd.functional.jacobian(lambda r: -r / (1 + p @ r), r0)
    r = torch.tensor([0.1, 0.9, 0.5]).double()
    printed = -r / (1 + p @ r0) + r0 * (p @ (r - r0)) / (1 + p @ r0) ** 2
    assert torch.allclose(-r0 / (1 + p @ r0) + jacobian @ (r - r0), printed)


# -- lying clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [AAggFFSilo, AAggFFDevice])
def test_a_liar_is_bounded(make):
    def run(**options):
        rule, honest = make(high=1.0, **options), [1.0, 1.2, 0.8, 1.1, 0.9]
        state = rule.init(6)
        for t in range(60):
            mix, state = rule.weigh(state, cohort([*honest, 1e9]), info(t, 6))
        return mix.shares

    free, capped = run(), run(cap=1.5, centre="median")
    assert free[5] > 0.3 and float(capped.max()) <= 0.25 + 1e-12 and abs(float(capped.sum()) - 1) < 1e-12
    assert capped[1] > capped[2], "the order of the honest clients is still seen"


# -- with other rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixing", ["aaggff-s", "aaggff-d"])
@pytest.mark.parametrize("base", ["fedprox", "fedadam", "fedyogi", "fedadagrad", "superfed-mm"])
def test_plug_and_play(base, mixing):
    algorithm = catalog.build(base, mixing=mixing)
    settings = {"rounds": 2, "cohort": 4 if mixing == "aaggff-s" else 2, "executor": "serial", "seed": 3}
    task, training = Task(lambda: TwoNN(6, 5, 3)), Training(batch=4, lr=0.1)
    results = list(simulate(algorithm, task, make_federation([13, 20, 7, 9]), training=training, **settings))
    for result in results:
        assert result.losses is not None and abs(float(result.shares.sum()) - 1) < 1e-12
        assert result.log["regret"] <= result.log["bound"]
    assert torch.isfinite(results[-1].state.broadcast["theta"]).all()


# -- bad input -------------------------------------------------------------------------------------------------------


SPACED = AAggFFDevice(fitted=True, estimate="spacing")


def test_odd_losses_keep_the_weights_on_the_simplex():
    odd = ([math.nan, 1.0, 2.0], [math.inf, 1.0, 2.0], [0.0, 0.0, 0.0], [math.nan] * 3, [math.inf] * 3, [1e300, 1, 0])
    for rule, losses in itertools.product((AAggFFSilo(), AAggFFDevice(), AAggFFSilo(fitted=True), SPACED), odd):
        state = rule.init(3)
        for t in range(2):
            mix, state = rule.weigh(state, cohort(losses), info(t))
        assert mix.shares.isfinite().all() and abs(float(mix.shares.sum()) - 1) < 1e-12 and (mix.shares >= 0).all()
        assert mix.log.get("odd_losses", 0) == sum(not math.isfinite(x) for x in losses)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: AAggFFSilo(cdf="cauchy"), "AAggFFSilo: unknown cdf 'cauchy'"),
        (lambda: AAggFFDevice(imputation="none"), "AAggFFDevice: imputation must be one of in-sample, leave-one-out"),
        (lambda: AAggFFDevice(high=-1.0), "AAggFFDevice: high must be above 0, got -1.0"),
        (lambda: AAggFFSilo(low=0.5, high=0.2), "AAggFFSilo: high must be above low"),
        (lambda: AAggFFSilo(cap=0.5), "AAggFFSilo: cap must be at least 1, got 0.5"),
        (lambda: AAggFFDevice(estimate="mle"), "AAggFFDevice: estimate must be one of quantile, spacing, got 'mle'"),
        (lambda: AAggFFSilo(centre="mode"), "AAggFFSilo: centre must be one of mean, median, got 'mode'"),
        (
            lambda: AAggFFSilo().weigh(AAggFFSilo().init(4), cohort([1.0, 2.0]), info(0, 4, 2)),
            "AAggFFSilo: needs every client in every round, got 2 of 4; use aaggff-d",
        ),
        (
            lambda: open_run(catalog.build("aaggff-s"), Task(lambda: TwoNN(6, 5, 3)), 6, Plan(2, 3)),
            "AAggFFSilo: needs every client in every round, got cohort 3 of 6; use aaggff-d, or cohort=all",
        ),
        (
            lambda: AAggFFDevice().weigh(AAggFFDevice().init(4), cohort([1.0, 2.0], ids=[3, 3]), info(0, 4, 2)),
            "AAggFFDevice: a client may be in a cohort once, got client 3 twice",
        ),
        (
            lambda: AAggFFDevice().weigh(AAggFFDevice().init(4), cohort([1.0, -2.0]), info(0, 4, 2)),
            "AAggFFDevice: losses must be at least 0, got -2 from client 1",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(call, line):
    with pytest.raises(FedchordError) as error:
        call()
    assert str(error.value).startswith(line) and "\n" not in str(error.value)
