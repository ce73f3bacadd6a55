"""Hidden rows in witness energies, a minimum count per class, and the attack that both are against."""

from __future__ import annotations

import math
import re

import pytest
import torch
from helpers.remote import FEDERATION

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.core.round import Plan, open_run, round_info
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.work import Work
from fedchord.models import TwoNN
from fedchord.privacy.allowed import refused
from fedchord.privacy.gaussian import spent
from fedchord.privacy.shield import shield, told
from fedchord.privacy.terms import Privacy
from fedchord.synthetic.reconstruct import attack, smallest


def work_of(privacy: Privacy | None = None, **parameters) -> Work:
    task = Task(lambda: TwoNN(inputs=64, hidden=30, classes=3), inputs=FEDERATION.inputs)
    algorithm = catalog.build("fedevg-witness", {"iterations": 0, "batch": 7, **parameters})
    hidden = shield(algorithm, privacy, task, FEDERATION, Plan(5, 1.0), Training())
    return Work.of(hidden.algorithm, hidden.task, FEDERATION, Training(), 1, "cpu", hidden.guards, False, hidden.hiding)


def sent(work: Work, client: int = 0, round: int = 0):
    """What a client uploads, and its sums and counts before that."""
    plan = Plan(5, 1.0)
    shared = open_run(work.algorithm, work.task, 4, plan).broadcast
    return work.run(client, shared, None, round_info(plan, work.training, 4, round, 4))[0]


def test_noise_is_that_of_the_gaussian_mechanism_on_sums_and_counts():
    """One row more or less moves sums by C and counts by 1; each has sqrt(2) of the noise, both together one z."""
    work = work_of(Privacy(level="rows", noise=3.0, clip=0.5))
    rule = work.algorithm.client
    zero = {"sums": torch.zeros(1, 40, 500), "counts": torch.zeros(20_000)}
    drawn = rule._noise(zero, rule.hidden, 7)
    assert drawn["sums"].std() == pytest.approx(math.sqrt(2) * 3 * 0.5, rel=0.02)
    assert drawn["counts"].std() == pytest.approx(math.sqrt(2) * 3, rel=0.02)
    assert work.algorithm.mixing.course.after(5) == pytest.approx(spent(3.0, 5, 1e-5))  # every row once a round


def test_features_of_a_row_are_bounded_all_networks_together():
    work = work_of(Privacy(level="rows", noise=0.0, clip=0.01), networks=3)
    rule, x = work.algorithm.client, FEDERATION.batch(FEDERATION.train[1])["x"]
    from fedchord.core.records import Visit

    info = round_info(Plan(5, 1.0), work.training, 4, 0, 4)
    visit = Visit(work.task, open_run(work.algorithm, work.task, 4, Plan(5, 1.0)).broadcast, {}, info, 0, 1)
    networks = rule.start(visit)
    squares = sum(rule.phi(networks, visit, k, x).square().sum(1) for k in range(3))
    assert torch.allclose(squares.sqrt(), torch.full((len(x),), 0.01), rtol=1e-4)


def test_without_noise_and_with_a_wide_clip_it_is_the_plain_rule():
    plain, hidden = sent(work_of()), sent(work_of(Privacy(level="rows", noise=0.0, clip=1e6)))
    for name, value in plain.mix.items():
        assert torch.allclose(hidden.mix[name], value, atol=1e-6)
    assert plain.log.means and not hidden.log.means
    assert not torch.allclose(sent(work_of(Privacy(level="rows", noise=0.1, clip=1e6))).mix["num"], plain.mix["num"])


def test_of_a_small_class_nothing_is_sent():
    work = work_of()
    client, label, count = smallest(work)
    assert sent(work, client).mix["den"][label].any()
    few = sent(work_of(min_rows=count + 1), client)
    assert not few.mix["den"][label].any() and not few.mix["num"][label].any()
    labels = FEDERATION.columns["y"][FEDERATION.train[client]].bincount(minlength=3)
    kept = torch.where(labels > count, labels, 0) / labels.sum()
    assert torch.allclose(few.mix["den"][:, 0], kept.float())  # the others weigh what they did
    noisy = sent(work_of(Privacy(level="rows", noise=10.0)), client)  # four stds of a count are above all counts
    assert not noisy.mix["den"].any()


def test_a_class_of_one_row_is_found_and_a_minimum_or_noise_hides_it():
    federation = FEDERATION
    work = work_of(shift=0.0)
    client, label, count = smallest(work)
    found = attack(work, rounds=3, steps=150)
    assert (found.client, found.label, found.rows) == (client, label, count)
    assert found.features < 0.05
    noised = attack(work_of(Privacy(level="rows", noise=0.3, clip=1.0), shift=0.0, min_rows=0), rounds=3, steps=10)
    assert noised.features is None or noised.features > 5 * found.features
    assert attack(work_of(min_rows=count + 1), rounds=1, steps=1).distance is None
    assert federation.num_clients == 4


def test_batches_that_are_no_poisson_sample_are_refused():
    assert "set method.iterations=0" in refused(catalog.build("fedevg-witness"), "rows")
    with pytest.raises(FedchordError, match=r"privacy: fedevg-witness cannot be private: its batches are no Poisson"):
        work_of(Privacy(level="rows", noise=1.0), iterations=1)


@pytest.mark.parametrize(
    ("method", "batch", "words"),
    [
        ("fedevg-witness", 7, "every row in every step; .* exact for the Gaussian mechanism"),
        ("fedavg", 0, "every row in every step; .* exact for the Gaussian mechanism"),
        ("fedavg", 20, "every row in every step; "),  # no client has more
        ("fedavg", 19, "Poisson sampling of rows, .* Renyi divergence of the sampled Gaussian"),
    ],
)
def test_the_guarantee_says_whether_rows_are_sampled(method, batch, words):
    privacy, training = Privacy(level="rows", noise=3.0), Training(batch=batch)
    task = Task(lambda: TwoNN(inputs=64, hidden=30, classes=3), inputs=FEDERATION.inputs)
    algorithm = catalog.build(method, {"iterations": 0, "batch": batch} if method == "fedevg-witness" else {})
    hidden = shield(algorithm, privacy, task, FEDERATION, Plan(5, 1.0), training)
    assert re.match(words, told(hidden.algorithm, privacy, 5)["sampling"])
