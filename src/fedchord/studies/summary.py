"""What a run writes down: a line per round and, at the end, the summary with its protocol."""

from __future__ import annotations

import math
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import numpy
import torch
from torch import Tensor

import fedchord
from fedchord.data.federation import Federation
from fedchord.engine.executors import Work
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult
from fedchord.evaluate import Evaluation, deployed
from fedchord.local import Training
from fedchord.rules import Algorithm, ServerState
from fedchord.studies.config import RunConfig
from fedchord.task import Task
from fedchord.tensors import Tensors

ROUND_COLUMNS = ("mean", "std", "worst10", "best10", "gini", "gap", "pooled")
COLUMNS = (*ROUND_COLUMNS, "clients", "undefined", "weighted")


@dataclass(frozen=True)
class Parts:
    """What a run is made of."""

    config: RunConfig
    algorithm: Algorithm
    federation: Federation
    task: Task
    training: Training

    @staticmethod
    def build(config: RunConfig) -> Parts:
        """Read the data and build everything; every mistake is told here."""
        federation = config.federation()
        config.plan().size(federation.num_clients)
        return Parts(config, config.algorithm(), federation, config.task(federation), config.training())

    @property
    def work(self) -> Work:
        """What the engine works with; the training settings are those of the rule."""
        training = self.algorithm.client.local(self.training)
        return Work(self.algorithm, self.task, self.federation, training, self.config.seed)

    def deployed(self, state: ServerState, memory: ClientMemory, client: int) -> Tensors:
        """The model a client would use."""
        own = (memory.get(client) or {}) if state.visits[client] > 0 else None
        return deployed(self.algorithm, self.task, self.federation, state, client, own, self.work.tune)

    def notes(self) -> list[str]:
        """What a reader of the results should know."""
        changed = changes(self.algorithm, self.training)
        return [*self.federation.notes, *([changed] if changed else [])]


def headline(metrics: Sequence[str]) -> str:
    """The metric to show first: AUROC where it is measured, else top-1 accuracy."""
    return "auroc" if "auroc" in metrics else "top1"


def changes(algorithm: Algorithm, training: Training) -> str | None:
    """What the client rule changed in the local training settings, in a sentence; None if nothing."""
    used = algorithm.client.local(training)
    by_value: dict[str, list[str]] = {}
    for part in fields(training):
        if getattr(used, part.name) != getattr(training, part.name):
            by_value.setdefault(_plain(getattr(used, part.name)), []).append(part.name)
    sentences = []
    for value, names in by_value.items():
        before = ", ".join(_plain(getattr(training, name)) for name in names)
        sentences.append(f"{' and '.join(names)} set to {value} ({'was' if len(names) == 1 else 'were'} {before})")
    return f"{algorithm.name}: {'; '.join(sentences)}" if sentences else None


def round_line(result: RoundResult, elapsed: float) -> dict[str, Any]:
    """A round as one line of rounds.jsonl; `elapsed` are the seconds since the run began, over all its sessions."""
    line = {
        "round": result.round,
        "cohort": list(result.cohort),
        "shares": numbers(result.shares),
        "losses": None if result.losses is None else numbers(result.losses),
        "log": {name: number(value) for name, value in result.log.items()},
        "seconds": round(result.seconds, 6),
        "elapsed": round(elapsed, 3),
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
    }
    if result.evaluation is not None:
        line["metrics"] = _table(result.evaluation, ROUND_COLUMNS)
    return line


def summarise(parts: Parts, evaluation: Evaluation, lines: Sequence[dict[str, Any]], elapsed: float) -> dict[str, Any]:
    """The content of summary.json."""
    up, down = (sum(line[f"bytes_{way}"] for line in lines) for way in ("up", "down"))
    rounds = max(1, len(lines))
    return {
        "config": parts.config.values(),
        "protocol": {
            **evaluation.protocol,
            "seed": parts.config.seed,
            "method": method_line(parts.algorithm),
            "notes": parts.notes(),
        },
        "metrics": _table(evaluation, COLUMNS),
        "per_client": _per_client(parts.federation, evaluation),
        "versions": versions(),
        "git": git_hash(),
        "seconds": {"total": round(elapsed, 3), "rounds": round(sum(line["seconds"] for line in lines), 3)},
        "bytes": {
            "up_per_round": up / rounds,
            "down_per_round": down / rounds,
            "up_total": up,
            "down_total": down,
        },
        "rounds": parts.config.rounds,
        "parameters": parts.task.layout.size,
        "executor": parts.config.executor,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def method_line(algorithm: Algorithm) -> str:
    """The method and its three rules with their parameters."""
    return f"{algorithm.name}: {algorithm.client!r}, {algorithm.mixing!r}, {algorithm.server!r}"


def versions() -> dict[str, str]:
    """The versions that results may depend on."""
    return {
        "fedchord": fedchord.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def git_hash() -> str | None:
    """The commit of the current folder's repository, if there is one."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def number(value: float) -> float | None:
    """A number for JSON: None where it is not finite."""
    return value if math.isfinite(value) else None


def numbers(values: Tensor) -> list[float | None]:
    """Numbers for JSON."""
    return [number(value) for value in values.tolist()]


def _table(evaluation: Evaluation, columns: Sequence[str]) -> dict[str, dict[str, float | None]]:
    return {name: {c: number(values[c]) for c in columns} for name, values in evaluation.metrics.items()}


def _per_client(federation: Federation, evaluation: Evaluation) -> dict[str, list[Any]]:
    sizes = federation.part(str(evaluation.protocol["split"])).sizes.tolist()
    return {
        "client": [federation.client_names[client] for client in evaluation.clients],
        "size": [sizes[client] for client in evaluation.clients],
        **{name: numbers(values) for name, values in evaluation.per_client.items()},
    }


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
