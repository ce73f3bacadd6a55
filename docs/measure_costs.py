"""Counts what a visit of every method costs and writes docs/costs.json; without clocks, so the same on any machine.

    python docs/measure_costs.py

Two rounds on the embedded digits with four clients, the second of which is counted: bytes that a client receives and
sends, and what it keeps, in sizes of the method's own model; passes forwards and backwards, and forwards alone, in
numbers of rows, each row of the client's once being one.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from fedchord.catalog import METHODS
from fedchord.engine.simulate import simulate
from fedchord.experiments import build
from fedchord.experiments.config import RunConfig
from fedchord.tensors import num_bytes

FILE = Path(__file__).with_name("costs.json")
SETTINGS = ["clients=4", "cohort=all", "rounds=2", "batch=20", "epochs=1", "seed=1", "split=iid", "executor=serial"]
CLIENTS = 4


def measured(name: str) -> dict[str, float]:
    """The costs of one method, per client and round."""
    model = [] if METHODS[name].model else ["model=smallconv"]
    config = RunConfig.from_pairs([f"method={name}", *SETTINGS, *model])
    federation = build.federation(config)
    task = build.task(config, federation)
    counts: Counter[str] = Counter()
    _count_passes(task, counts)
    algorithm, training = config.algorithm(), config.training()
    run = simulate(
        algorithm, task, federation, rounds=2, cohort=1.0, seed=1, training=training, executor="serial", device="cpu"
    )
    next(run)
    counts.clear()
    last = next(run)
    one = 4 * task.init(1)["theta"].numel()
    rows = int(federation.train.sizes.sum())
    kept = sum(num_bytes(last.memory.get(client) or {}) for client in range(CLIENTS))
    return {
        "down": round(last.bytes_down / CLIENTS / one, 2),
        "up": round(last.bytes_up / CLIENTS / one, 2),
        "kept": round(kept / CLIENTS / one, 2),
        "gradients": round(counts["gradients"] / rows, 2),
        "forwards": round(counts["forwards"] / rows, 2),
    }


def _count_passes(task: Any, counts: Counter[str]) -> None:
    """Count the rows that go through the task's module, with and without a gradient."""

    def seen(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        kind = "gradients" if torch.is_grad_enabled() else "forwards"
        counts[kind] += len(next(iter(inputs[0].values())))

    task._applied.register_forward_pre_hook(seen)


def written(found: dict[str, dict[str, float]]) -> str:
    """The file: a line for each method."""
    return "{\n" + ",\n".join(f'"{name}": {json.dumps(costs)}' for name, costs in found.items()) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(written({name: measured(name) for name in METHODS}))
    sys.stdout.write(f"{FILE.name}: {len(METHODS)} methods\n")
