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
from fedchord.core.rules import Algorithm, ClientRule, RoundInfo, ServerState
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.executors import Work
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult, pick_device
from fedchord.evaluation.evaluate import Evaluation, deployed, evaluate
from fedchord.evaluation.newcomers import Welcome, divide, welcome
from fedchord.evaluation.sweep import Sweep, sweep, unvalidated
from fedchord.experiments.config import RunConfig
from fedchord.experiments.synthesis import synthesis
from fedchord.synthetic.set import SyntheticSet, drawn
from fedchord.tensors import Tensors

ROUND_COLUMNS = ("mean", "std", "worst10", "best10", "gini", "gap", "pooled")
COLUMNS = (*ROUND_COLUMNS, "clients", "undefined", "weighted")
FEW = 10
"""A lambda chosen on fewer validation rows is worth a word."""
FEW_ROWS = f"lambda is chosen on fewer than {FEW} validation rows"
"""How that note begins."""


Numbers = dict[str, dict[str, float | None]]
"""Numbers by metric and column."""


@dataclass(frozen=True)
class Parts:
    """What a run is made of."""

    config: RunConfig
    algorithm: Algorithm
    federation: Federation
    task: Task
    training: Training
    newcomers: Federation | None = None

    @staticmethod
    def build(config: RunConfig, device: str | None = None) -> Parts:
        """Read the data and build everything, on the run's device unless told otherwise; mistakes are told here."""
        federation, late = divide(config.federation(), config.newcomers or 0, config.seed)
        config.plan().size(federation.num_clients)
        place, task = pick_device(device or config.device), config.task(federation)
        late = late and late.to(place)
        return Parts(config, config.algorithm(), federation.to(place), task.to(place), config.training(), late)

    @property
    def work(self) -> Work:
        """What the engine works with; the training settings are those of the rule."""
        training = self.algorithm.client.local(self.training)
        return Work(self.algorithm, self.task, self.federation, training, self.config.seed)

    def deployed(self, state: ServerState, memory: ClientMemory, client: int) -> Tensors:
        """The model a client would use."""
        own = (memory.get(client) or {}) if state.visits[client] > 0 else None
        return deployed(self.algorithm, self.task, self.federation, state, client, own, self.work.tune)

    def measured(self, state: ServerState, memory: ClientMemory) -> Evaluation:
        """Every client's deployed model on its own test rows."""
        judge, seed, tune = self.config.judged_by(), self.config.seed, self.work.tune
        return evaluate(self.algorithm, self.task, self.federation, state, memory, tune=tune, judge=judge, seed=seed)

    def drawn(self, state: ServerState) -> SyntheticSet:
        """The synthetic set of the server, for methods that end with samples."""
        return drawn(self.algorithm, self.task, self.federation, state, self.config.seed)

    def looked(self, evaluation: Evaluation, lines: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """Bounds, quality, privacy and bytes of a synthetic set, for methods that end with samples."""
        made = evaluation.samples
        return None if made is None else synthesis(self, made, lines, headline(tuple(evaluation.metrics)))

    def swept(self, state: ServerState, memory: ClientMemory, metric: str = "") -> Sweep | None:
        """A metric (the headline) along lambda, for methods with two models."""
        if self.algorithm.outcome == "samples":
            return None
        metric, lambdas = metric or headline(self.task.objective.metrics), self.config.lambdas()
        return sweep(self.algorithm, self.task, self.federation, state, memory, metric, lambdas, self.work.tune)

    def welcomed(self, state: ServerState) -> Welcome | None:
        """What the newcomers measure with the last model, if there are any."""
        if self.newcomers is None:
            return None
        epochs, seed = self.config.choices()["newcomer_epochs"], self.config.seed
        return welcome(self.algorithm, self.task, self.newcomers, state, self.training, epochs, seed)

    def notes(self) -> list[str]:
        """What a reader of the results should know."""
        found = [*self.federation.notes]
        if changed := changes(self.algorithm, self.training):
            found.append(changed)
        if self.newcomers is not None:
            late, trained = self.newcomers.num_clients, self.federation.num_clients
            found.append(f"newcomers: {late} of {late + trained} clients were kept out of training")
        sweeps = type(self.algorithm.client).endpoints is not ClientRule.endpoints
        if self.config.sweep_lambdas is not None and not sweeps:
            found.append(f"{self.config.method} has one model: sweep.lambdas has no effect")
        if self.config.validation > 0 and sweeps:
            reason = unvalidated(self.federation)
            found += [f"validated: {reason}"] if reason else self._few()
        return found + self._start()

    def _few(self) -> list[str]:
        """A word about clients whose lambda is chosen on very few rows."""
        tested = self.federation.test.sizes > 0
        least = int(self.federation.validation.sizes[tested].min())
        few = int((self.federation.validation.sizes[tested] < FEW).sum())
        rows = "row" if least == 1 else "rows"
        told = f"{FEW_ROWS} of {few} of {int(tested.sum())} clients, the smallest has {least} {rows}"
        return [told] if few else []

    def _start(self) -> list[str]:
        """Where mixing never begins, and which of two keys says when it does."""
        client, config, found = self.algorithm.client, self.config, []
        keys = [f"method.{key}" for key in ("start_round", "warmup") if f"method.{key}" in dict(config.parameters)]
        if len(keys) == 2 and getattr(client, "start_round", None) is not None:
            found.append(f"{config.method}: method.start_round counts, method.warmup does not")
        mixes = getattr(client, "mixes_in", None)
        if mixes is not None:
            last = RoundInfo(config.rounds - 1, config.rounds, self.federation.num_clients, 1, config.lr, 1, key=0)
            if not mixes(last):
                mu = getattr(client, "mu", 0)
                what = f"FedProx with mu={mu:g}" if mu else "FedAvg"
                found.append(f"{config.method}: mixing begins after the last round, so that training is {what}")
        return found


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


def summarise(
    parts: Parts,
    evaluation: Evaluation,
    swept: Sweep | None,
    lines: Sequence[dict[str, Any]],
    elapsed: float,
    late: Welcome | None = None,
    synthetic: dict[str, Any] | None = None,
) -> dict[str, Any]:
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
        "metrics": _along(_table(evaluation, COLUMNS), swept),
        "sweep": None if swept is None else sweep_lines(swept),
        **({} if synthetic is None else {"synthetic": synthetic}),
        "newcomers": None if late is None or parts.newcomers is None else newcomer_lines(parts.newcomers, late),
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


def _along(table: Numbers, swept: Sweep | None) -> Numbers:
    """The headline metric with the columns of the lambda sweep; a method with one model has its mean there.

    `swept` is the best mean over lambda on the test rows, `validated` the mean at each client's lambda of choice on its
    validation rows, and `..._std` their std over clients.
    """
    name = headline(tuple(table))
    row = table[name]
    found = {"swept": (row["mean"], row["std"]), "validated": (row["mean"], row["std"])}
    if swept is not None:
        found["swept"] = _moments(swept.best_mean()[1])
        chosen = swept.validated()
        found["validated"] = _moments(chosen[1]) if chosen else (None, None)
    extra = {f"{c}{kind}": pair[i] for c, pair in found.items() for i, kind in enumerate(("", "_std"))}
    return table | {name: row | extra}


def sweep_lines(swept: Sweep) -> dict[str, Any]:
    """A lambda sweep for JSON: the curve, and the three ways to choose lambda, each under its own name."""
    lam, values = swept.best_mean()
    chosen = swept.validated()
    return {
        "metric": swept.metric,
        "lambdas": list(swept.lambdas),
        "mean": numbers(swept.mean),
        "std": numbers(swept.std),
        "two_models": int(swept.two_ended.sum()),
        "one_model": int((~swept.two_ended).sum()),
        "best_mean": {"lambda": lam, **_named(values)},
        "optimistic": _named(swept.optimistic()),
        "validated": None if chosen is None else {"lambdas": numbers(chosen[0]), **_named(chosen[1])},
        "per_client": [numbers(row) for row in swept.test],
    }


def newcomer_lines(newcomers: Federation, late: Welcome) -> dict[str, Any]:
    """The newcomers for JSON: who they are, what they receive, and their numbers before and after local training."""
    return {
        "clients": newcomers.num_clients,
        "names": list(newcomers.client_names),
        "model": late.model,
        "epochs": late.epochs,
        "global": _table(late.received, COLUMNS),
        "tuned": _table(late.tuned, COLUMNS),
    }


def _moments(values: Tensor) -> tuple[float | None, float | None]:
    known = values[~values.isnan()]
    if not len(known):
        return None, None
    return number(float(known.mean())), number(float(known.std(correction=0)))


def _named(values: Tensor) -> dict[str, float | None]:
    return dict(zip(("mean", "std"), _moments(values), strict=True))


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


def _table(evaluation: Evaluation, columns: Sequence[str]) -> Numbers:
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
