"""The speed and memory benchmark: ratios of contenders that ran interleaved on one machine.

    python benchmarks/run.py                                    # fedchord against a plain torch loop
    python benchmarks/run.py --peer fedjax=.venv-fedjax/bin/python   # and against peers in their own environments

Every contender is a process of its own that prints the seconds of its rounds; the contenders take turns, and the table
shows the median over all rounds, its spread (10th to 90th percentile) and the ratio to fedchord's default.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from works import JOBS

HERE = Path(__file__).parent
ROUNDS = {"W1": 4, "W2": 2, "W3": 200}
TARGETS = {  # at least this many times faster than the contender
    ("W1", "plain"): 4.0,
    ("W1", "plain/generic"): 2.0,
    ("W2", "plain"): 1.7,
    ("W3", "plain"): 5.0,
    ("W1", "fedjax"): 1.3,
    ("W3", "fedjax"): 2.0,
    ("W1", "fluke"): 3.0,
    ("W1", "pfl"): 3.0,
    ("W1", "flower"): 3.0,
    ("W3", "fluke"): 8.0,
    ("W3", "pfl"): 8.0,
    ("W3", "flower"): 8.0,
}


def measure(command: list[str], job: str, rounds: int) -> list[float]:
    """Seconds of each round of one contender, in a process of its own; empty if it cannot run the job."""
    done = subprocess.run(
        [*command, job, "--rounds", str(rounds)], capture_output=True, text=True, cwd=HERE, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"  {' '.join(command[1:])}: cannot run {job} ({last})", file=sys.stderr)
        return []
    seconds: list[float] = json.loads(done.stdout.strip().splitlines()[-1])["seconds"]
    return seconds


def spread(seconds: list[float]) -> str:
    """10th to 90th percentile."""
    if len(seconds) < 3:
        return f"{min(seconds):.4g} to {max(seconds):.4g}"
    cuts = statistics.quantiles(seconds, n=10)
    return f"{cuts[0]:.4g} to {cuts[-1]:.4g}"


def compare(job: str, contenders: dict[str, list[str]], turns: int) -> None:
    """Let the contenders take turns on a job and print the table."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns):
        for name, command in contenders.items():
            if turn == 0 or times[name]:
                times[name] += measure(command, job, ROUNDS[job])
    print(f"\n{job}: {JOBS[job].about}\n")
    print("| contender | seconds a round | 10 to 90 % | samples/s | fedchord is faster by | target |")
    print("|---|---|---|---|---|---|")
    medians = {name: statistics.median(seconds) for name, seconds in times.items() if seconds}
    for name, median in medians.items():
        ratio = median / medians["fedchord"]
        target = TARGETS.get((job, name))
        cells = [name, f"{median:.4g}", spread(times[name]), f"{JOBS[job].samples / median:,.0f}"]
        cells += ["" if name == "fedchord" else f"{ratio:.2f}x", f"{target:g}x" if target else ""]
        print(f"| {' | '.join(cells)} |")
    generic = medians["plain"] / medians["fedchord, autograd"]
    print(f"\nGeneric path (dense gradient off) against the plain loop: {generic:.2f}x", end="")
    print(f" (target {TARGETS[job, 'plain/generic']:g}x)" if (job, "plain/generic") in TARGETS else "", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=[*JOBS], help="W1 W2 W3 (default: all)")
    parser.add_argument("--turns", type=int, default=3, help="how often each contender takes its turn")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="a peer and its interpreter")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory benchmark out")
    options = parser.parse_args()
    contenders = {
        "fedchord": [sys.executable, "ours.py"],
        "fedchord, autograd": [sys.executable, "ours.py", "--no-dense"],
        "fedchord, serial": [sys.executable, "ours.py", "--serial"],
        "plain": [sys.executable, "plain.py"],
    }
    for peer in options.peer:
        name, _, python = peer.partition("=")
        # not resolved: the interpreter of a virtual environment is a link, and its place tells which one it is
        contenders[name] = [str(Path(python).absolute()), f"peers/{name}_contender.py"]
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, {options.turns} turns")
    for job in options.jobs:
        compare(job, contenders, options.turns)
    if not options.no_memory:
        subprocess.run([sys.executable, "memory.py"], cwd=HERE, check=True)


if __name__ == "__main__":
    main()
