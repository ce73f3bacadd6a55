"""What noise costs, against other accountants, closed forms and divergences found by integration."""

from __future__ import annotations

import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from opacus.accountants import RDPAccountant
from opacus.accountants.analysis import rdp as opacus_rdp
from scipy import stats
from scipy.special import logsumexp

from fedchord.check import FedchordError
from fedchord.privacy import accounting
from fedchord.privacy.accounting import ALL, FIXED, ORDERS, POISSON, Draw, Spending, epsilon, noise_for

DELTA = 1e-5


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.1, 1.0, 100), (0.02, 0.8, 500), (0.5, 4.0, 50)])
def test_poisson_sampling_costs_what_opacus_says(rate, noise, steps):
    ours = epsilon(Draw(POISSON, rate * 1000, 1000), noise, steps, DELTA)
    theirs = RDPAccountant()
    theirs.history = [(noise, rate, steps)]
    assert ours == pytest.approx(theirs.get_epsilon(DELTA), rel=0.01)
    alike = opacus_rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=list(ORDERS))
    assert ours == pytest.approx(opacus_rdp.get_privacy_spent(orders=list(ORDERS), rdp=alike, delta=DELTA)[0], rel=1e-6)


@pytest.mark.parametrize(("noise", "steps"), [(5.0, 40), (20.0, 100)])
def test_without_sampling_the_closed_form_is_that_of_loss_distributions(noise, steps):
    one = pld.from_gaussian_mechanism(noise / 2, value_discretization_interval=1e-3)  # replaced: sensitivity 2
    ours = epsilon(Draw(ALL, 10, 10), noise, steps, DELTA)
    assert ours == pytest.approx(one.self_compose(steps).get_epsilon_for_delta(DELTA), rel=0.01)
    assert ours == pytest.approx(dp.get_epsilon_gaussian(noise / 2 / math.sqrt(steps), DELTA), rel=1e-6)


def test_renyi_bounds_lie_above_loss_distributions_and_not_far():
    one = pld.from_gaussian_mechanism(1.0, sampling_prob=0.1, value_discretization_interval=1e-3)
    tight = one.self_compose(100).get_epsilon_for_delta(DELTA)
    assert tight < epsilon(Draw(POISSON, 10, 100), 1.0, 100, DELTA) < 1.2 * tight


def test_steps_add_up_as_the_library_adds_them():
    for draw, event, relation in (
        (Draw(POISSON, 10, 100), dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0)), "ADD_OR_REMOVE_ONE"),
        (Draw(FIXED, 10, 100), dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.0)), "REPLACE_ONE"),
    ):
        library = dp.rdp.RdpAccountant(list(ORDERS), getattr(dp.NeighboringRelation, relation))
        library.compose(event, 30)
        assert epsilon(draw, 2.0, 30, DELTA) == pytest.approx(library.get_epsilon(DELTA), rel=1e-9)


LINE = np.linspace(-120, 120, 24_001)


def renyi(order: float, p: np.ndarray, q: np.ndarray) -> float:
    """The Renyi divergence of two densities on a line, given by their logarithms there, by summation."""
    return (logsumexp(order * p + (1 - order) * q) + math.log(LINE[1] - LINE[0])) / (order - 1)


def sampled(values: list[float], size: int, noise: float) -> np.ndarray:
    """The log-density of a noised sum of `size` of the values, drawn without replacement."""
    centres = np.array([sum(some) for some in itertools.combinations(values, size)])
    return logsumexp(stats.norm.logpdf(LINE[:, None], centres, noise), axis=1) - math.log(len(centres))


def test_the_bound_for_fixed_cohorts_holds_where_it_is_worst_and_half_the_sensitivity_does_not():
    noise, below, above = 2.0, [], []
    costs = dict(zip(ORDERS, accounting._renyi(Draw(FIXED, 2, 4), noise), strict=True))
    halved = dp.rdp.RdpAccountant(list(ORDERS), dp.NeighboringRelation.REPLACE_ONE)
    halved.compose(dp.SampledWithoutReplacementDpEvent(4, 2, dp.GaussianDpEvent(noise)))
    naive = dict(zip(ORDERS, halved._rdp, strict=True))
    for order in (2, 4, 8, 16):
        worst = 0.0
        for others in ([1.0] * 3, [-1.0] * 3, [1.0, -1.0, 1.0]):
            one, other = sampled([*others, 1.0], 2, noise), sampled([*others, -1.0], 2, noise)
            worst = max(worst, renyi(order, one, other), renyi(order, other, one))
        below.append(worst <= costs[order])
        above.append(worst > naive[order])
    assert all(below) and any(above)  # a clip of 1 moves a sum by 2 when a client is replaced


def test_sampling_never_costs_more_than_none():
    for size in (5, 50, 95):
        assert epsilon(Draw(FIXED, size, 100), 3.0, 20, DELTA) <= epsilon(Draw(ALL, 100, 100), 3.0, 20, DELTA)


@pytest.mark.parametrize("way", [ALL, FIXED, POISSON])
@pytest.mark.parametrize("wanted", [1.0, 8.0])
def test_noise_is_the_least_for_an_epsilon(way, wanted):
    draw = Draw(way, 100 if way == ALL else 20, 100)
    noise = noise_for(draw, 50, wanted, DELTA)
    assert epsilon(draw, noise, 50, DELTA) <= wanted < epsilon(draw, 0.995 * noise, 50, DELTA)


def test_a_budget_is_spent_step_by_step():
    budget = Spending(Draw(FIXED, 5, 50), 20, DELTA, wanted=4.0)
    course = [budget.after(step) for step in range(21)]
    assert course[0] == 0 and course == sorted(course) and 3.9 < course[-1] <= 4.0
    assert math.isinf(Spending(Draw(FIXED, 5, 50), 20, DELTA, given=0.0).after(1))


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(accounting, "find_spec", lambda name: None)
    with pytest.raises(FedchordError, match=r"privacy: needs the library dp-accounting: pip install 'fedchord\[pr"):
        epsilon(Draw(POISSON, 3, 31), 1.37, 2, DELTA)  # asked for by nobody before
