"""Updates that are not finite or explode are left out and named; what is left is bounded; diverged runs end."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from helpers.federations import make_federation

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.clients.superfed import SuPerFed
from fedchord.core.round import Results
from fedchord.core.rules import Algorithm, ServerRule
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.attendance import Terms
from fedchord.engine.guards import Defence, Diverged, bounded, faults, lengths, outgrown, without
from fedchord.engine.simulate import simulate
from fedchord.engine.weather import Weather
from fedchord.mixing.aaggff import AAggFFSilo
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step

FEDERATION = make_federation([8, 6, 9, 5, 7])
TRAINING = Training(batch=4, lr=0.1)


@dataclass(frozen=True)
class Broken(SuPerFed):  # type: ignore[misc]
    """SuPerFed, whose client 2 breaks down in its second round and client 4 explodes in the first."""

    warmup: float = 0.0
    at: tuple[tuple[int, int, float], ...] = ((2, 1, math.nan), (4, 0, 1e30))

    def finish(self, trained, visit):
        upload, own = super().finish(trained, visit)
        theta = upload.mix["theta"]
        for client, round, value in self.at:
            if (int(visit.client), visit.info.round) == (client, round):
                own = {name: torch.full_like(part, math.nan) for name, part in own.items()}
                theta = torch.full_like(theta, value)
        return replace(upload, mix={"theta": theta}), own


def rounds(rule, mixing=None, executor="serial", count=3, **more):
    algorithm = Algorithm(rule, mixing or BySize(), Step())
    task = Task(lambda: TwoNN(6, 5, 3))
    return list(
        simulate(
            algorithm, task, FEDERATION, rounds=count, seed=1, training=TRAINING, executor=executor, workers=2, **more
        )
    )


def test_what_is_left_out_is_as_a_reply_that_was_lost():
    """The bits of the run in which the network loses the same two replies: model, memory, weights, visits."""
    found = rounds(Broken())
    known = rounds(SuPerFed(warmup=0.0), weather=Weather(lost="4:1,2:2"))
    assert found[0].missing == {4: "exploded: theta of length 9.1e+30"}
    assert found[1].missing == {2: "not finite: theta"} and found[2].missing == {}
    for mine, theirs in zip(found, known, strict=True):
        assert mine.cohort == theirs.cohort and torch.equal(mine.shares, theirs.shares)
        for name, tensor in theirs.state.broadcast.items():
            assert torch.equal(mine.state.broadcast[name], tensor)
        assert mine.state.counted.tolist() == theirs.state.counted.tolist()
    mine, theirs = found[-1].memory, known[-1].memory
    assert mine.clients() == theirs.clients()
    for client in mine.clients():
        assert all(torch.equal(part, theirs.get(client)[name]) for name, part in mine.get(client).items())


def test_worker_processes_leave_out_the_same_to_the_bit():
    more = {"defence": Defence(bound=0.1)}
    one, other = rounds(Broken(), **more), rounds(Broken(), executor="processes", **more)
    for mine, theirs in zip(one, other, strict=True):
        assert mine.missing == theirs.missing and mine.cohort == theirs.cohort
        assert torch.equal(mine.state.broadcast["theta"], theirs.state.broadcast["theta"])


def test_below_the_minimum_the_run_ends_in_one_line_with_the_memory_of_the_last_good_round():
    three = tuple((client, 1, math.inf) for client in (0, 1, 3))
    task = Task(lambda: TwoNN(6, 5, 3))
    run = simulate(
        Algorithm(Broken(at=three), BySize(), Step()), task, FEDERATION, rounds=3, seed=1, training=TRAINING,
        executor="serial",
    )  # fmt: skip
    first = next(run)
    kept = {client: first.memory.get(client) for client in range(5)}
    with pytest.raises(Diverged) as caught:
        next(run)
    assert str(caught.value) == (
        "round 2: only 2 of 5 updates can be used, 3 are needed (client 0 not finite: theta, client 1 not finite: "
        "theta, client 3 not finite: theta); try a lower lr, a limit on gradients (clip=1) or on updates (bound=median)"
    )
    for client, own in kept.items():
        assert all(torch.equal(part, first.memory.get(client)[name]) for name, part in own.items())
    fewer = Defence(terms=Terms(minimum=0.2))
    assert [len(done.missing) for done in rounds(Broken(at=three), defence=fewer)] == [0, 3, 0]


def test_a_rule_that_needs_everyone_ends_where_one_is_left_out():
    with pytest.raises(Diverged, match="round 1: only 4 of 5 updates can be used, 5 are needed"):
        rounds(Broken(), AAggFFSilo())


def results(rows: np.ndarray, **more) -> Results:
    count = len(rows)
    return Results(torch.arange(count) + 10, torch.ones(count), {"theta": torch.tensor(rows)}, **more)


def test_faults_are_found_in_all_that_is_sent():
    rows = np.ones((6, 4), dtype=np.float32)
    found = results(rows, carry={"buffers": torch.ones(6, 2)}, mean={"control": torch.ones(6, 3)})
    received = {"theta": torch.full((4,), 5.0), "buffers": torch.ones(2), "control": torch.zeros(3)}
    assert faults(found, received) == {}
    found.mix["theta"][0, 1] = math.nan
    found.carry["buffers"][1, 0] = -math.inf
    found.mean["control"][2, 2] = math.inf
    found.mix["theta"][3] = 4.9e6  # of length 9.8e6, and the model's is 10
    found.mix["theta"][4] = -5.1e6
    found.mean["control"][5, 0] = 1.1e6  # a length below 1 counts as 1
    told = {10: "not finite: theta", 11: "not finite: buffers", 12: "not finite: control"}
    told |= {14: "exploded: theta of length 1.0e+07", 15: "exploded: control of length 1.1e+06"}
    assert faults(found, received) == told
    left = without(found, told)
    assert left.ids.tolist() == [13] and left.mix["theta"].shape == (1, 4) and left.carry["buffers"].shape == (1, 2)


def test_sums_that_are_no_update_may_be_of_any_length():
    """FedEvg's weights go up to exp(80)."""
    found = Results(torch.arange(2), torch.ones(2), {"num": torch.full((2, 9), 5e34), "den": torch.full((2, 1), 5e34)})
    assert faults(found, {"x": torch.zeros(9)}) == {}


