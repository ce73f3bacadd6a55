"""The numbers behind the figures, read from finished runs: curves along lambda, grids, bins, surfaces.

Everything here is plain data (arrays and labels); `figure_draw` draws it. Runs of several seeds are pooled: a client of
another seed is another row. A std is over clients (ddof 0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedchord import metrics
from fedchord.check import FedchordError, require
from fedchord.core.rules import ServerState
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.parts import Parts
from fedchord.experiments.reading import Run
from fedchord.report.plots import Floats, rounds_of
from fedchord.report.tables import estimate

Bools = NDArray[np.bool_]
Cells = Mapping[tuple[str, str], Sequence[Run]]
"""Finished runs (one per seed) by the labels of method and setting."""


@dataclass(frozen=True)
class Loaded:
    """A finished run with its models: the last broadcast and what the clients keep."""

    parts: Parts
    state: ServerState
    memory: ClientMemory

    @staticmethod
    def of(folder: Path) -> Loaded:
        """Read a run's data and its last checkpoint."""
        here = RunFolder(folder)
        config, memory = here.read_config(), ClientMemory()
        found = checkpoint.load(here.checkpoints, memory, config.fingerprint())
        if found is None or found.state.round != config.rounds:
            raise FedchordError(f"{folder}: the checkpoint of the last round is missing")
        return Loaded(Parts.build(config, "cpu"), found.state, memory)

    @property
    def clients(self) -> list[int]:
        """The clients with test rows."""
        return [int(client) for client in self.parts.federation.test.sizes.nonzero().flatten()]

    def kept(self, client: int) -> dict[str, Tensor] | None:
        """What a client keeps; None if it never trained."""
        return (self.memory.get(client) or {}) if self.state.visits[client] > 0 else None

    def two_ended(self) -> Bools:
        """Which clients with test rows have two models."""
        rule, task, shared = self.parts.algorithm.client, self.parts.task, self.state.broadcast
        return np.array([rule.endpoints(task, shared, self.kept(client)) is not None for client in self.clients])

    def private(self, client: int) -> Tensor:
        """A client's own model: the far end of its line, or what it deploys where there is no line."""
        rule, task, shared = self.parts.algorithm.client, self.parts.task, self.state.broadcast
        ends = rule.endpoints(task, shared, self.kept(client))
        return (ends[1] if ends is not None else rule.deploy(task, shared, self.kept(client)))["theta"]

    def scores(self) -> tuple[Tensor, Tensor]:
        """Scores and labels of all test rows, each by the model its client deploys."""
        found = [self.scores_of(client) for client in self.clients]
        return torch.cat([scores for scores, _ in found]), torch.cat([labels for _, labels in found])

    def scores_of(self, client: int) -> tuple[Tensor, Tensor]:
        """Scores and labels of a client's test rows, by the model it deploys."""
        parts = self.parts
        model = parts.deployed(self.state, self.memory, client)
        batch = parts.federation.batch(parts.federation.test[client])
        return parts.task.objective.predictions(parts.task.outputs(model["theta"], model["buffers"], batch), batch)


# -- along lambda --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A metric along lambda: `values` has a row per client (of every seed), a column per lambda."""

    label: str
    lambdas: Floats
    values: Floats
    two_models: int
    """How many of the clients have two models; the rows of the others are constant."""

    @property
    def mean(self) -> Floats:
        """The mean over clients at every lambda."""
        return _mean(self.values)

    @property
    def std(self) -> Floats:
        """The spread over clients at every lambda (ddof 0)."""
        return np.sqrt(_mean((self.values - self.mean) ** 2))

    @property
    def best(self) -> tuple[float, float, float]:
        """The lambda with the highest mean, the mean and the std there."""
        place = int(np.argmax(np.nan_to_num(self.mean, nan=-math.inf)))
        return float(self.lambdas[place]), float(self.mean[place]), float(self.std[place])

    @property
    def barrier(self) -> float:
        """How far the mean falls below the chord between its ends: max over lam of (1-lam) A(0) + lam A(1) - A(lam).

        0 means that no model on the line is worse than the mixture of the two accuracies.
        """
        chord = (1 - self.lambdas) * self.mean[0] + self.lambdas * self.mean[-1]
        return float(np.max(chord - self.mean))

    def of(self, rows: Bools) -> Curve:
        """The same over some clients only."""
        return Curve(self.label, self.lambdas, self.values[rows], min(self.two_models, int(rows.sum())))


def curve(label: str, runs: Sequence[Run]) -> Curve:
    """The lambda sweep that the runs' summaries hold."""
    sweeps = [_sweep(run) for run in runs]
    lambdas = np.array(sweeps[0]["lambdas"], dtype=np.float64)
    for run, found in zip(runs, sweeps, strict=True):
        same = len(found["lambdas"]) == len(lambdas) and np.allclose(found["lambdas"], lambdas)
        require(same, str(run.folder), "its sweep has other lambdas than the others")
    values = np.concatenate([_floats(found["per_client"]) for found in sweeps])
    return Curve(label, lambdas, values, sum(int(found["two_models"]) for found in sweeps))


def _sweep(run: Run) -> dict[str, Any]:
    found = run.summary.get("sweep")
    if not isinstance(found, dict):
        raise FedchordError(f"{run.folder}: no lambda sweep (one model per client, or no client has trained its own)")
    return found


