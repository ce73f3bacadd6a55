"""The long soak: work that is killed (kill -9) at random moments goes on and ends with the bits of work left alone.

    python tests/soak.py --kills 100 --counts soak.json                # all tasks in turn; goes on where it was
    python tests/soak.py --kills 20 --seed 7 run export                # some of them
    python tests/soak.py --every run export                            # killed before each operation on files
    python tests/soak.py --full run export                             # a disk that is full from each of them on
    python tests/soak.py --kills 10 flower                             # processes of Flower; only where it is named

Case n of a task is drawn from the seed, the task and n, and can be had again by them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
warnings.simplefilter("ignore")

from helpers.killed import (
    TASKS,
    Alone,
    Task,
    ended,
    full_at,
    imported,
    kill_at_operation,
    left_alone,
    prepared,
    survive,
)

FLOWER = "flower"
"""The task of real federations, which needs the extra flower and a minute or so for each case."""


def every(task: Task, alone: Alone, home: Path, counts: dict[str, Any]) -> None:
    """Kill before each operation on files, once."""
    known = counts.setdefault(f"{task.name}, every operation", {"kills": 0, "cases": 0, "wrong": []})
    for number in range(known["cases"] + 1, alone.operations + 1):
        prepared(task, home / "killed")
        known["kills"] += kill_at_operation(task.do, home / "killed", number)
        known["cases"] += 1
        if wrong := ended(task, alone, home / "killed"):
            known["wrong"].append(f"operation {number}: {wrong}")
            print(f"{task.name}, operation {number}: {wrong}", flush=True)
        noted(counts)


def drawn(task: Task, alone: Alone, home: Path, counts: dict[str, Any], seed: int, kills: int) -> None:
    """Kill at drawn moments until there were so many kills."""
    known = counts.setdefault(task.name, {"kills": 0, "cases": 0, "wrong": []})
    while known["kills"] < kills:
        case = known["cases"]
        outcome = survive(task, alone, home / "killed", random.Random(f"{seed} {task.name} {case}"))
        known["cases"], known["kills"] = case + 1, known["kills"] + outcome.kills
        if outcome.wrong:
            known["wrong"].append(f"case {case} ({', '.join(outcome.moments)}): {outcome.wrong}")
            print(f"{task.name}, case {case} ({', '.join(outcome.moments)}): {outcome.wrong}", flush=True)
        noted(counts)


def federated(home: Path, counts: dict[str, Any], seed: int, kills: int) -> None:
    """Kill processes of federations over Flower until there were so many kills."""
    from helpers.killed_flower import survive_flower

    known = counts.setdefault(FLOWER, {"kills": 0, "cases": 0, "wrong": [], "moments": []})
    while known["kills"] < kills:
        case = known["cases"]
        outcome = survive_flower(home / "killed", random.Random(f"{seed} {FLOWER} {case}"))
        known["cases"], known["kills"] = case + 1, known["kills"] + outcome.kills
        known["moments"] += outcome.moments
        if outcome.wrong:
            known["wrong"].append(f"case {case} ({', '.join(outcome.moments)}): {outcome.wrong}")
        print(f"{FLOWER}, case {case} ({', '.join(outcome.moments)}): {outcome.wrong or 'the same bits'}", flush=True)
        noted(counts)


def full(task: Task, alone: Alone, home: Path, counts: dict[str, Any]) -> None:
    """A disk that takes nothing from each operation on, once; then it has room again."""
    known = counts.setdefault(f"{task.name}, full disk", {"kills": 0, "cases": 0, "wrong": []})
    for number in range(known["cases"] + 1, alone.taking + 1):
        known["cases"] += 1
        if wrong := full_at(task, alone, home / "full", number):
            known["wrong"].append(f"operation {number}: {wrong}")
            print(f"{task.name}, full from operation {number}: {wrong}", flush=True)
        noted(counts)


def noted(counts: dict[str, Any]) -> None:
    GIVEN.counts.write_text(json.dumps(counts, indent=1) + "\n")


def main() -> None:
    counts: dict[str, Any] = json.loads(GIVEN.counts.read_text()) if GIVEN.counts.exists() else {}
    chosen = GIVEN.tasks or list(TASKS)
    imported()
    with tempfile.TemporaryDirectory(prefix="soak-", dir=GIVEN.home) as place:
        for name in chosen:
            home = Path(place) / name.replace(" ", "-").replace(",", "")
            home.mkdir()
            if name == FLOWER:
                federated(home, counts, GIVEN.seed, -(-GIVEN.kills // len(chosen)))
                continue
            alone = left_alone(TASKS[name], home / "alone")
            assert ended(TASKS[name], left_alone(TASKS[name], home / "twice"), home / "twice") == "", name
            print(f"{name}: alone {alone.seconds:.2f} s, {alone.operations} operations on files", flush=True)
            if GIVEN.every or GIVEN.full:
                (every if GIVEN.every else full)(TASKS[name], alone, home, counts)
            else:
                drawn(TASKS[name], alone, home, counts, GIVEN.seed, -(-GIVEN.kills // len(chosen)))
    for name, known in counts.items():
        print(f"{name}: {known['kills']} kills in {known['cases']} cases, {len(known['wrong'])} wrong")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join((*TASKS, FLOWER)))
    asked.add_argument("--kills", type=int, default=100)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--home", type=Path, help="where the folders are, such as /dev/shm")
    asked.add_argument("--every", action="store_true")
    asked.add_argument("--full", action="store_true")
    asked.add_argument("--counts", type=Path, default=Path("soak.json"))
    GIVEN = asked.parse_args()
    main()
