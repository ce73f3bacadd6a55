"""Privacy of whole clients: clipping, weights, noise, who is drawn, and the same bits wherever it runs."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.federations import make_federation
from helpers.remote import FEDERATION, QUICK, assert_same_state, direct, plan_of
from scipy import stats

from fedchord import Task, Training, catalog, rng, simulate
from fedchord.check import FedchordError, FedchordWarning
from fedchord.core.records import Log, RoundInfo, Upload
from fedchord.core.round import Plan, Results, close_round, open_round, open_run
from fedchord.core.rules import Update
from fedchord.engine.weather import Weather
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute, resume
from fedchord.models import LogisticRegression
from fedchord.privacy import draws
from fedchord.privacy.clients import Clip, EqualParts, Noised, protected
from fedchord.privacy.terms import Privacy
from fedchord.remote.serve import serve
from fedchord.servers.step import Step

GIVEN = Privacy(noise=2.0, clip=0.5)


def toy_task() -> Task:
    return Task(lambda: LogisticRegression(inputs=6, classes=3))


def hidden(method: str = "uniform", privacy: Privacy = GIVEN, clients: int = 6, cohort: int = 3):
    return protected(catalog.build(method), privacy, clients, cohort, rounds=4)


def info(cohort: int = 3, round: int = 0) -> RoundInfo:
    return RoundInfo(round, 4, 6, cohort, 0.1, 1, rng.key(1, "server", round))


# -- clipping ------------------------------------------------------------------------------------------------------


def test_clipping_is_of_all_that_is_summed_as_one_vector_and_a_log_stays():
    upload = Upload(
        {"theta": torch.tensor([3.0, 0.0])}, {}, {"control": torch.tensor([4.0])}, Log({"a": torch.ones(())})
    )
    clipped = Clip(1.0, told=False)(upload, None)
    assert torch.allclose(clipped.mix["theta"], torch.tensor([0.6, 0.0]))
    assert torch.allclose(clipped.mean["control"], torch.tensor([0.8]))
    assert clipped.log == Log()
    kept = Clip(6.0)(upload, None)
    assert torch.equal(kept.mix["theta"], upload.mix["theta"]) and kept.log is upload.log


# -- noise ---------------------------------------------------------------------------------------------------------


def test_the_sum_gets_noise_of_std_z_clip_over_the_cohort():
    rule, zero = hidden().server, torch.zeros(40_000)
    broadcast, _ = rule.step({"theta": zero}, Update({"theta": zero}), {}, info())
    noise = broadcast["theta"].double().numpy()
    std = 2.0 * 0.5 / 3
    assert stats.kstest(noise / std, "norm").pvalue > 0.01
    assert abs(noise.std() / std - 1) < 0.015
    again, _ = rule.step({"theta": zero}, Update({"theta": zero}), {}, info())
    later, _ = rule.step({"theta": zero}, Update({"theta": zero}), {}, info(round=1))
    assert torch.equal(again["theta"], broadcast["theta"])
    assert abs(np.corrcoef(later["theta"], noise)[0, 1]) < 0.03


def test_entries_have_noise_of_their_own_and_means_count_the_planned_cohort():
    rule = hidden("scaffold").server
    zero = {"theta": torch.zeros(20_000), "control": torch.zeros(20_000)}
    moved, _ = rule.step(zero, Update({"theta": zero["theta"]}, {"control": zero["control"]}), {}, info())
    assert abs(np.corrcoef(moved["theta"], moved["control"])[0, 1]) < 0.03
    quiet = replace(rule, spending=replace(rule.spending, given=0.0))
    moved, _ = quiet.step(zero, Update({"theta": zero["theta"]}, {"control": 1 + zero["control"]}), {}, info(cohort=2))
    # two of three answered with 1 each: their mean over the planned three is 2/3, and 3 of 6 clients are in a round
    assert torch.allclose(moved["control"], torch.tensor(2 / 3 * 3 / 6))


def test_noise_of_a_secret_is_another_and_depends_on_the_sum():
    rule = replace(hidden().server, secret=b"own")
    zero, one = torch.zeros(1000), torch.ones(1000)
    none = {"theta": zero}
    first = rule.step(none, Update({"theta": zero}), {}, info())[0]["theta"]
    again = rule.step(none, Update({"theta": zero}), {}, info())[0]["theta"]
    other = rule.step(none, Update({"theta": one}), {}, info())[0]["theta"] - 1
    keyed = hidden().server.step(none, Update({"theta": zero}), {}, info())[0]["theta"]
    assert torch.equal(first, again)
    assert not torch.allclose(first, other) and not torch.allclose(first, keyed)


def test_hiding_noise_has_the_tails_that_short_random_numbers_lack():
    drawn = draws.keyed(7, "a", (500_001,))
    assert drawn.shape == (500_001,) and drawn.dtype == torch.float64
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 0.01
    beyond = int((drawn.abs() > 4).sum())
    assert 18 <= beyond <= 50  # 31.7 on average
    assert len(set(draws.keyed(7, "a", (100_000,)).tolist())) == 100_000


# -- a round by hand -----------------------------------------------------------------------------------------------


def test_a_round_is_the_clipped_sum_plus_noise_over_the_planned_cohort():
    algorithm, task = hidden(), toy_task()
    state = open_run(algorithm, task, 6, Plan(4, 3, seed=1))
    updates = torch.randn(2, task.layout.size)  # one of three did not answer
    results = Results(torch.tensor([1, 4]), torch.tensor([5, 900]), {"theta": updates})
    after, mix = close_round(algorithm, task, state, results, info(cohort=2))
    noise = Noised(Step(), 0.5, 3, algorithm.server.spending)._drawn("mix/theta", updates[0], info())
    by_hand = state.broadcast["theta"] + (updates.sum(0) + noise * 2.0 * 0.5) / 3
    assert torch.allclose(after.broadcast["theta"], by_hand.float(), atol=1e-6)
    assert mix.coefficients.tolist() == [1 / 3, 1 / 3] and mix.log["epsilon"] == algorithm.server.spending.after(1)


def test_entries_whose_names_begin_alike_have_noise_of_their_own():
    """Noise that two entries share goes when one is taken from the other."""
    names = ("theta", "theta_ema", "theta_of_the_client", "theta_of_the_clients")
    drawn = [draws.keyed(7, f"mix/{name}", (1000,)) for name in names]
    for one, other in itertools.combinations(drawn, 2):
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.15  # 4.7 standard errors
    assert torch.equal(drawn[0], draws.keyed(7, "mix/theta", (1000,)))


def test_nobody_in_a_round_still_gives_noise():
    federation, privacy = make_federation([5] * 30), Privacy(noise=1.0, sampling="poisson")
    settings = {"rounds": 12, "cohort": 2, "seed": 2, "executor": "serial", "privacy": privacy}
    rounds = list(simulate(catalog.build("uniform"), toy_task(), federation, **settings))
    empty = [r for r in rounds if not r.cohort]
    assert empty and len({len(r.cohort) for r in rounds}) > 2
    thetas = [r.state.broadcast["theta"] for r in rounds]
    step = thetas[empty[-1].round - 1] - thetas[empty[-1].round - 2]
    assert abs(step.std().item() - 0.5) < 0.25


# -- who is drawn --------------------------------------------------------------------------------------------------


def test_cohorts_are_drawn_from_all_whoever_is_there():
    state = open_run(catalog.build("uniform"), toy_task(), 10, Plan(4, 5, seed=1))
    _, every = open_round(state, Plan(4, 5, seed=1, draw="all"), Training())
    _, some = open_round(state, Plan(4, 5, seed=1, draw="all"), Training(), here=[0, 2, 4, 6, 8])
    assert len(every) == 5 and some == [i for i in every if i % 2 == 0]
    assert every == open_round(state, Plan(4, 5, seed=1), Training())[1]


def test_poisson_cohorts_take_everyone_with_the_same_chance():
    state = open_run(catalog.build("uniform"), toy_task(), 50, Plan(4, 5, seed=1))
    plan = Plan(4000, 5, seed=1, draw="poisson")
    drawn = [open_round(replace(state, round=t), plan, Training())[1] for t in range(4000)]
    counts = np.bincount(np.concatenate(drawn).astype(int), minlength=50)
    assert stats.chisquare(counts, np.full(50, 400.0) * counts.sum() / 20_000).pvalue > 0.01
    sizes = np.array([len(ids) for ids in drawn])
    assert abs(sizes.mean() - 5) < 0.15 and abs(sizes.var() - 4.5) < 0.5
    assert open_round(state, plan, Training())[0].cohort == 5


# -- the same everywhere -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_executors_agree(sampling):
    federation, privacy = make_federation([9, 5, 7, 12, 6, 8]), replace(GIVEN, sampling=sampling)

    def last(executor: str) -> torch.Tensor:
        settings = {"rounds": 3, "cohort": 3, "seed": 4, "training": Training(batch=4, lr=0.3), "privacy": privacy}
        *_, found = simulate(catalog.build("uniform"), toy_task(), federation, executor=executor, workers=2, **settings)
        return found.state.broadcast["theta"]

    assert torch.equal(last("serial"), last("processes"))
    assert torch.allclose(last("serial"), last("vectorised"), atol=1e-5)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "superfed-mm", "fedadam", "fedevg", "fedevg-witness"])
def test_nodes_and_simulator_end_with_the_same_bits_in_bad_weather(method, tmp_path):
    more = {"judge__steps": 5} if method.startswith("fedevg") else {}
    plan = plan_of(method, mixing="uniform", privacy="clients", privacy__noise=1.5, privacy__clip=0.3, cohort=3, **more)
    weather = Weather(lost=0.3, away=0.2)
    served = serve(plan, direct(plan, tmp_path), service=QUICK, weather=weather)
    served.finish()
    course, config = plan.course, plan.config
    *_, last = simulate(
        config.algorithm(),
        config.task(plan.outline),
        FEDERATION,
        training=config.training(),
        rounds=course.rounds,
        cohort=course.cohort,
        seed=course.seed,
        executor="serial",
        weather=weather,
        privacy=config.private(),
    )
    assert_same_state(served.fitted.state, last.state)


def test_a_server_over_a_network_draws_cohorts_and_noise_by_its_secret(tmp_path):
    plan = plan_of("fedavg", mixing="uniform", privacy="clients", privacy__noise=0.0, privacy__clip=0.3, rounds=6)
    cohorts = []
    for number, secret in enumerate((b"", b"one", b"one", b"two")):
        run = serve(plan, direct(plan, tmp_path / str(number)), service=QUICK, secret=secret)
        cohorts.append([done.cohort for done in run])
    assert cohorts[1] == cohorts[2] and len({tuple(one) for one in cohorts}) == 3


def test_over_a_network_chance_may_draw_nobody_too(tmp_path):
    plan = plan_of(
        "fedavg",
        mixing="uniform",
        privacy="clients",
        privacy__noise=1.0,
        privacy__sampling="poisson",
        cohort=1,
        rounds=6,
    )
    rounds = list(serve(plan, direct(plan, tmp_path), service=QUICK))
    assert any(not done.cohort for done in rounds) and any(done.cohort for done in rounds)


def test_two_phases_end_alike(tmp_path):
    plan = plan_of("fedavg", mixing="uniform", privacy="clients", privacy__noise=1.5, privacy__clip=0.3)
    one, two = (
        serve(plan, direct(plan, tmp_path / str(phases)), service=replace(QUICK, phases=phases)) for phases in (1, 2)
    )
    for run in (one, two):
        run.finish()
    assert torch.allclose(one.fitted.state.broadcast["theta"], two.fitted.state.broadcast["theta"], atol=1e-6)


# -- runs ----------------------------------------------------------------------------------------------------------

BASE = ["mixing=uniform", "clients=6", "cohort=3", "rounds=4", "model=logreg", "executor=serial", "privacy=clients"]


def test_a_run_tells_what_it_has_spent_and_keeps_to_its_budget(tmp_path):
    pairs = [*BASE, "privacy.epsilon=8", "privacy.clip=0.5", "method=superfed-mm", "method.start_round=1"]
    summary = execute(RunConfig.from_pairs([*pairs, f"out={tmp_path / 'a'}"]))
    lines = [json.loads(line) for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()]
    spent = [line["log"]["epsilon"] for line in lines]
    assert spent == sorted(spent) and 7.9 < spent[-1] <= 8
    assert all(line["log"].keys() == {"epsilon"} and line["losses"] is None for line in lines)  # no cosine
    told = summary["privacy"]
    assert told["epsilon"] == spent[-1] and told["clip"] == 0.5 and "without replacement" in told["sampling"]
    note = next(note for note in summary["protocol"]["notes"] if note["kind"] == "privacy")
    assert note["epsilon"] == spent[-1]
    assert resume(tmp_path / "a")["metrics"] == summary["metrics"]
    with pytest.raises(FedchordError, match="chooses its noise for all rounds"):
        resume(tmp_path / "a", ["rounds=5"])


def test_noise_that_is_given_is_used_and_its_cost_told():
    summary = execute(RunConfig.from_pairs([*BASE, "privacy.noise=3", "privacy.sampling=poisson"]))
    assert summary["privacy"]["noise"] == 3 and 0 < summary["privacy"]["epsilon"] < 10
    none = execute(RunConfig.from_pairs([*BASE, "privacy.noise=0"]))
    assert none["privacy"]["epsilon"] is None


def test_without_noise_and_with_a_wide_clip_it_is_uniform_averaging():
    wide = [*BASE, "privacy.noise=0", "privacy.clip=1e6"]
    plain = [pair for pair in BASE if pair != "privacy=clients"]
    assert execute(RunConfig.from_pairs(wide))["metrics"] == execute(RunConfig.from_pairs(plain))["metrics"]


def test_a_large_delta_is_warned_of():
    with pytest.warns(
        FedchordWarning, match=r"privacy.delta is 0.2; at 1 / 6 or more one of 6 clients may be published"
    ):
        protected(catalog.build("uniform"), Privacy(noise=1.0, delta=0.2), 6, 3, 4)


def test_epsilon_is_of_the_planned_rate_and_equal_parts_of_nobody_are_none():
    mixing = hidden().mixing
    assert isinstance(mixing, EqualParts) and mixing.spending.draw.size == 3
    assert not math.isinf(mixing.spending.after(4))
