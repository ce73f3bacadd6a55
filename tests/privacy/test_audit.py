"""Audits: the lower bound is what the counts allow, below a true claim, above a false one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binom, norm

from fedchord import Task, Training, catalog
from fedchord.check import FedchordError
from fedchord.clients.witness import Witness
from fedchord.core.inputs import Inputs
from fedchord.core.round import Plan, round_info
from fedchord.models import LogisticRegression
from fedchord.privacy.accounting import POISSON, Draw, epsilon
from fedchord.privacy.audit import audit_clients, audit_rows, lower_bound, shown
from fedchord.privacy.canaries import WIDTH, Network, Sums
from fedchord.privacy.gaussian import spent
from fedchord.privacy.rows import Course, Hiding, RowTask
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


def test_what_cannot_be_private_and_what_has_no_canary_of_this_kind_is_refused(monkeypatch):
    with pytest.raises(FedchordError, match="audit: fedevg cannot be private"):
        rows(1.0, method="fedevg")
    with pytest.raises(FedchordError, match="audit: fedevg-witness cannot be private: its batches are no Poisson"):
        rows(1.0, method="fedevg-witness")
    monkeypatch.setattr(Witness, "step", lambda self, trained, memory, *_: ({"theta": trained["theta"]}, memory))
    with pytest.raises(FedchordError, match="is looked for in sums and counts, and Witness has none"):
        sums(1.0)


# -- sums of features ----------------------------------------------------------------------------------------------


def sums(noise: float, delta: float = 1e-5, clip: float = 0.7, parameters: dict | None = None, **more):
    settings = {"rows": 4, "rounds": 1, "games": 60} | more
    witness = catalog.build("fedevg-witness", {"iterations": 0} | (parameters or {}))
    return audit_rows(witness, Privacy(level="rows", noise=noise, delta=delta, clip=clip), **settings)


def test_the_claim_for_sums_is_not_disproved_and_the_game_could_not_be_played_better():
    """By Neyman and Pearson: two rounds of the Gaussian mechanism of noise 1.2, right with Phi(sqrt(2) / 2.4)."""
    found = sums(1.2, games=300, rounds=2)
    assert found.holds and found.claimed == pytest.approx(spent(1.2, 2, 1e-5), rel=0.01)
    assert found.right == pytest.approx(norm.cdf(2**0.5 / 2.4), abs=0.045)


@pytest.mark.parametrize("parameters", [{}, {"networks": 3, "batch": 2}, {"match": "squares"}])
def test_without_noise_a_row_is_always_found_in_sums(parameters):
    found = sums(0.0, parameters=parameters)
    assert found.right == 1.0 and found.lower > 1.9 and found.claimed == math.inf  # 2.03 is the most, with 30 games


@pytest.mark.parametrize("networks", [1, 3])
def test_the_canary_has_its_whole_clip_all_networks_together(networks):
    """Without noise the score of a game is ||s||^2 / C^2 + 1 in each round, or nothing."""
    witness = catalog.build("fedevg-witness", {"iterations": 0, "networks": networks}).client
    game = played(witness, 0.7, rounds=2)
    assert game.play(True, 5) == pytest.approx(2 * (1 + 1), rel=1e-5)
    assert game.play(False, 5) == 0.0


def played(rule, clip: float, rounds: int):
    course = Course((5,), 0, (tuple(range(1, rounds + 1)),), 1e-5, given=0.0)
    training = rule.local(Training())
    infos = [round_info(Plan(rounds), training, 1, round, 1) for round in range(rounds)]
    return Sums(rule, Task(Network, inputs=Inputs((WIDTH,), 2)), Hiding(clip, course), training, 4, infos)


FEW = "ignore:privacy. privacy.delta is 0.4"
"""At so large a delta a few hundred games show most of what there is to show."""


@pytest.mark.filterwarnings(FEW)
def test_a_claim_that_forgets_what_counts_or_what_sums_cost_is_disproved():
    """Each alone is the Gaussian mechanism of noise sqrt(2) z."""
    found = sums(0.35, delta=0.4, games=600)
    assert spent(2**0.5 * 0.35, 1, 0.4) + 0.2 < found.lower <= found.claimed == pytest.approx(spent(0.35, 1, 0.4))


@pytest.mark.filterwarnings(FEW)
@pytest.mark.parametrize("share", [{"sums": 0.5**0.5, "counts": 0.5**0.5}, {"counts": 0.0}, {"sums": 0.0}])
def test_noise_that_is_too_small_disproves_the_claim(share, monkeypatch):
    """Without the sqrt(2), or on one of the two alone: the score then has the std of z / sqrt(2)."""
    whole = Witness._noise

    def less(self, trained, hidden, key):
        drawn = whole(self, trained, hidden, key)
        return {name: trained[name] + share.get(name, 1.0) * (drawn[name] - trained[name]) for name in drawn}

    monkeypatch.setattr(Witness, "_noise", less)
    found = sums(0.5, delta=0.4, games=600)
    assert found.claimed + 0.2 < found.lower < spent(0.5**1.5, 1, 0.4)


def test_features_that_are_not_clipped_disprove_the_claim(monkeypatch):
    bare = Witness.phi
    monkeypatch.setattr(Witness, "phi", lambda self, *given: bare(replace(self), *given))  # a copy that hides nothing
    assert not sums(4.0).holds