@pytest.mark.parametrize("bound", [0.5, 3.0, 1e9, "median"])
def test_longer_uploads_are_scaled_down_and_no_others(bound):
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(7, 3, 2)).astype(np.float32) * np.arange(1, 8, dtype=np.float32)[:, None, None]
    more = draw.normal(size=(7, 5)).astype(np.float32)
    found = bounded(results(rows, mean={"control": torch.tensor(more)}), bound)
    whole = np.concatenate([rows.reshape(7, -1), more], axis=1).astype(np.float64)
    norms = np.linalg.norm(whole, axis=1)
    limit = np.median(norms) if bound == "median" else bound
    known = whole * np.minimum(1, limit / norms)[:, None]
    mine = torch.cat([found.mix["theta"].reshape(7, -1), found.mean["control"]], 1).numpy()
    assert mine == pytest.approx(known, rel=1e-5)
    assert lengths(found).numpy() == pytest.approx(np.minimum(norms, limit), rel=1e-6)


def test_a_cohort_of_nobody_is_taken_as_it_is():
    nobody = results(np.zeros((0, 4), dtype=np.float32))
    assert faults(nobody, {"theta": torch.ones(4)}) == {} and bounded(nobody, "median") is nobody


def test_a_bound_that_binds_nobody_changes_no_bit():
    plain, far, near = (
        rounds(catalog.build("fedavg").client, defence=d)[-1] for d in (None, Defence(1e6), Defence(0.01))
    )
    assert torch.equal(plain.state.broadcast["theta"], far.state.broadcast["theta"])
    assert not torch.equal(plain.state.broadcast["theta"], near.state.broadcast["theta"])


def test_a_global_model_that_is_not_finite_ends_the_run():
    @dataclass(frozen=True)
    class Lost(ServerRule):
        def step(self, broadcast, update, state, info):
            return broadcast | {"theta": broadcast["theta"] / 0}, state

    algorithm = Algorithm(catalog.build("fedavg").client, BySize(), Lost())
    run = simulate(algorithm, Task(lambda: TwoNN(6, 5, 3)), FEDERATION, rounds=2, training=TRAINING, executor="serial")
    with pytest.raises(Diverged, match="round 1: diverged, the global theta is not finite; try a lower lr"):
        next(run)


def test_a_loss_has_diverged_where_the_median_client_says_so():
    lines = [{"metrics": {}}, {"metrics": {"loss": {"mean": None}}}, {"metrics": {"loss": {"mean": 2.0}}}]
    assert outgrown(5, torch.tensor([1.0, 1999.0, math.inf]), lines, 1000) == ""
    told = outgrown(5, torch.tensor([1.0, 2001.0, math.nan]), lines, 1000)
    assert told.startswith(
        "round 5: diverged, the median client's loss is 2e+03, more than 1000 times the first (2); try"
    )
    assert outgrown(5, torch.tensor([900.0]), [], 1000) == "" != outgrown(5, torch.tensor([math.nan]), [], 1000)
    assert outgrown(5, torch.tensor([math.nan]), [], 0) == ""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Defence(bound=0.0), "run: bound must be above 0, got 0.0"),
        (lambda: Defence(bound="mean"), "run: bound must be a length above 0 or median, got 'mean'"),
        (lambda: Defence(trim=0.5), "run: combine.trim must be at least 0 and below 0.5, got 0.5"),
        (lambda: Defence(grown=-1), "run: diverged must be at least 0, got -1"),
        (
            lambda: Defence(bound=1.0).check(catalog.build("local")),
            "run: bound limits what is sent, and local sends nothing",
        ),
    ],
)
def test_bad_input_is_one_line(make, message):
    with pytest.raises(FedchordError) as caught:
        make()
    assert str(caught.value) == message
