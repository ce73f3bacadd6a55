"""fedchord's time for a job: the default executor, or serial; the dense gradient on or off.

`--captured` insists that gradients are a recorded list of operations in the end, which is how a long run spends its
time; `--warm` has to be long enough for that, see `warm`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
import torch
from works import Job, contend

from fedchord import Task, Training, method, simulate
from fedchord.core import captured
from fedchord.core.rules import SamplesRule, ServerState
from fedchord.data import Federation, Ragged
from fedchord.engine.executors import cores, make_executor
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import sweep
from fedchord.models import build


def federation(job: Job, tested: int = 1) -> Federation:
    """The job's data; the first rows of each client are its test rows too."""
    x, y = job.data()
    rows = torch.arange(len(y)).split(job.rows)
    nothing = Ragged.of([torch.zeros(0, dtype=torch.int64)] * job.clients)
    columns = {"x": torch.from_numpy(x), "y": torch.from_numpy(y.astype(np.int64))}
    names, test = tuple(map(str, range(job.clients))), Ragged.of([r[:tested] for r in rows])
    return Federation(job.name, columns, job.classes, Ragged.of(rows), nothing, test, names)


def warm(job: Job) -> int:
    """Rounds after which every process has a recorded gradient, however unevenly they shared the clients."""
    fewest = max(1, job.cohort // cores()) * job.steps
    return math.ceil(1.3 * captured.AFTER / fewest) + 1


def rounds(job: Job, count: int, options: argparse.Namespace) -> Iterator[None]:
    """One round at a time."""
    if job.points:
        yield from sweeps(job, count)
        return
    algorithm, data = method(job.method), federation(job)
    rule = algorithm.client
    given = rule.options() if isinstance(rule, SamplesRule) else {}
    task = Task(lambda: build(job.model, job.shape, job.classes, given), dense=not options.no_dense, inputs=data.inputs)
    training = Training(job.epochs, job.batch, job.lr, job.momentum, job.weight_decay)
    executor = "serial" if options.serial else "processes"
    running = simulate(algorithm, task, data, rounds=count, cohort=job.cohort, training=training, executor=executor)
    for _ in range(count):
        next(running)
        yield
    running.close()
    if options.captured and (task._captured is None or not any(task._captured._found.values())):
        raise RuntimeError("no recorded gradient was in force")


def sweeps(job: Job, count: int) -> Iterator[None]:
    """The accuracies of all clients at all points between their two models, again and again."""
    data = federation(job, job.rows)
    task = Task(lambda: build(job.model, job.shape, job.classes))
    shared, memory = task.init(0), ClientMemory()
    for client in range(job.clients):
        memory.put(client, {"own": task.fresh(client + 1)["theta"], "trained": torch.ones(1)}, 0)
    state = ServerState(1, shared, {}, {}, torch.ones(job.clients, dtype=torch.int32))
    fitted = Fitted(Work(method(job.method), task, data, Training(), 0), state, memory)
    pool = make_executor("processes", fitted.work, shared, 5)
    for _ in range(count):
        found = sweep(fitted, executor=pool)
        assert found is not None and found.test.shape == (job.clients, job.points)
        yield
    pool.close()


if __name__ == "__main__":
    contend(rounds, "--serial", "--no-dense", "--captured")
