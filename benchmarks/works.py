"""The works that are timed, as plain numbers and NumPy arrays, so that every contender can read them."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Job:
    """One federated workload: data shapes, model, local training, clients a round."""

    name: str
    about: str
    model: str
    shape: tuple[int, ...]
    clients: int
    rows: int
    cohort: int
    epochs: int
    batch: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    classes: int = 10
    method: str = "fedavg"
    tokens: bool = False
    points: int = 0
    """Where models are measured and not trained: so many of them between two, for each client."""

    @property
    def samples(self) -> int:
        """Training samples processed in a round, or rows measured."""
        return self.cohort * self.rows * (self.points or self.epochs)

    @property
    def steps(self) -> int:
        """Batches of a visit."""
        return self.epochs * -(-self.rows // self.batch)

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Random bytes in the shape of the images, or tokens, and labels; client i holds rows i*n to (i+1)*n."""
        generator = np.random.default_rng(0)
        total = self.clients * self.rows
        kind, levels = (np.int64, self.classes) if self.tokens else (np.uint8, 256)
        x = generator.integers(0, levels, (total, *self.shape), dtype=kind)
        return x, generator.integers(0, self.classes, total)

    def inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """The same as a model takes them: bytes as numbers from 0 to 1."""
        x, y = self.data()
        return x if self.tokens else x.astype(np.float32) / np.float32(255), y

    def cohorts(self, rounds: int) -> Iterator[list[int]]:
        """The clients of each round."""
        generator = np.random.default_rng(1)
        for _ in range(rounds):
            yield sorted(generator.choice(self.clients, self.cohort, replace=False).tolist())


SGD = {"momentum": 0.9, "weight_decay": 1e-4}
JOBS = {
    job.name: job
    for job in (
        Job(
            name="W1",
            about="TwoNN, MNIST shapes, 5 of 100 clients, 480 rows, E=10, B=10",
            model="twonn",
            shape=(1, 28, 28),
            clients=100,
            rows=480,
            cohort=5,
            epochs=10,
            batch=10,
            lr=0.01,
            **SGD,
        ),
        Job(
            name="W2",
            about="TwoCNN, CIFAR shapes, 5 of 20 clients, 400 rows, E=1, B=10",
            model="twocnn",
            shape=(3, 32, 32),
            clients=20,
            rows=400,
            cohort=5,
            epochs=1,
            batch=10,
            lr=0.01,
            **SGD,
        ),
        Job(
            name="W3",
            about="logistic regression, 10 of 1000 clients, 60 rows, E=1, B=10",
            model="logreg",
            shape=(1, 28, 28),
            clients=1000,
            rows=60,
            cohort=10,
            epochs=1,
            batch=10,
            lr=0.03,
        ),
        Job(
            name="W7",
            about="StackedLSTM, Shakespeare shapes (80 characters of 80), 5 of 20 clients, 40 rows, E=1, B=10",
            model="lstm-characters",
            shape=(80,),
            clients=20,
            rows=40,
            cohort=5,
            epochs=1,
            batch=10,
            lr=0.5,
            classes=80,
            tokens=True,
        ),
        Job(
            name="W8",
            about="ResNet-10 with GroupNorm, CIFAR shapes, 5 of 20 clients, 40 rows, E=1, B=10",
            model="resnet10",
            shape=(3, 32, 32),
            clients=20,
            rows=40,
            cohort=5,
            epochs=1,
            batch=10,
            lr=0.01,
            **SGD,
        ),
        Job(
            name="W9-fedevg",
            about="FedEvg, small ConvNet, MNIST shapes, visits of 3 steps (B=32, chain 32), 5 of 20 clients",
            model="smallconv",
            shape=(1, 28, 28),
            clients=20,
            rows=96,
            cohort=5,
            epochs=1,
            batch=32,
            lr=0.001,
            method="fedevg",
        ),
        Job(
            name="W9-witness",
            about="fedevg-witness, small ConvNet, MNIST shapes, visits of one batch of 64 rows, 5 of 20 clients",
            model="smallconv",
            shape=(1, 28, 28),
            clients=20,
            rows=64,
            cohort=5,
            epochs=1,
            batch=64,
            lr=0.001,
            method="fedevg-witness",
        ),
        Job(
            name="W10",
            about="accuracy of 500 clients x 11 lambdas x 120 rows, TwoNN, MNIST shapes",
            model="twonn",
            shape=(1, 28, 28),
            clients=500,
            rows=120,
            cohort=500,
            epochs=0,
            batch=10,
            lr=0.01,
            method="superfed-mm",
            points=11,
        ),
    )
}


def contend(rounds: Callable[[Job, int, argparse.Namespace], Iterator[None]], *flags: str) -> None:
    """The main function of a contender: run a job for some rounds, print the seconds of each as JSON.

    `rounds(job, n, options)` is a generator that yields after every round. The first ones, by default one, warm up and
    are not counted.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    ends = [time.perf_counter() for _ in rounds(JOBS[options.job], options.rounds + options.warm, options)]
    counted = ends[options.warm - 1 :]
    print(json.dumps({"seconds": [after - before for before, after in itertools.pairwise(counted)]}))
