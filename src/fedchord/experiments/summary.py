"""What a run writes down: a line per round and, at the end, the summary with its protocol."""

from __future__ import annotations

import math
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy
import torch
from torch import Tensor

import fedchord
from fedchord.core.rules import LINE, Algorithm, RoundInfo
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.layout import LAYOUT
from fedchord.engine.simulate import RoundResult
from fedchord.evaluation.choice import Choice, settled
from fedchord.evaluation.evaluate import Evaluation
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.newcomers import Welcome
from fedchord.evaluation.sweep import Sweep, unvalidated
from fedchord.experiments.parts import Parts
from fedchord.privacy.shield import told as guarantee

ROUND_COLUMNS = ("mean", "std", "worst10", "best10", "gini", "gap", "pooled")
COLUMNS = (*ROUND_COLUMNS, "clients", "undefined", "weighted")
FEW = 10
"""A lambda chosen on fewer validation rows is worth a word."""


Numbers = dict[str, dict[str, float | None]]
"""Numbers by metric and column."""
Note = dict[str, Any]
"""A fact that a reader should know: its kind and what belongs to it. `report.words` makes sentences of them."""


def notes(parts: Parts) -> list[Note]:
    """What a reader of the results should know."""
    found: list[Note] = [{"kind": "data", "text": text} for text in parts.federation.notes]
    if parts.newcomers is not None:
        late, trained = parts.newcomers.num_clients, parts.federation.num_clients
        found.append({"kind": "newcomers", "clients": late, "of": late + trained})
    if parts.work.central:
        found.append({"kind": "central", "rows": len(parts.federation.train.rows)})
    if parts.config.plan().average:
        plan = parts.config.plan()
        found.append({"kind": "average", "rounds": sum(plan.averages(t + 1) for t in range(plan.rounds))})
    if (attack := parts.config.hostile()) is not None:
        every = parts.federation.num_clients
        hostile = list(attack.hostile(parts.config.seed, every))
        found.append(
            {"kind": "attack", "attack": attack.name, "scale": attack.strength, "clients": hostile, "of": every}
        )
    found += [{"kind": "privacy", **told} for told in _privacy(parts).values()]
    line = parts.algorithm.client.deploys.kind == LINE
    if parts.config.sweep_lambdas is not None and not line:
        found.append({"kind": "no-line", "method": parts.config.method})
    if parts.config.validation > 0 and line:
        found += _validation(parts.federation)
    return found + _start(parts)


def _validation(federation: Federation) -> list[Note]:
    """Whether lambda can be chosen on validation rows, and clients that have very few."""
    tested = federation.test.sizes > 0
    sizes, total = federation.validation.sizes[tested], int(tested.sum())
    if without := unvalidated(federation):
        return [{"kind": "unvalidated", "clients": without, "of": total}]
    few = int((sizes < FEW).sum())
    note = {"kind": "few-validation-rows", "below": FEW, "clients": few, "of": total, "smallest": int(sizes.min())}
    return [note] if few else []


def _start(parts: Parts) -> list[Note]:
    """Where mixing never begins, and which of two keys says when it does."""
    client, config = parts.algorithm.client, parts.config
    found: list[Note] = []
    keys = [f"method.{key}" for key in ("start_round", "warmup") if f"method.{key}" in dict(config.parameters)]
    if len(keys) == 2 and getattr(client, "start_round", None) is not None:
        found.append({"kind": "start-round", "method": config.method})
    mixes = getattr(client, "mixes_in", None)
    if mixes is not None:
        last = RoundInfo(config.rounds - 1, config.rounds, parts.federation.num_clients, 1, config.lr, 1, key=0)
        if not mixes(last):
            found.append({"kind": "never-mixes", "method": config.method, "mu": float(getattr(client, "mu", 0))})
    return found


def overrides(algorithm: Algorithm, training: Training) -> list[dict[str, Any]]:
    """What the client rule changed in the local training settings."""
    used = algorithm.client.local(training)
    pairs = [(part.name, getattr(training, part.name), getattr(used, part.name)) for part in fields(training)]
    return [{"key": key, "asked": before, "used": now} for key, before, now in pairs if now != before]


def round_line(result: RoundResult, evaluation: Evaluation | None, elapsed: float) -> dict[str, Any]:
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
    if result.missing:
        line["missing"] = {str(client): cause for client, cause in sorted(result.missing.items())}
    return line | measures(evaluation)


