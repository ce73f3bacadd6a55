"""Milliseconds a round and memory against clients, cohort and parameters: a table, and with --to a figure.

    .venv/bin/python benchmarks/scale.py --to docs/figures/scale.png   # all points, some minutes
    .venv/bin/python benchmarks/scale.py --to docs/figures/scale.png --seconds 170   # as many as it can

What was measured is kept in a .json file beside the figure: a second call goes on with the points that are missing, and
draws when all are there. Delete the file to measure anew.

Every point is a process of its own, on one thread: a federation of `clients` with ten training rows each that share the
20,000 rows of one table, private models for SuPerFed. The median of the rounds after the first ten, in CPU time of that
thread, on which other work weighs less; memory is the peak beyond what the process had before the federation was made.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

METHODS = ("fedavg", "aaggff-d", "superfed-mm")
CLIENTS = (1_000, 10_000, 100_000, 1_000_000)
COHORTS = (10, 100, 1_000)
HIDDEN = (0, 64, 512, 2048)
ROWS, FEATURES, CLASSES, EACH = 20_000, 20, 5, 10


def point(method: str, clients: int, cohort: int, hidden: int, rounds: int) -> dict[str, float]:
    """One measurement, in this process."""
    import torch

    import fedchord
    from fedchord.data.federation import Federation
    from fedchord.data.ragged import Ragged
    from fedchord.models import LogisticRegression, TwoNN

    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=draw)
    y = torch.randint(0, CLASSES, (ROWS,), generator=draw)
    before, start = _peak(), time.perf_counter()
    sizes = torch.full((clients,), EACH)
    train = Ragged.cut(torch.arange(clients * EACH) % ROWS, sizes)
    none = Ragged.cut(torch.zeros(0, dtype=torch.int64), torch.zeros_like(sizes))
    test = Ragged.cut(torch.arange(clients) % ROWS, torch.ones_like(sizes))
    names = tuple(str(client) for client in range(clients))
    federation = Federation("scale", {"x": x, "y": y}, CLASSES, train, none, test, names)
    made = time.perf_counter() - start
    small = LogisticRegression(FEATURES, CLASSES)
    task = fedchord.Task(TwoNN(FEATURES, hidden, CLASSES) if hidden else small)
    seconds, last = [], time.process_time()
    for _ in fedchord.simulate(
        fedchord.method(method), task, federation, rounds=rounds, cohort=cohort, seed=1, executor="serial"
    ):
        now = time.process_time()
        seconds.append(now - last)
        last = now
    usual = sorted(seconds[min(10, rounds // 2) :])
    return {
        "parameters": task.layout.size,
        "making": made,
        "ms": 1e3 * usual[len(usual) // 2],
        "mb": (_peak() - before) / 1e6,
    }


def _peak() -> float:
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(**what: object) -> dict[str, float]:
    """A point in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--point", json.dumps(what)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def plans() -> list[tuple[str, dict[str, Any]]]:
    """The axis and the settings of every point."""
    found: list[tuple[str, dict[str, Any]]] = []
    for method in METHODS:
        made = [("clients", k, 10, 0) for k in CLIENTS] + [("cohort", 10_000, s, 0) for s in COHORTS]
        made += [("parameters", 10_000, 10, h) for h in HIDDEN]
        for axis, clients, cohort, hidden in made:
            rounds = 40 if cohort < 1000 and hidden < 2048 else 14
            what = {"method": method, "clients": clients, "cohort": cohort, "hidden": hidden, "rounds": rounds}
            found.append((axis, what))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", help="a file for the figure; the numbers go beside it")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further point after so many")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.point:
        print(json.dumps(point(**json.loads(asked.point))))
        return
    file = Path(asked.to).with_suffix(".json") if asked.to else None
    known: dict[str, dict[str, float]] = json.loads(file.read_text()) if file and file.exists() else {}
    axes: dict[str, list[tuple[str, float, dict[str, float]]]] = {"clients": [], "cohort": [], "parameters": []}
    heads = ("method", "clients", "cohort", "parameters", "ms a round", "MB", "made in s")
    print("{:<12} {:>9} {:>6} {:>10} {:>10} {:>7} {:>9}".format(*heads))
    start, left = time.perf_counter(), 0
    for axis, what in plans():
        key = json.dumps(what)
        if key not in known:
            if time.perf_counter() - start > asked.seconds:
                left += 1
                continue
            known[key] = measured(**what)
            if file:
                file.write_text(json.dumps(known, indent=1) + "\n")
        found = known[key]
        at = found["parameters"] if axis == "parameters" else what[axis]
        axes[axis].append((what["method"], at, found))
        print(
            f"{what['method']:<12} {what['clients']:>9} {what['cohort']:>6} {found['parameters']:>10} "
            f"{found['ms']:>10.2f} {found['mb']:>7.0f} {found['making']:>9.2f}",
            flush=True,
        )
    if left:
        print(f"{left} points are left; call again")
    elif asked.to:
        _draw(axes, asked.to)


def _draw(axes: dict[str, list[tuple[str, float, dict[str, float]]]], to: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(2, 3, figsize=(9, 5), sharex="col", constrained_layout=True)
    for column, (axis, points) in enumerate(axes.items()):
        for row, (key, label) in enumerate((("ms", "CPU ms a round"), ("mb", "MB"))):
            place = places[row][column]
            for method, marker in zip(METHODS, "osD", strict=True):
                mine = [(at, found[key]) for name, at, found in points if name == method]
                place.plot(*zip(*mine, strict=True), marker=marker, label=method)
            place.set_xscale("log")
            place.set_yscale("log")
            place.set_ylabel(label if column == 0 else "")
            if row:
                place.set_xlabel(axis)
    places[0][1].legend(fontsize="small")
    figure.savefig(to, dpi=110)


if __name__ == "__main__":
    main()
