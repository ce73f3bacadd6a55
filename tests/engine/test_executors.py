import multiprocessing
import os
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from helpers.federations import make_federation
from torch import nn

from fedchord import catalog
from fedchord.check import FedchordError, fail
from fedchord.clients.plain import Plain
from fedchord.core.round import Plan, open_round, open_run
from fedchord.core.rules import Algorithm, ClientRule, Phase
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.executors import make_executor
from fedchord.engine.memory import ClientMemory
from fedchord.engine.processes import Processes
from fedchord.engine.simulate import simulate
from fedchord.engine.vectorised import cannot_vectorise
from fedchord.engine.work import Work, pick_device
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.mixing.static import BySize
from fedchord.models import TwoCNN, TwoNN
from fedchord.servers.step import Step

FEDERATION = make_federation([13, 20, 7, 31, 10, 5])
TRAINING = Training(epochs=2, batch=4, lr=0.1, momentum=0.5)


def last(algorithm, task, executor, **settings):
    settings = {"rounds": 3, "cohort": 4, "seed": 1, "training": TRAINING} | settings
    *_, result = simulate(algorithm, task, settings.pop("federation", FEDERATION), executor=executor, **settings)
    return result


def images():
    federation = make_federation([9, 12, 5], inputs=64)
    x = federation.columns["x"].reshape(-1, 1, 8, 8)
    object.__setattr__(federation, "columns", {"x": x, "y": federation.columns["y"]})
    return federation


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.norm(self.a(x))))


@pytest.mark.parametrize(
    ("make", "federation"),
    [
        (lambda: TwoCNN(1, 8, 3, hidden=8), images()),
        (Normed, FEDERATION),
        (lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.3), nn.Linear(9, 3)), FEDERATION),
        (lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.3).eval(), nn.Linear(9, 3)), FEDERATION),
    ],
    ids=["convolutions", "batch normalisation", "dropout", "a part given in evaluation mode"],
)
def test_any_module_gives_the_same_bits_in_processes(make, federation):
    torch.set_num_threads(2)  # forking after threads were used must not hang or change results
    try:
        torch.randn(400, 400) @ torch.randn(400, 400)
        results = [
            last(catalog.build("fedavg"), Task(make), e, federation=federation, cohort=3)
            for e in ("serial", "processes")
        ]
    finally:
        torch.set_num_threads(1)
    for name in ("theta", "buffers"):
        assert torch.equal(results[0].state.broadcast[name], results[1].state.broadcast[name])


def test_buffers_are_averaged_with_the_shares_and_counters_by_maximum():
    result = last(catalog.build("fedadam"), Task(Normed), "serial", rounds=1)
    batches = max((s + 3) // 4 for s in (len(FEDERATION.train[i]) for i in result.cohort))
    assert result.state.broadcast["buffers"][-1] == 2 * batches
    assert result.state.broadcast["buffers"][6:12].min() > 0


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3)), "draws random numbers"),
        (Normed(), "norm (BatchNorm1d)"),
        (nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))), "parametrisation"),
        (nn.Sequential(nn.Linear(6, 4), nn.LSTM(4, 3)), "recurrent layer (LSTM)"),
    ],
)
def test_vectorised_says_why_not(module, reason):
    with pytest.raises(FedchordError) as error:
        last(catalog.build("fedavg"), Task(module), "vectorised")
    assert reason in str(error.value) and "\n" not in str(error.value)
    if isinstance(module[1] if isinstance(module, nn.Sequential) and len(module) > 1 else None, nn.LSTM):
        return
    lines: list[str] = []
    result = last(catalog.build("fedavg"), Task(module), "auto", report=lines.append)
    assert any(reason in line for line in lines) and torch.isfinite(result.state.broadcast["theta"]).all()


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.linear(x)
        return out * 2 if out.sum() > 0 else out


def test_data_dependent_control_flow_is_found_by_trying():
    work = Work(catalog.build("fedavg"), Task(Branching()), FEDERATION, TRAINING, 0)
    assert "one step failed under vmap" in cannot_vectorise(work)


