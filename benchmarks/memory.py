"""Peak memory with 10,000 clients that keep a private TwoNN, 500 of which are ever sampled."""

from __future__ import annotations

import resource

import torch

from fedchord import Task, Training, method, simulate
from fedchord.data import Federation, Ragged
from fedchord.models import TwoNN

CLIENTS, ROWS, SAMPLED, COHORT = 10_000, 6, 500, 10
MODEL = 199_210 * 4 / 2**20
"""Megabytes of one TwoNN."""


def peak() -> float:
    """Peak resident memory of this process and of the largest of its ended workers, in MB."""
    both = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(both) / 1024


def main() -> None:
    total = CLIENTS * ROWS
    columns = {"x": torch.zeros(total, 1, 28, 28, dtype=torch.uint8), "y": torch.randint(0, 10, (total,))}
    rows = Ragged(torch.arange(total), torch.arange(0, total + 1, ROWS))
    tests = Ragged(torch.arange(0, total, ROWS), torch.arange(CLIENTS + 1))
    nothing = Ragged(torch.zeros(0, dtype=torch.int64), torch.zeros(CLIENTS + 1, dtype=torch.int64))
    names = tuple(map(str, range(CLIENTS)))
    federation = Federation("memory", columns, 10, rows, nothing, tests, names)
    rounds, before = SAMPLED // COHORT, peak()
    running = simulate(
        method("local"),
        Task(TwoNN),
        federation,
        rounds=rounds,
        cohort=COHORT,
        training=Training(batch=10),
        executor="processes",
    )
    *_, last = running
    kept = len(last.memory)
    print(
        f"\nMemory: {CLIENTS:,} clients with a private TwoNN, {kept} ever sampled ({kept * MODEL:.0f} MB of models)\n"
    )
    print(f"peak above data and libraries: {peak() - before:.0f} MB, largest worker included (target: within 1024 MB)")


if __name__ == "__main__":
    main()
