"""A round by `ranks` on 1, 2 and 4 processes, beside `serial` and `processes`: FedAvg and SuPerFed-MM, in turns.

    .venv/bin/python benchmarks/ranks.py [W1 W3] [--methods fedavg superfed-mm] [--turns 2] [--compress bytes]

Every contender is a job of its own (ranks by torchrun on 127.0.0.1, the others in one process) that prints the seconds
of its rounds; the first is warm-up. All of them end with the same model, to the bit, which is checked. On two cores
four processes have half a core each: that row says what more processes than cores cost.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from works import JOBS, Job

CONTENDERS = ("serial", "processes", "ranks 1", "ranks 2", "ranks 4")


def measured(job: Job, method: str, executor: str, rounds: int, compress: str | None) -> dict[str, Any]:
    """The rounds of one contender, in this process."""
    import torch
    from ours import federation

    import fedchord
    from fedchord.models import build

    torch.set_num_threads(1)
    task = fedchord.Task(lambda: build(job.model, job.shape, job.classes))
    training = fedchord.Training(job.epochs, job.batch, job.lr, job.momentum, job.weight_decay)
    seconds, results, last = [], [], time.perf_counter()
    for result in fedchord.simulate(
        fedchord.method(method),
        task,
        federation(job),
        rounds=rounds + 1,
        cohort=job.cohort,
        seed=1,
        training=training,
        executor=executor,
        compress=compress,
    ):
        now = time.perf_counter()
        seconds.append(now - last)
        results, last = [result], now
    theta = results[0].state.broadcast["theta"].contiguous()
    return {
        "seconds": seconds[1:],
        "model": hashlib.sha256(theta.numpy().tobytes()).hexdigest(),
        "bytes": results[0].bytes_up // job.cohort,
    }


def contend(job: Job, method: str, contender: str, asked: argparse.Namespace) -> dict[str, Any]:
    """One turn of a contender, in processes of its own."""
    executor, _, count = contender.partition(" ")
    one = json.dumps([job.name, method, executor, asked.rounds, asked.compress])
    command = [sys.executable]
    if count:
        command += ["-m", "torch.distributed.run", "--nproc-per-node", count, "--rdzv-backend", "c10d"]
        command += ["--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, __file__, "--one", one], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", default=["W1", "W3"])
    parser.add_argument("--methods", nargs="*", default=["fedavg", "superfed-mm"])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--compress", choices=["half", "bytes"])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        name, method, executor, rounds, compress = json.loads(asked.one)
        found = measured(JOBS[name], method, executor, rounds, compress)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(found))
        return
    for name in asked.works:
        for method in asked.methods:
            _table(JOBS[name], method, asked)


def _table(job: Job, method: str, asked: argparse.Namespace) -> None:
    print(f"\n### {method} on {job.name}: {job.about}\n", flush=True)
    found: dict[str, list[dict[str, Any]]] = {contender: [] for contender in CONTENDERS}
    for _ in range(asked.turns):
        for contender, turns in found.items():
            turns.append(contend(job, method, contender, asked))
    models = {turn["model"] for turns in found.values() for turn in turns}
    first = statistics.median(second for turn in found["serial"] for second in turn["seconds"])
    print("| executor | ms a round | 10 to 90 % | serial takes |\n|---|---|---|---|")
    for contender, turns in found.items():
        seconds = sorted(second for turn in turns for second in turn["seconds"])
        low, high = (seconds[round(share * (len(seconds) - 1))] for share in (0.1, 0.9))
        usual = statistics.median(seconds)
        print(f"| {contender} | {1e3 * usual:.1f} | {1e3 * low:.1f} to {1e3 * high:.1f} | {first / usual:.2f}x |")
    same = "all models have the same bits" if len(models) == 1 else f"THE MODELS DIFFER: {len(models)} kinds"
    print(f"\n{same}; an upload is {found['serial'][0]['bytes']:,} bytes", flush=True)


if __name__ == "__main__":
    main()
