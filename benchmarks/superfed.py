"""SuPerFed: what a local step costs beside FedAvg's, and against mixing inside autograd (W4); the lambda sweep (W6).

    python benchmarks/superfed.py [--turns 7] [--only twocnn]

Contenders take turns in one process; medians and ratios are printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from ours import federation
from torch import Tensor
from torch.func import functional_call
from works import JOBS, Job

from fedchord import Task, Training, method, simulate
from fedchord.core.rules import RoundInfo, ServerState
from fedchord.data import Federation, Ragged
from fedchord.engine.executors import keep_freed_memory, make_executor
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import LAMBDAS, sweep
from fedchord.models import build

MIX = {"warmup": 0.0}


def clocked(contenders: dict[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """Median seconds of each contender; they take turns, and the first turn is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, work in contenders.items():
            start = time.perf_counter()
            work()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def local_steps(job: Job, dense: bool, turns: int) -> None:
    """Milliseconds of a local step: FedAvg, SuPerFed-MM and -LM, one thread."""
    data, epochs = federation(job), min(job.epochs, 4)
    training = Training(epochs, job.batch, job.lr, 0.9, 1e-4)
    info = RoundInfo(5, 10, job.clients, job.cohort, job.lr, epochs, 0)

    def contender(name: str) -> Callable[[], None]:
        task = Task(lambda: build(job.model, job.shape, job.classes), dense=dense)
        algorithm = method(name, {} if name == "fedavg" else MIX)
        work, shared = Work(algorithm, task, data, training, 0), algorithm.client.opening(task, 1)
        # clients come back with what they kept: a private model is made once, not in every round
        kept = {client: work.run(client, shared, None, info)[1] for client in range(2)}
        return lambda: [work.run(client, shared, own, info) for client, own in kept.items()] and None

    torch.set_num_threads(1)
    seconds = clocked({name: contender(name) for name in ("fedavg", "superfed-mm", "superfed-lm")}, turns)
    steps = 2 * epochs * job.rows / job.batch
    for name, value in seconds.items():
        ratio = value / seconds["fedavg"]
        print(f"| {job.model}, {'dense' if dense else 'generic'} | {name} | {value / steps * 1e3:.3f} | {ratio:.2f}x |")


def inside_autograd(job: Job, data: Federation) -> Callable[[], None]:
    """One round of SuPerFed-MM as one would write it: the mixed model is a node of the graph, torch.optim on both."""
    inputs, labels = data.columns["x"].float() / 255, data.columns["y"]

    def one_round() -> None:
        torch.set_num_threads(1)
        module = build(job.model, job.shape, job.classes)
        start = {name: tensor.detach().clone() for name, tensor in module.named_parameters()}
        for client in range(job.cohort):
            near = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
            fresh = build(job.model, job.shape, job.classes)
            far = {name: tensor.detach().clone().requires_grad_() for name, tensor in fresh.named_parameters()}
            both = [*near.values(), *far.values()]
            optimiser = torch.optim.SGD(both, job.lr, job.momentum, weight_decay=job.weight_decay)
            for _ in range(job.epochs):
                for rows in (client * job.rows + torch.randperm(job.rows)).split(job.batch):
                    lam = torch.rand(())
                    mixed = {name: (1 - lam) * near[name] + lam * far[name] for name in near}
                    loss = F.cross_entropy(functional_call(module, mixed, (inputs[rows],)), labels[rows])
                    loss = loss + 0.005 * sum((near[name] - start[name]).square().sum() for name in near)
                    f, g = flat(near), flat(far)
                    loss = loss + F.cosine_similarity(f, g, dim=0) ** 2
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()

    def flat(model: dict[str, Tensor]) -> Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in model.values()])

    return one_round


def whole_rounds(job: Job, turns: int) -> None:
    """W4: a round of SuPerFed-MM with the default executor against mixing inside autograd, one process, one thread."""
    data = federation(job)
    training = Training(job.epochs, job.batch, job.lr, job.momentum, job.weight_decay)
    algorithm = method("superfed-mm", MIX)
    task = Task(lambda: build(job.model, job.shape, job.classes))
    running = simulate(algorithm, task, data, rounds=turns + 2, cohort=job.cohort, training=training)
    seconds = clocked({"fedchord": lambda: next(running) and None, "plain": inside_autograd(job, data)}, turns)
    running.close()
    show("W4", seconds, "mixing inside autograd", 9)


def sweeps(turns: int) -> None:
    """W6: 100 clients x 11 lambdas x 120 rows, against one mixed model at a time with all rows in one batch."""
    torch.set_num_threads(2)
    job = JOBS["W1"]
    task = Task(lambda: build(job.model, job.shape, job.classes))
    data = federation(job)
    data = Federation(
        data.name, data.columns, data.classes, data.train, data.validation, firsts(data, 120), data.client_names
    )
    algorithm = method("superfed-mm", MIX)
    shared, memory = task.init(0), ClientMemory()
    for client in range(100):
        memory.put(client, {"own": task.fresh(client + 1)["theta"], "trained": torch.ones(1)}, 0)
    state = ServerState(1, shared, {}, {}, torch.ones(100, dtype=torch.int32))
    found: dict[str, Tensor] = {}
    fitted = Fitted(Work(algorithm, task, data, Training(), 0), state, memory)
    pool = make_executor("processes", fitted.work, shared, 5)

    def ours() -> None:
        result = sweep(fitted, executor=pool)
        assert result is not None
        found["ours"] = result.test

    def one_by_one() -> None:
        """The module's parameters are set to each mixed model in turn."""
        module, rows = build(job.model, job.shape, job.classes), []
        with torch.no_grad():
            for client in range(100):
                batch, own = data.batch(data.test[client]), memory.get(client)
                assert own is not None
                for lam in LAMBDAS:
                    mixed = task.layout.views((1 - lam) * shared["theta"] + lam * own["own"])
                    for name, parameter in module.named_parameters():
                        parameter.copy_(mixed[name])
                    rows.append((module(batch["x"]).argmax(1) == batch["y"]).double().mean())
        found["plain"] = torch.stack(rows).reshape(100, -1)

    seconds = clocked({"fedchord": ours, "plain": one_by_one}, turns)
    pool.close()
    differing = int((found["ours"] - found["plain"]).abs().gt(1e-9).sum())
    show("W6", seconds, "one mixed model at a time", 3.5)
    print(f"W6: {differing} of 1100 accuracies differ")


def firsts(data: Federation, count: int) -> Ragged:
    """The first rows of every client."""
    return Ragged.of([data.train[client][:count] for client in range(data.num_clients)])


def show(name: str, seconds: dict[str, float], what: str, target: float) -> None:
    """One line of results."""
    ratio = seconds["plain"] / seconds["fedchord"]
    print(f"{name}: {seconds['fedchord']:.4g} s; {what} {seconds['plain']:.4g} s: {ratio:.2f}x (target {target:g}x)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", choices=("twonn", "twocnn", "W4", "W6"), help="one part; without it all")
    options = parser.parse_args()
    asked = (options.only,) if options.only else ("twonn", "twocnn", "W4", "W6")
    keep_freed_memory()
    print("| model | method | ms a step | of FedAvg's |\n|---|---|---|---|")
    for name, dense in (("W1", True), ("W1", False), ("W2", False)):
        if JOBS[name].model in asked:
            local_steps(JOBS[name], dense, options.turns)
    if "W4" in asked:
        whole_rounds(JOBS["W1"], options.turns)
    if "W6" in asked:
        sweeps(options.turns)


if __name__ == "__main__":
    main()
