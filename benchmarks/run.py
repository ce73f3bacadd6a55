"""The speed and memory benchmark: ratios of contenders that ran interleaved on one machine.

    python benchmarks/run.py                                # fedchord against a plain torch loop
    python benchmarks/run.py W1 W2 --peers .peers           # and against the peers whose environments peers.py has made
    python benchmarks/run.py --to results.md                # the tables into a file, too

Every contender is a process of its own that prints the seconds of its rounds; the contenders take turns, and the table
shows the median over all rounds, its spread (10th to 90th percentile) and the ratio to fedchord's default.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

from ours import warm
from works import JOBS

HERE = Path(__file__).parent
GROUPS = {"W9": ["W9-fedevg", "W9-witness"]}
"""Works of several jobs."""
ROUNDS = {"W1": 4, "W2": 2, "W3": 120, "W7": 2, "W8": 2, "W9-fedevg": 4, "W9-witness": 10, "W10": 2}
FEWER = {("W3", "flower"): 20}
PEERS = {  # who runs what
    "fedjax": ("W1", "W3"),
    "pfl": ("W1", "W2", "W3", "W7", "W8"),
    "flower": ("W1", "W2", "W3", "W7", "W8"),
    "fluke": ("W1", "W2", "W3", "W7", "W8"),
}
TARGETS = {  # at least this many times faster than the contender
    ("W1", "plain"): 4.0,
    ("W1", "plain/autograd"): 2.0,
    ("W1", "fedjax/autograd"): 1.3,
    ("W2", "plain"): 2.0,
    ("W3", "plain"): 5.0,
    ("W8", "plain"): 2.0,
    ("W1", "fedjax"): 1.3,
    ("W3", "fedjax"): 2.0,
    ("W1", "fluke"): 3.0,
    ("W1", "pfl"): 3.0,
    ("W1", "flower"): 3.0,
    ("W2", "pfl"): 1.25,
    ("W3", "fluke"): 8.0,
    ("W3", "pfl"): 8.0,
    ("W3", "flower"): 8.0,
    ("W8", "pfl"): 1.25,
}
AUTOGRAD = "fedchord, autograd"

Times = dict[str, list[float]]


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
    cuts = statistics.quantiles(seconds, n=10, method="inclusive")
    return f"{cuts[0]:.4g} to {cuts[-1]:.4g}"


def contenders(job: str, pythons: dict[str, Path]) -> dict[str, list[str]]:
    """Who takes part in a job, and by which command."""
    ours = [sys.executable, "ours.py"]
    found = {"fedchord": ours}
    if JOBS[job].model in ("twonn", "logreg") and not JOBS[job].points:  # elsewhere autograd is all there is
        found[AUTOGRAD] = [*ours, "--no-dense", "--captured", "--warm", str(warm(JOBS[job]))]
    if not JOBS[job].points:
        found["fedchord, serial"] = [*ours, "--serial"]
    found["plain"] = [sys.executable, "plain.py"]
    for name, python in pythons.items():
        if job in PEERS[name]:
            found[name] = [str(python), f"peers/{name}_contender.py"]
    return found


def compared(job: str, commands: dict[str, list[str]], turns: int) -> list[str]:
    """Let the contenders take turns on a job: the lines of its table, and what follows from it."""
    times: Times = {name: [] for name in commands}
    for turn in range(turns):
        for name, command in commands.items():
            if turn == 0 or times[name]:
                times[name] += measure(command, job, FEWER.get((job, name), ROUNDS[job]))
    medians = {name: statistics.median(seconds) for name, seconds in times.items() if seconds}
    lines = [f"### {job}: {JOBS[job].about}", ""]
    lines += ["| contender | seconds a round | 10 to 90 % | samples/s | fedchord is faster by | target |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, median in medians.items():
        target = TARGETS.get((job, name))
        cells = [name, f"{median:.4g}", spread(times[name]), f"{JOBS[job].samples / median:,.0f}"]
        cells += [
            "" if name == "fedchord" else f"{median / medians['fedchord']:.2f}x",
            f"{target:g}x" if target else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", *generic(job, medians), floor(job, medians["fedchord"]), ""]


def generic(job: str, medians: dict[str, float]) -> list[str]:
    """How the path by autograd compares, where fedchord has another one."""
    if AUTOGRAD not in medians:
        return []
    parts = []
    for name, median in medians.items():
        if not name.startswith("fedchord"):
            target = TARGETS.get((job, f"{name}/autograd"))
            parts.append(f"{name} {median / medians[AUTOGRAD]:.2f}x" + (f" (target {target:g}x)" if target else ""))
    told = f"after {warm(JOBS[job])} rounds that are not counted, so that its gradient is recorded in every process"
    return [f"fedchord by autograd ({told}) is faster than {', '.join(parts)}.", ""]


def floor(job: str, seconds: float) -> str:
    """The arithmetic floor of a job, and how near fedchord is."""
    done = subprocess.run([sys.executable, "floor.py", job], capture_output=True, text=True, cwd=HERE, check=True)
    told = json.loads(done.stdout.strip().splitlines()[-1])
    least = told["operations"] / told["peak"]
    sizes = f"{told['operations'] / 1e9:.4g} GFLOP in products and convolutions at {told['peak'] / 1e9:.0f} GFLOP/s"
    return f"Arithmetic floor: {sizes}, {least:.4g} s; fedchord takes {seconds / least:.2f} times that."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=[*JOBS], help=f"{', '.join([*JOBS, *GROUPS])} (default: all)")
    parser.add_argument("--turns", type=int, default=2, help="how often each contender takes its turn")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="environments of peers, by their names")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="a peer and its interpreter")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the tables there, too, as Markdown")
    parser.add_argument("--memory", action="store_true", help="the memory benchmark, too")
    options = parser.parse_args()
    # not resolved: the interpreter of a virtual environment is a link, and its place tells which one it is
    pythons = {name: Path(python).absolute() for name, _, python in (peer.partition("=") for peer in options.peer)}
    if options.peers:
        pythons |= {n: p.absolute() for n in PEERS if (p := options.peers / n / "bin" / "python").exists()}
    written: list[str] = []

    def tell(lines: list[str]) -> None:
        written.extend(lines)
        print("\n".join(lines), flush=True)
        if options.to:
            options.to.write_text("\n".join(written))

    command = " ".join(["benchmarks/run.py", *sys.argv[1:]])
    machine = (
        f"{os.cpu_count()} cores ({platform.processor() or platform.machine()}), Python {platform.python_version()}"
    )
    tell([f"`{command}`, {time.strftime('%Y-%m-%d')}, {machine}, {options.turns} turns, medians over all rounds.", ""])
    for job in [part for name in options.jobs for part in GROUPS.get(name, [name])]:
        tell(compared(job, contenders(job, pythons), options.turns))
    if options.memory:
        subprocess.run([sys.executable, "memory.py"], cwd=HERE, check=True)


if __name__ == "__main__":
    main()
