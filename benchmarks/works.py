"""The works that are timed, as plain numbers and NumPy arrays, so that every contender can read them."""

from __future__ import annotations

import argparse
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

    @property
    def samples(self) -> int:
        """Training samples processed in a round."""
        return self.cohort * self.rows * self.epochs

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Random bytes in the shape of the images, and labels; client i holds rows i*n to (i+1)*n."""
        generator = np.random.default_rng(0)
        total = self.clients * self.rows
        x = generator.integers(0, 256, (total, *self.shape), dtype=np.uint8)
        return x, generator.integers(0, self.classes, total)

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
    )
}


def contend(rounds: Callable[[Job, int, argparse.Namespace], Iterator[None]], *flags: str) -> None:
    """The main function of a contender: run a job for some rounds, print the seconds of each as JSON.

    `rounds(job, n, options)` is a generator that yields after every round; the first round warms up and is not counted.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    seconds = []
    start = None
    for _ in rounds(JOBS[options.job], options.rounds + 1, options):
        now = time.perf_counter()
        if start is not None:
            seconds.append(now - start)
        start = time.perf_counter()
    print(json.dumps({"seconds": seconds}))