@dataclass(frozen=True)
class Link:
    """How two models are connected: the curve of all clients, of those with two models, and the cosine over rounds."""

    everyone: Curve
    trained: Curve
    rounds: Floats
    cosine: Floats
    """The mean over the cohort of |cos(f, l)|, from the first round with mixing on; empty where it was not logged."""


def link(label: str, runs: Sequence[Run]) -> Link:
    """Curve and cosines; the cosine is of the first seed, since seeds have other cohorts."""
    everyone = curve(label, runs)
    ended = np.concatenate([Loaded.of(run.folder).two_ended() for run in runs])
    logged = [(line["round"], (line.get("log") or {}).get("cosine")) for line in rounds_of(runs[0])]
    known = [(at, value) for at, value in logged if value is not None]
    first = next((place for place, (_, value) in enumerate(known) if value > 0), len(known))
    pairs = np.array(known[first:], dtype=np.float64).reshape(-1, 2)
    return Link(everyone, everyone.of(ended), pairs[:, 0], pairs[:, 1])


# -- grids ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A curve of one mixing scheme at one pair of mu and nu."""

    mixing: str
    mu: float
    nu: float
    curve: Curve


def panels(cells: Cells) -> list[Panel]:
    """The mu x nu grid."""
    return [
        Panel(method, _parameter(runs[0], "mu"), _parameter(runs[0], "nu"), curve(f"{method}, {setting}", runs))
        for (method, setting), runs in cells.items()
    ]


@dataclass(frozen=True)
class Start:
    """One start of mixing: L/T, and the best mean over lambda of accuracy and of loss, with their std over clients."""

    mixing: str
    start: float
    accuracy: float
    accuracy_std: float
    loss: float
    loss_std: float
    two_models: int
    clients: int


def starts(cells: Cells) -> list[Start]:
    """The grid of starts; the losses are swept anew, since a summary holds the sweep of the accuracy only."""
    found = []
    for (method, _), runs in cells.items():
        accuracy = estimate(runs, "top1", "swept", "clients")
        if accuracy is None:
            raise FedchordError(f"{runs[0].folder}: has no swept top1")
        losses = np.concatenate([_lowest_losses(run) for run in runs])
        every = [_sweep(run) for run in runs]
        two, one = (sum(int(part[key]) for part in every) for key in ("two_models", "one_model"))
        spread = (float(losses.mean()), float(losses.std()))
        found.append(
            Start(method, _parameter(runs[0], "warmup"), accuracy.mean, accuracy.spread, *spread, two, two + one)
        )
    return found


def _lowest_losses(run: Run) -> Floats:
    """Every client's loss at the lambda with the lowest mean loss."""
    here = Loaded.of(run.folder)
    parts = here.parts
    swept = parts.swept(here.state, here.memory, "loss")
    assert swept is not None  # the summary has a sweep
    return swept.best_mean()[1].numpy()


def _parameter(run: Run, name: str) -> float:
    value = run.config.get(f"method.{name}")
    if not isinstance(value, int | float):
        raise FedchordError(f"{run.folder}: its config.toml has no method.{name}")
    return float(value)


# -- clients and bins ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """The accuracy of every client's deployed model."""

    label: str
    clients: tuple[str, ...]
    values: Floats


def spread(label: str, runs: Sequence[Run], metric: str = "top1") -> Spread:
    """The clients' values as the summaries have them; a client of several seeds is named by seed as well."""
    names, values = [], []
    for run in runs:
        found = run.summary.get("per_client", {})
        require(metric in found, str(run.folder), f"its summary has no {metric} per client")
        names += [f"{name} (seed {run.seed})" if len(runs) > 1 else str(name) for name in found["client"]]
        values += [math.nan if value is None else float(value) for value in found[metric]]
    return Spread(label, tuple(names), np.array(values, dtype=np.float64))


@dataclass(frozen=True)
class Bins:
    """A reliability diagram over all test rows, and the errors pooled and as means over clients."""

    label: str
    count: Floats
    accuracy: Floats
    confidence: Floats
    ece: float
    mce: float
    client_ece: float
    client_mce: float


def bins(label: str, runs: Sequence[Run]) -> Bins:
    """The deployed models' confidence and accuracy on all test rows of all clients."""
    pairs = [Loaded.of(run.folder).scores() for run in runs]
    scores, labels = torch.cat([s for s, _ in pairs]), torch.cat([y for _, y in pairs])
    table = metrics.reliability(scores, labels)
    means = [found.mean if (found := estimate(runs, name, "mean")) else math.nan for name in ("ece", "mce")]
    count, accuracy, confidence = (part.numpy() for part in (table.count, table.accuracy, table.confidence))
    pooled = metrics.ece(scores, labels), metrics.mce(scores, labels)
    return Bins(label, count, accuracy, confidence, *pooled, *means)


def _floats(rows: Sequence[Sequence[float | None]]) -> Floats:
    return np.array([[math.nan if value is None else value for value in row] for row in rows], dtype=np.float64)


def _mean(values: Floats) -> Floats:
    """The mean over rows without NaN; NaN where there is none."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(0) / known.sum(0), dtype=np.float64)
