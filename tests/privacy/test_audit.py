"""Audits: the lower bound is what the counts allow, below a true claim, above a false one."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binom, norm

from fedchord import Task, Training, catalog
from fedchord.check import FedchordError
from fedchord.models import LogisticRegression
from fedchord.privacy.accounting import POISSON, Draw, epsilon
from fedchord.privacy.audit import audit_clients, audit_rows, lower_bound, shown
from fedchord.privacy.gaussian import spent
from fedchord.privacy.rows import RowTask
from fedchord.privacy.terms import Privacy

TASK = Task(lambda: LogisticRegression(inputs=3, classes=2))


@pytest.mark.parametrize(("hits", "misses"), [(90, 10), (100, 0), (40, 5), (0, 0), (60, 100)])
def test_the_bound_is_that_of_exact_binomial_intervals(hits, misses):
    """Clopper and Pearson: the rates at which what was seen, or more of it, has a chance of 2.5 %."""
    low = brentq(lambda p: binom.sf(hits - 1, 100, p) - 0.025, 1e-9, 1 - 1e-9) if hits else 0.0
    high = brentq(lambda p: binom.cdf(misses, 100, p) - 0.025, 1e-9, 1 - 1e-9) if misses < 100 else 1.0
    by_hand = max(0.0, math.log((low - 1e-5) / high)) if low > 1e-5 else 0.0
    assert lower_bound(hits, misses, 100, 1e-5) == pytest.approx(by_hand, abs=1e-6)


def test_scores_that_tell_nothing_show_nothing_and_those_that_tell_all_show_much():
    draw = torch.Generator().manual_seed(1)
    same = torch.randn(2, 1000, generator=draw)
    assert shown(same[0], same[1], 1e-5) < 0.5
    assert shown(same[0] + 10, same[1] - 10, 1e-5) > 4.9  # 500 of 500 against 0 of 500


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize("cohort", [6, 3])
def test_the_claim_of_a_run_is_not_disproved_and_is_when_the_noise_is_off(sampling, cohort):
    settings = {"clients": 6, "cohort": cohort, "rounds": 1, "games": 160}
    true = audit_clients(catalog.build("uniform"), TASK, Privacy(noise=1.5, sampling=sampling), **settings)
    assert true.holds and 0.5 < true.right < 0.95
    none = audit_clients(catalog.build("uniform"), TASK, Privacy(noise=1e-6, sampling=sampling), **settings)
    if cohort == 6:
        assert none.lower > 2.9 and none.right == 1.0  # with 80 games to look at, 3.0 is the most that can be shown


def test_a_claim_that_forgets_that_a_replaced_client_moves_a_sum_by_two_clips_is_disproved():
    settings = {"clients": 2, "cohort": 2, "rounds": 3, "games": 300}
    found = audit_clients(catalog.build("uniform"), TASK, Privacy(noise=1.0, delta=0.1), **settings)
    assert spent(1.0, 3, 0.1) < found.lower < found.claimed == pytest.approx(spent(0.5, 3, 0.1))


# -- rows ----------------------------------------------------------------------------------------------------------


def rows(noise: float, delta: float = 1e-5, method: str = "fedavg", **more):
    settings = {"rows": 4, "rounds": 1, "games": 60} | more
    return audit_rows(catalog.build(method), Privacy(level="rows", noise=noise, delta=delta), **settings)


def test_the_claim_for_rows_is_not_disproved_and_the_game_could_not_be_played_better():
    """Two sums of noise 1.2, one step each: the best guess is right with probability Phi(sqrt(2) / 2.4)."""
    found = rows(1.2, games=150, rounds=2)
    assert found.holds and found.claimed == pytest.approx(spent(1.2, 2, 1e-5), rel=0.01)
    assert found.right == pytest.approx(norm.cdf(2**0.5 / 2.4), abs=0.06)


def test_without_noise_a_row_is_always_found():
    for method in ("fedavg", "ditto"):
        found = rows(1e-6, method=method)
        assert found.right == 1.0 and found.lower > 1.9  # with 30 games to look at, 2.03 is the most


@pytest.mark.filterwarnings("ignore:privacy. privacy.delta is 0.1")  # so that few games are enough
def test_claims_for_rows_that_forget_the_sampling_or_half_of_the_sensitivity_are_disproved():
    found = rows(0.5, delta=0.1, games=200, rows=24)
    assert found.holds
    assert found.lower > spent(1.0, 1, 0.1)  # as if a row moved a sum by half a clip
    assert found.lower > epsilon(Draw(POISSON, 1, 25), 0.5, 1, 0.1)  # as if one of 25 rows were drawn
    drawn = rows(0.5, delta=0.1, rows=24, training=Training(batch=5))  # five steps, at each of which five are drawn
    assert drawn.holds and drawn.claimed == pytest.approx(epsilon(Draw(POISSON, 5, 25), 0.5, 5, 0.1))


def test_gradients_that_are_not_clipped_disprove_the_claim(monkeypatch):
    def unclipped(self, theta, buffers, batch, key):
        return len(batch["y"]) * self.bare.grad(theta, buffers, batch, key)[0]

    monkeypatch.setattr(RowTask, "_clipped", unclipped)
    assert not rows(4.0).holds


def test_what_has_no_canary_of_this_kind_is_refused():
    with pytest.raises(FedchordError, match="audit: fedevg cannot be private"):
        rows(1.0, method="fedevg")
    witness = catalog.build("fedevg-witness", {"iterations": 0})
    with pytest.raises(FedchordError, match="is looked for in gradients, and fedevg-witness has none"):
        audit_rows(witness, Privacy(level="rows", noise=1.0))
