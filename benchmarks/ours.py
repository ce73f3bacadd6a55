"""fedchord's time for a job: the default executor, or serial; the dense gradient on or off."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from works import Job, contend

from fedchord import Task, Training, method, simulate
from fedchord.data import Federation, Ragged
from fedchord.models import build


def federation(job: Job) -> Federation:
    """The job's data; one test row per client, since evaluation is not timed."""
    x, y = job.data()
    rows = torch.arange(len(y)).split(job.rows)
    nothing = Ragged.of([torch.zeros(0, dtype=torch.int64)] * job.clients)
    columns = {"x": torch.from_numpy(x), "y": torch.from_numpy(y.astype(np.int64))}
    names = tuple(map(str, range(job.clients)))
    return Federation(job.name, columns, job.classes, Ragged.of(rows), nothing, Ragged.of([r[:1] for r in rows]), names)


def rounds(job: Job, count: int, options: argparse.Namespace) -> Iterator[None]:
    """One round at a time."""
    task = Task(lambda: build(job.model, job.shape, job.classes), dense=not options.no_dense)
    training = Training(job.epochs, job.batch, job.lr, job.momentum, job.weight_decay)
    executor = "serial" if options.serial else "processes"
    running = simulate(
        method("fedavg"),
        task,
        federation(job),
        rounds=count,
        cohort=job.cohort,
        training=training,
        executor=executor,
    )
    for _ in range(count):
        next(running)
        yield
    running.close()


if __name__ == "__main__":
    contend(rounds, "--serial", "--no-dense")
