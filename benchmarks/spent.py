"""Where the time of a round goes: by kind of work, and within a local step by kind of operation.

    python benchmarks/spent.py [W1 W2 ...] [--rounds 3]

The first table is that of `fedchord run ... profile=true`, over whole rounds on one process and on all; waiting is what
processes wait for each other, as the last of five equal clients keeps one of two cores. The second is of torch's
profiler, over one client's visit, and says at which rate products and convolutions run beside that of a large matrix
product on one core. It counts elapsed time: let nothing else run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from floor import SIDE, operations
from ours import rounds
from torch.profiler import ProfilerActivity, profile
from works import JOBS, Job

from fedchord.core.clock import DATA, KINDS, MIXING, MODEL, OTHER, UPDATE, WAITING, watch
from fedchord.experiments.profile import totals

SHOWN = (DATA, MODEL, UPDATE, MIXING, OTHER)
OPERATIONS = {  # by how the names of torch's operations begin
    "convolutions": ("aten::mkldnn_convolution", "aten::convolution_backward"),
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::mv", "aten::mkldnn_rnn_layer"),
    "norms": ("aten::native_group_norm",),
    "pooling": ("aten::max_pool2d", "aten::mean"),
    "activations": ("aten::clamp_min", "aten::relu", "aten::threshold", "aten::silu", "aten::add"),
    "update": ("aten::_fused",),
}


def by_kind(job: Job, serial: bool, count: int) -> dict[str, float]:
    """Seconds of all processes by kind of work, over some rounds after the first."""
    options = argparse.Namespace(serial=serial, no_dense=False, captured=False)
    with watch() as clock:
        running: Iterator[None] = rounds(job, count + 1, options)
        next(running)
        before = totals(clock)
        for _ in running:
            pass
        after = totals(clock)
    return {kind: after[kind] - before[kind] for kind in KINDS}


def by_operation(job: Job) -> tuple[dict[str, float], float]:
    """Processor seconds of a visit by kind of operation, and operations a second in products and convolutions."""
    one = replace(job, clients=1, cohort=1)
    running = rounds(one, 2, argparse.Namespace(serial=True, no_dense=False, captured=False))
    next(running)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        next(running)
    running.close()
    found = dict.fromkeys([*OPERATIONS, "the rest"], 0.0)
    for event in profiled.key_averages():
        kind = next((k for k, starts in OPERATIONS.items() if event.key.startswith(starts)), "the rest")
        found[kind] += event.self_cpu_time_total / 1e6
    rate = operations(job) / job.cohort / (found["convolutions"] + found["products"])
    return found, rate


def peak() -> float:
    """Operations a second of a large product on one core, the best of several."""
    torch.set_num_threads(1)
    one, other = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(one, other)
        spent.append(time.perf_counter() - start)
    return 2 * SIDE**3 / min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=["W1", "W2", "W8"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"| job | executor | {' | '.join(SHOWN)} | outside the model and its update | waiting of all time |")
    print("|---" * (len(SHOWN) + 4) + "|")
    for name in options.jobs:
        for serial in (True, False):
            found = by_kind(JOBS[name], serial, options.rounds)
            whole = sum(found.values())
            busy = whole - found[WAITING]
            shares = [f"{100 * found[kind] / busy:.1f} %" for kind in SHOWN]
            shares += [f"{100 * (1 - (found[MODEL] + found[UPDATE]) / busy):.1f} %"]
            shares += [f"{100 * found[WAITING] / whole:.1f} %"]
            print(f"| {name} | {'serial' if serial else 'processes'} | {' | '.join(shares)} |", flush=True)
    print(f"\n| job | {' | '.join([*OPERATIONS, 'the rest'])} | products and convolutions run at |")
    print("|---" * (len(OPERATIONS) + 3) + "|")
    best = peak()
    for name in options.jobs:
        spent, rate = by_operation(JOBS[name])
        shares = [f"{100 * seconds / sum(spent.values()):.1f} %" for seconds in spent.values()]
        print(f"| {name} | {' | '.join(shares)} | {rate / 1e9:.0f} of {best / 1e9:.0f} GFLOP/s |", flush=True)


if __name__ == "__main__":
    main()