def test_auto_measures_and_says_what_it_took():
    lines: list[str] = []
    result = last(catalog.build("fedavg"), Task(lambda: TwoNN(6, 5, 3)), "auto", report=lines.append)
    assert any(line.startswith("executor: ") and "a round)" in line for line in lines)
    reference = last(catalog.build("fedavg"), Task(lambda: TwoNN(6, 5, 3)), "serial")
    assert torch.allclose(result.state.broadcast["theta"], reference.state.broadcast["theta"], atol=1e-5)


@dataclass(frozen=True)
class Failing(ClientRule):
    """Fails on one client."""

    kind: str = "bug"

    def phases(self, visit):
        if self.kind == "kill" and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        if visit.client == 2 and visit.info.lr < 1 and self.kind != "kill":
            if self.kind == "bug":
                raise ZeroDivisionError("oh")
            raise fail("Failing", "a user's mistake")
        return (Phase(epochs=visit.info.epochs),)


def test_a_bug_in_a_worker_names_the_client():
    with pytest.raises(RuntimeError, match=r"client 2 failed in round 0:(.|\n)*ZeroDivisionError: oh"):
        last(Algorithm(Failing(), BySize(), Step()), Task(lambda: TwoNN(6, 5, 3)), "processes", cohort=1.0)


def test_a_users_mistake_in_a_worker_stays_one_line():
    with pytest.raises(FedchordError, match=r"^Failing: a user's mistake$"):
        last(Algorithm(Failing("user"), BySize(), Step()), Task(lambda: TwoNN(6, 5, 3)), "processes", cohort=1.0)


def test_a_killed_worker_is_noticed():
    with pytest.raises(RuntimeError, match="a worker process ended"):
        last(Algorithm(Failing("kill"), BySize(), Step()), Task(lambda: TwoNN(6, 5, 3)), "processes", cohort=1.0)


def test_workers_end_with_the_run():
    algorithm, task, plan = catalog.build("fedavg"), Task(lambda: TwoNN(6, 5, 3)), Plan(2, 4, 0)
    state = open_run(algorithm, task, 6, plan)
    executor = Processes(Work(algorithm, task, FEDERATION, TRAINING, 0), state.broadcast, 4, 2)
    info, ids = open_round(state, plan, TRAINING)
    executor.run(state.broadcast, ids, info, ClientMemory())
    workers = list(executor._workers)
    assert len(workers) == 1 and all(worker.is_alive() for worker in workers)
    executor.close()
    assert not any(worker.is_alive() for worker in workers)


class Counted(BySize):
    """Weights by size; it looks at how many threads it has."""

    seen: ClassVar[list[int]] = []

    def weigh(self, state, cohort, info):
        self.seen.append(torch.get_num_threads())
        return super().weigh(state, cohort, info)


def test_a_round_runs_on_one_thread_to_its_end_and_gives_them_back():
    algorithm, before = Algorithm(Plain(), Counted(), Step()), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for _ in simulate(algorithm, Task(lambda: TwoNN(6, 5, 3)), FEDERATION, rounds=3, cohort=4, training=TRAINING):
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert Counted.seen[-3:] == [1, 1, 1] and len(Counted.seen) >= 3


def test_a_client_never_sampled_costs_nothing():
    federation = make_federation([6] * 400)
    result = last(catalog.build("local"), Task(lambda: TwoNN(6, 5, 3)), "serial", federation=federation, cohort=3)
    assert len(result.memory) == len(set(torch.nonzero(result.state.visits.tensor()).flatten().tolist())) <= 9
    assert evaluate(Fitted.of(result)).protocol["never_sampled"] == 400 - len(result.memory)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"executor": "threads"},
            "run: executor must be one of auto, processes, ranks, serial, vectorised, got 'threads'",
        ),
        ({"cohort": 7}, "run: cohort must be at most the number of clients, 6, got 7"),
        ({"cohort": 0.0}, "run: cohort as a share must be above 0 and at most 1, got 0.0"),
        ({"rounds": 0}, "run: rounds must be a whole number of at least 1, got 0"),
        ({"workers": 0}, "run: workers must be a whole number of at least 1, got 0"),
        ({"device": "gpu"}, "run: device must be auto, cpu or cuda, got 'gpu'"),
    ],
)
def test_bad_settings_are_told_in_one_line(settings, line):
    settings = {"executor": "serial"} | settings
    with pytest.raises(FedchordError) as error:
        last(catalog.build("fedavg"), Task(lambda: TwoNN(6, 5, 3)), settings.pop("executor"), **settings)
    assert str(error.value) == line


