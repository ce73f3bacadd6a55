"""What lets a round run elsewhere: guards on what leaves, cohorts among those who are there, what was counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import torch
from helpers.federations import make_federation

from fedchord import catalog
from fedchord.core.round import Plan, open_round, open_run
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.executors import Serial, make_executor
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import rounds_of, simulate
from fedchord.engine.weather import Weather
from fedchord.engine.work import Work
from fedchord.models import TwoNN

FEDERATION = make_federation([8, 6, 9, 5, 7])


@dataclass(frozen=True)
class Scale:
    """A guard that is easy to compute."""

    by: float

    def __call__(self, upload, visit):
        return replace(upload, mix={name: part * self.by for name, part in upload.mix.items()})


def task():
    return Task(lambda: TwoNN(6, 5, 3))


def run(executor, guards):
    work = Work.of(catalog.build("fedavg"), task(), FEDERATION, Training(batch=4, lr=0.1), 1, "cpu", guards)
    plan = Plan(1, 3, 1)
    state = open_run(work.algorithm, work.task, 5, plan)
    pool = make_executor(executor, work, state.broadcast, 3, 2)
    try:
        (done,) = rounds_of(pool, plan, state, ClientMemory())
    finally:
        pool.close()
    return done.state.broadcast["theta"] - state.broadcast["theta"]


def test_guards_act_one_after_another_in_every_executor():
    plain = run("serial", ())
    for executor in ("serial", "processes", "vectorised"):
        guarded = run(executor, (Scale(0.5), Scale(0.5)))
        assert torch.allclose(guarded, plain / 4, atol=1e-6), executor
    assert plain.abs().max() > 1e-3


def test_a_cohort_is_drawn_evenly_among_those_who_are_there():
    work = Work.of(catalog.build("fedavg"), task(), FEDERATION, Training(), 0, "cpu")
    here, counts, plan = [0, 2, 4], Counter(), Plan(3000, 2, 0)
    state = open_run(work.algorithm, work.task, 5, plan)
    for round in range(3000):
        info, ids = open_round(replace(state, round=round), plan, work.training, here)
        assert info.cohort == len(ids) == 2 and ids == sorted(ids)
        counts.update(ids)
    assert set(counts) == set(here)
    assert all(abs(counts[client] - 2000) < 4 * (3000 * 2 / 9) ** 0.5 for client in here)
    info, ids = open_round(state, plan, work.training, [3])
    assert (info.cohort, ids) == (1, [3])
    everyone = [open_round(replace(state, round=r), plan, work.training)[1] for r in range(50)]
    assert everyone == [open_round(replace(state, round=r), plan, work.training, range(5))[1] for r in range(50)]


def test_counted_is_the_last_round_of_each_client():
    cohorts = []
    settings = {"rounds": 6, "cohort": 2, "seed": 2, "executor": "serial"}
    for done in simulate(catalog.build("fedavg"), task(), FEDERATION, **settings):
        cohorts.append(done.cohort)
        known = [max((r for r, ids in enumerate(cohorts) if client in ids), default=-1) for client in range(5)]
        assert done.state.counted.tolist() == known


def test_an_executor_does_not_train_whose_reply_is_lost():
    work = Work.of(catalog.build("scaffold"), task(), FEDERATION, Training(), 0, "cpu")
    plan, trained = Plan(2, 5, 0), []

    class Counting(Serial):
        def run(self, shared, ids, info, memory):
            trained.append(ids)
            assert info.cohort == 5  # what a client knows of the round when it trains
            return super().run(shared, ids, info, memory)

    state = open_run(work.algorithm, work.task, 5, plan)
    *_, last = rounds_of(Counting(work), plan, state, ClientMemory(), Weather(lost="1:1,4:2"))
    assert trained == [[0, 2, 3, 4], [0, 1, 2, 3]]
    assert last.missing == {4: "lost"} and last.state.counted.tolist() == [1, 1, 1, 1, 0]