def causes(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Under the key `missing`, how often clients did not take part, by cause (what stands before a colon)."""
    found = Counter(cause.partition(":")[0] for line in lines for cause in line.get("missing", {}).values())
    return {"missing": dict(sorted(found.items()))} if found else {}


def measures(evaluation: Evaluation | None) -> dict[str, Any]:
    """What the line of a round says about its evaluation; nothing where there was none."""
    if evaluation is None:
        return {}
    left_out = evaluation.protocol.get("left_out")
    return {"metrics": _table(evaluation, ROUND_COLUMNS)} | ({"left_out": left_out} if left_out else {})


def summarise(
    parts: Parts,
    evaluation: Evaluation,
    swept: Sweep | None,
    lines: Sequence[dict[str, Any]],
    elapsed: float,
    late: Welcome | None = None,
    synthetic: dict[str, Any] | None = None,
    held: Evaluation | None = None,
    choice: Choice | None = None,
) -> dict[str, Any]:
    """The content of summary.json; `held` is the evaluation on validation rows, `choice` what clients agreed on."""
    up, down = (sum(line[f"bytes_{way}"] for line in lines) for way in ("up", "down"))
    rounds = max(1, len(lines))
    return {
        "layout": LAYOUT,
        "config": parts.config.values(),
        "protocol": _protocol(parts, evaluation, choice),
        "metrics": _along(_table(evaluation, COLUMNS), swept),
        **({} if held is None else {"validation": validation_lines(held)}),
        **({} if choice is None else {"choice": choice.told()}),
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
        **_privacy(parts),
        **causes(lines),
        "rounds": parts.config.rounds,
        "parameters": parts.task.layout.size,
        "executor": parts.config.executor,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _privacy(parts: Parts) -> dict[str, Any]:
    """Under the key `privacy`, what is guaranteed after all rounds; nothing where nothing is hidden."""
    privacy = parts.config.private()
    return {} if privacy is None else {"privacy": guarantee(parts.algorithm, privacy, parts.config.rounds)}


def as_chosen(fitted: Fitted, summary: Mapping[str, Any]) -> Fitted:
    """The models of a finished run as its clients deploy them, after the choice that its summary tells."""
    told = summary.get("choice")
    return fitted if told is None else settled(fitted, Choice.read(told))


def _protocol(parts: Parts, evaluation: Evaluation, choice: Choice | None) -> dict[str, Any]:
    """What was measured, as facts."""
    return {
        **evaluation.protocol,
        "seed": parts.config.seed,
        "data": {"name": parts.federation.name, "verdict": parts.federation.verdict},
        "method": method_line(parts.algorithm),
        "objective": parts.task.objective.name,
        "overrides": overrides(parts.algorithm, parts.training),
        "notes": notes(parts) + ([] if choice is None else [{"kind": "choice", **choice.told()}]),
    }


def _along(table: Numbers, swept: Sweep | None) -> Numbers:
    """The table with the columns of the lambda sweep; a method with one model has its mean there.

    `swept` is the best mean over lambda on the test rows, for every metric of the sweep at a lambda of its own;
    `validated`, of the sweep's first metric, is the mean at each client's lambda of choice on its validation rows,
    and `..._std` their std over clients.
    """
    found: dict[str, dict[str, tuple[float | None, float | None]]] = {}
    for metric, row in table.items():
        one = (row["mean"], row["std"])
        if swept is None:
            found[metric] = {"swept": one, "validated": one}
        elif metric == swept.metric:
            chosen = swept.validated()
            validated = _moments(chosen[1]) if chosen else (None, None)
            found[metric] = {"swept": _moments(swept.best_mean()[1]), "validated": validated}
        elif metric in swept.others:
            found[metric] = {"swept": _moments(swept.of(metric).best_mean()[1])}
    return {
        metric: row
        | {f"{c}{kind}": pair[i] for c, pair in found.get(metric, {}).items() for i, kind in enumerate(("", "_std"))}
        for metric, row in table.items()
    }


def validation_lines(held: Evaluation) -> dict[str, Any]:
    """What the deployed models measure on validation rows, for whoever chooses between runs."""
    counts = {key: held.protocol[key] for key in ("clients", "evaluated", "without_rows")}
    return counts | {"metrics": _table(held, ("mean", "std", "pooled"))}


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
    return f"{algorithm.title}: {algorithm.client!r}, {algorithm.mixing!r}, {algorithm.server!r}"


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