def test_auto_device_is_the_cpu_without_cuda():
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_cohort_sizes():
    shares = [(0.00054, 9343), (0.00612, 817), (0.002494, 2005), (0.0001, 10), (1.0, 7)]
    assert [Plan(1, share).size(clients) for share, clients in shares] == [5, 5, 5, 1, 7]


def test_bytes_are_those_of_the_tensors():
    result = last(catalog.build("fedavg"), Task(lambda: TwoNN(6, 5, 3)), "serial")
    size = 6 * 5 + 5 + 5 * 5 + 5 + 5 * 3 + 3
    assert result.bytes_down == result.bytes_up == 4 * size * 4
    scaffold = last(catalog.build("scaffold"), Task(lambda: TwoNN(6, 5, 3)), "serial")
    assert scaffold.bytes_down == scaffold.bytes_up == 2 * 4 * size * 4


# -- anything else that is done per client -----------------------------------------------------------------------

EXECUTORS = ("serial", "processes", "vectorised")


def made(name: str, method: str = "fedavg"):
    """An executor of two workers for the toy federation."""
    work = Work.of(catalog.build(method), Task(lambda: TwoNN(6, 5, 3)), FEDERATION, TRAINING, 1)
    executor = make_executor(name, work, work.algorithm.client.opening(work.task, 0), 4, 2)
    assert executor.name == name and executor.work is work
    return closing(executor)


def in_a_worker() -> bool:
    return multiprocessing.parent_process() is not None


def slowly(item: int) -> int:
    """Long enough that nobody takes everything."""
    time.sleep(0.05)
    return os.getpid()


@pytest.mark.parametrize("name", EXECUTORS)
def test_each_gives_the_results_in_the_order_of_the_items(name):
    offset = 0.5  # the function need not be one that could be pickled
    with made(name) as executor:
        assert executor.each(lambda item: item**2 + offset, list(range(40))) == [i**2 + offset for i in range(40)]
        assert executor.each(lambda item: item.upper(), ["b", "a"]) == ["B", "A"]
        assert executor.each(lambda item: item, [[3, 1], [], [2]]) == [[3, 1], [], [2]]
        assert executor.each(slowly, []) == [] and executor.each(slowly, [1]) == [os.getpid()]
        seen = executor.each(slowly, list(range(8)))
        assert len(set(seen)) == (2 if name == "processes" else 1)
        assert executor.each(lambda item: torch.get_num_threads(), [1, 2, 3]) == [1, 1, 1]


@pytest.mark.parametrize("name", EXECUTORS)
def test_each_sees_what_is_there_when_it_is_called(name):
    """Also what was made after the executor, and again in a later call."""
    with made(name) as executor:
        held = torch.zeros(3)
        for value in (1.0, 2.0):
            held.fill_(value)
            assert executor.each(lambda item, held=held: float(held.sum()), [0, 1, 2]) == [3 * value] * 3


@pytest.mark.parametrize("name", EXECUTORS)
def test_tensors_come_back_whole(name):
    """Large ones, views and empty ones, of every type; they are the caller's own when the workers are gone."""

    def drawn(seed: int) -> dict[str, torch.Tensor | tuple]:
        slowly(seed)
        whole = torch.randn(300, 400, generator=torch.Generator().manual_seed(seed))
        few = torch.tensor([seed, -seed]), torch.tensor(seed > 2), torch.zeros(0), whole.double().sum()
        return {"whole": whole, "view": whole.t()[3:5], "few": few}

    with made(name) as executor:
        found = executor.each(drawn, list(range(6)))
    for seed, here in enumerate(found):
        there = drawn(seed)
        assert torch.equal(here["whole"], there["whole"]) and torch.equal(here["view"], there["view"])
        for a, b in zip(here["few"], there["few"], strict=True):
            assert a.dtype == b.dtype and torch.equal(a, b)
        assert torch.equal(here["whole"].add_(1), there["whole"] + 1)


