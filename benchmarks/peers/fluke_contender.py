"""fluke's time for a job, through its own FedAVG, client and server.

One process: fluke trains clients side by side on several GPUs only. One thread for linear models, two for the others
(a second thread gains nothing on the small ones). Models stay in memory, nothing is evaluated, and clients forget their
optimiser after a round, so that momentum starts from nothing as in the other contenders.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.utils import FederationObserver
from networks import network
from works import JOBS, Job

THREADS = {"twonn": 1, "twocnn": 2, "logreg": 1, "lstm-characters": 2, "resnet10": 2}


class Clock(FederationObserver):
    """Notes when each round ends."""

    def __init__(self) -> None:
        self.stamps: list[float] = []

    def end_round(self, round: int) -> None:
        self.stamps.append(time.perf_counter())


def federation(job: Job) -> FedAVG:
    """fluke's federated averaging on the job's clients."""
    inputs, labels = map(torch.from_numpy, job.inputs())
    pairs = zip(inputs.split(job.rows), labels.split(job.rows), strict=True)
    settings = {"num_labels": job.classes, "batch_size": job.batch, "shuffle": True}
    loaders = [FastDataLoader(*pair, **settings) for pair in pairs]
    data = DummyDataContainer(loaders, [None] * job.clients, None, job.classes)
    sgd = DDict(name="SGD", lr=job.lr, momentum=job.momentum, weight_decay=job.weight_decay)
    client = DDict(
        batch_size=job.batch,
        local_epochs=job.epochs,
        loss="CrossEntropyLoss",
        optimizer=sgd,
        scheduler=DDict(name="StepLR", step_size=1, gamma=1),
        persistency=False,
    )
    return FedAVG(job.clients, DataSplitter(data), DDict(client=client, server=DDict(), model=network(job)))


def seconds(job: Job, count: int) -> list[float]:
    """Seconds of each round after the first; the loop is fluke's own, so an observer takes the time."""
    torch.set_num_threads(THREADS[job.model])
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    clock = Clock()
    algorithm = federation(job)
    algorithm.set_callbacks(clock)
    share = (job.cohort + 0.5) / job.clients  # fluke rounds down
    algorithm.run(count, share)
    return [after - before for before, after in itertools.pairwise(clock.stamps)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # fluke draws progress bars
        measured = seconds(JOBS[options.job], options.rounds + 1)
    print(json.dumps({"seconds": measured}))