@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize("where", ["here", "there"])
def test_a_users_mistake_in_each_is_raised_as_it_is(name, where):
    def wrong(item: int) -> int:
        slowly(item)
        if name != "processes" or in_a_worker() == (where == "there"):
            raise fail("Rule", "a mistake")
        return item

    with made(name) as executor, pytest.raises(FedchordError) as error:
        executor.each(wrong, list(range(6)))
    assert str(error.value) == "Rule: a mistake" and type(error.value) is FedchordError


@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize("where", ["here", "there"])
def test_a_bug_in_each_names_the_failure(name, where):
    def wrong(item: int) -> float:
        slowly(item)
        spared = name == "processes" and in_a_worker() != (where == "there")
        return item / (1 if spared else 0)

    kind = RuntimeError if name == "processes" else ZeroDivisionError
    with made(name) as executor:
        with pytest.raises(kind, match="division by zero") as error:
            executor.each(wrong, list(range(6)))
        assert name != "processes" or ("a worker failed:" in str(error.value) and "in wrong" in str(error.value))
        assert executor.each(lambda item: item, [1, 2]) == [1, 2]  # the executor is as good as new


def test_a_killed_worker_of_each_is_told_in_one_line():
    def killed(item: int) -> int:
        slowly(item)
        if in_a_worker():
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with made("processes") as executor:
        with pytest.raises(RuntimeError) as error:
            executor.each(killed, list(range(6)))
        assert str(error.value) == "a worker process ended (exit code -9); is memory short?"
        assert executor.each(lambda item: item, [1, 2]) == [1, 2]


@pytest.mark.parametrize("method", ["apfl", "fedavg-ft", "fedper"])
def test_personal_models_are_evaluated_to_the_same_bits_by_every_executor(method):
    """With clients that were never sampled; those of FedAvg-FT and FedPer train before use, in the workers."""
    result = last(catalog.build(method), Task(lambda: TwoNN(6, 5, 3)), "serial", rounds=2, cohort=2)
    fitted, found = Fitted.of(result), {}
    assert (result.state.visits.tensor() == 0).any() and (result.state.visits.tensor() > 0).any()
    assert any(fitted.tunes(client) for client in range(6)) == (method != "apfl")
    plain = evaluate(fitted)
    for name in EXECUTORS:
        executor = make_executor(name, result.work, result.state.broadcast, 4, 2)
        with closing(executor):
            found[name] = evaluate(fitted, executor=executor)
    for name, evaluation in found.items():
        assert evaluation.clients == plain.clients and evaluation.protocol == plain.protocol, name
        assert evaluation.metrics == plain.metrics, name
        for metric, values in plain.per_client.items():
            assert torch.equal(evaluation.per_client[metric], values), (name, metric)
    assert len(set(plain.per_client["loss"].tolist())) == 6


def test_an_executor_of_the_callers_stays_open_and_fits_its_work_alone():
    task = Task(lambda: TwoNN(6, 5, 3))
    with made("processes") as executor:
        work, settings = executor.work, {"rounds": 2, "cohort": 4, "training": TRAINING, "executor": executor}
        *_, first = simulate(work.algorithm, work.task, FEDERATION, seed=1, **settings)
        assert all(worker.is_alive() for worker in executor._workers) and executor._workers
        *_, again = simulate(work.algorithm, work.task, FEDERATION, seed=1, **settings)
        assert torch.equal(first.state.broadcast["theta"], again.state.broadcast["theta"])
        for other in ({"seed": 2}, {"seed": 1, "training": Training()}):
            with pytest.raises(FedchordError, match="simulate: the executor was made for another algorithm, task"):
                next(simulate(work.algorithm, work.task, FEDERATION, **settings | other))
    reference = last(catalog.build("fedavg"), task, "serial", rounds=2)
    assert torch.equal(first.state.broadcast["theta"], reference.state.broadcast["theta"])
