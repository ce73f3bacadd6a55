"""The lambda sweep: every model on the line between a client's two ends, measured on the client's own rows.

For a method with two models per client (SuPerFed, APFL, Ditto) the model (1 - lam) near + lam far is evaluated for
lam in 0, 0.1, ..., 1. A client without two ends (never trained, or not since the start of mixing) is measured once with
what it deploys, its own BatchNorm statistics included; its value stands at every lam, and it is counted. Three
summaries, never to be confused:

    best_mean      one lam for all clients, the best of the mean curve on the test rows (the thesis' wording)
    optimistic     every client's own best lam on its test rows: an upper bound, not a result
    validated      every client's best lam on its validation rows, measured on its test rows: the honest one

With few validation rows many lam tie. Of those with the best metric `validated` takes the one with the lowest loss on
the same rows; of those that tie still, the nearest to 0.5, the middle of the line, and of two as near the lower one.

With BatchNorm every point of a line has statistics recomputed on the client's training rows, its two ends as well. What
APFL (lam = alpha) and Ditto (lam = 1) deploy has the same parameters as the sweep there, but the running statistics
that v collected in training, so that its value may differ a little; without BatchNorm it is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedchord import notebook
from fedchord.check import require
from fedchord.core.rules import LINE, Line
from fedchord.data.federation import Federation
from fedchord.engine.executors import Executor
from fedchord.evaluation.evaluate import ROWS, predicted, run_each
from fedchord.evaluation.fitted import Fitted
from fedchord.metrics import HIGHER_IS_BETTER, by_client, find

LAMBDAS = tuple(i / 10 for i in range(11))
CLIENTS_AT_A_TIME = 8
"""How many clients a worker takes at a time."""
WAITING = 1 << 20
"""How many scores are collected before the metric is computed."""


@dataclass(frozen=True)
class Sweep:
    """A metric by client and lam; `validation` is there if the clients have validation rows."""

    metric: str
    lambdas: tuple[float, ...]
    clients: tuple[int, ...]
    test: Tensor
    validation: Tensor | None
    two_ended: Tensor
    """Which clients have two models; the others' rows are constant."""
    validation_loss: Tensor | None = None
    """The loss on the validation rows, which decides between lam whose metric is the same."""
    others: dict[str, Tensor] = field(default_factory=dict)
    """Other metrics on the test rows by client and lam, each with a best mean of its own."""

    def __repr__(self) -> str:
        best, values = self.best_mean()
        where = f"{notebook.counted(len(self.clients), 'client')} at {notebook.counted(len(self.lambdas), 'lambda')}"
        mean = notebook.value(float(values.nanmean()))
        return f"Sweep({notebook.one_line(self.metric)} of {where}: best mean {mean} at {best:g})"

    @property
    def mean(self) -> Tensor:
        """The mean over clients at every lam."""
        return self.test.nanmean(0)

    @property
    def std(self) -> Tensor:
        """The spread over clients at every lam (ddof 0)."""
        return (self.test - self.mean).square().nanmean(0).sqrt()

    def _signed(self, values: Tensor) -> Tensor:
        """More is better, undefined is worst."""
        signed = values if self.metric in HIGHER_IS_BETTER else -values
        return signed.nan_to_num(-torch.inf, torch.inf, -torch.inf)

    def _best(self, values: Tensor) -> Tensor:
        return self._signed(values).argmax(-1)

    def _chosen(self, values: Tensor, losses: Tensor) -> Tensor:
        """The best lam of every row: by the metric, then by the loss, then by how near it is to 0.5."""
        middle = (torch.tensor(self.lambdas, dtype=torch.float64) - 0.5).abs().mul(1e9).round().expand_as(values)
        tied = torch.ones_like(values, dtype=torch.bool)
        for order in (-self._signed(values), losses.nan_to_num(torch.inf, torch.inf), middle):
            left = torch.where(tied, order, torch.inf)
            tied = tied & (left == left.amin(-1, keepdim=True))
        return tied.int().argmax(-1)

    def best_mean(self) -> tuple[float, Tensor]:
        """The lam with the best mean on the test rows, and every client's value there."""
        index = int(self._best(self.mean))
        return self.lambdas[index], self.test[:, index]

    def of(self, metric: str) -> Sweep:
        """The sweep of one of the `others`; validation rows are looked at for the first metric alone."""
        return replace(self, metric=metric, test=self.others[metric], validation=None, validation_loss=None, others={})

    def optimistic(self) -> Tensor:
        """Every client's value at its own best lam on the test rows."""
        return self.test.gather(1, self._best(self.test).unsqueeze(1)).squeeze(1)

    def validated(self) -> tuple[Tensor, Tensor] | None:
        """Every client's lam chosen on its validation rows, and its value on the test rows there."""
        if self.validation is None:
            return None
        losses = self.validation_loss if self.validation_loss is not None else torch.zeros_like(self.validation)
        index = self._chosen(self.validation, losses)
        grid = torch.tensor(self.lambdas, dtype=torch.float64)
        return grid[index], self.test.gather(1, index.unsqueeze(1)).squeeze(1)


def sweep(
    fitted: Fitted,
    metric: str = "top1",
    lambdas: tuple[float, ...] = LAMBDAS,
    executor: Executor | None = None,
    also: tuple[str, ...] = (),
) -> Sweep | None:
    """Measure every client along its line, in the workers of the executor if one is given; None if no client has two
    models. `also` are metrics that are measured beside, on the same scores."""
    for name in (metric, *also):
        find(name)
    check_lambdas(lambdas)
    if fitted.work.algorithm.client.deploys.kind != LINE:  # one model: there is nothing to measure
        return None
    clients: list[int] = fitted.work.federation.test.sizes.nonzero().flatten().tolist()
    wanted = tables_of(fitted.work.federation, metric, also)
    shares = _shares(clients, 1 if fitted.memory.scattered else CLIENTS_AT_A_TIME)  # each by who keeps its client
    parts = run_each(executor, lambda part: measured_lines(fitted, part, lambdas, wanted), shares)
    return merged_lines(fitted.work.federation, metric, lambdas, clients, parts, also)


Tables = dict[str, dict[str, Tensor]]
"""Metrics by split and name, (clients, points)."""


def tables_of(federation: Federation, metric: str, also: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """What a sweep measures, by split; on validation rows where every client has some."""
    chosen = bool(federation.test.sizes.any()) and not unvalidated(federation)
    test = {"test": tuple(dict.fromkeys((metric, *also)))}
    return test | ({"validation": tuple(dict.fromkeys((metric, _tie(federation))))} if chosen else {})


def _tie(federation: Federation) -> str:
    return "mse" if federation.regression else "loss"


def merged_lines(
    federation: Federation,
    metric: str,
    lambdas: tuple[float, ...],
    clients: Sequence[int],
    parts: Sequence[tuple[list[bool], Tables]],
    also: tuple[str, ...] = (),
) -> Sweep | None:
    """One sweep of clients that were measured apart; None if none of them has two models."""
    two_ended = [ended for ends, _ in parts for ended in ends]
    if not any(two_ended):
        return None
    tables = {
        split: {name: torch.cat([found[split][name] for _, found in parts]) for name in names}
        for split, names in tables_of(federation, metric, also).items()
    }
    held, tie = tables.get("validation", {}), _tie(federation)
    return Sweep(
        metric,
        lambdas,
        tuple(clients),
        tables["test"][metric],
        held.get(metric),
        torch.tensor(two_ended),
        held.get(tie),
        {name: tables["test"][name] for name in also if name != metric},
    )


def _shares(clients: list[int], size: int) -> list[list[int]]:
    return [clients[start : start + size] for start in range(0, len(clients), size)]


def measured_lines(
    fitted: Fitted, clients: list[int], lambdas: tuple[float, ...], wanted: dict[str, tuple[str, ...]]
) -> tuple[list[bool], Tables]:
    """Some clients: which have two models, and their metrics by split, (clients, points)."""
    work, ended = fitted.work, []
    found = {split: _Collected(metrics, len(lambdas)) for split, metrics in wanted.items()}
    at_once = work.task.objective.rows or ROWS
    for client in clients:
        point = fitted.point(client)
        ended.append(isinstance(point, Line))
        model = None if isinstance(point, Line) else fitted.model(client, point)
        for split, collected in found.items():
            rows = work.federation.part(split)[client]
            if isinstance(point, Line):
                for scores, labels in _along(fitted, client, point, rows, lambdas, at_once):
                    collected.add(scores, labels)
            elif model is not None:
                said = predicted(work.task, work.federation, model, rows, at_once)
                collected.add(said.scores[None], said.labels[None], len(lambdas))
    return ended, {split: collected.tables() for split, collected in found.items()}


def check_lambdas(lambdas: tuple[float, ...], owner: str = "sweep") -> None:
    """A grid has points, all of them on the line."""
    require(bool(lambdas), owner, "needs at least one lambda")
    for lam in lambdas:
        require(0 <= lam <= 1, owner, f"every lambda must lie between 0 and 1, got {lam}")


def unvalidated(federation: Federation) -> int:
    """How many of the clients that are measured have no validation row; with one of them no lambda is chosen.

    A lambda chosen for some clients only would make a mean over other clients.
    """
    return int(((federation.test.sizes > 0) & (federation.validation.sizes == 0)).sum())


class _Collected:
    """Metrics of many models on many clients, computed for several clients at a time."""

    def __init__(self, metrics: tuple[str, ...], points: int) -> None:
        self._metrics, self._points = metrics, points
        self._waiting: list[tuple[Tensor, Tensor, int]] = []
        self._held = 0
        self._values: dict[str, list[Tensor]] = {metric: [] for metric in metrics}

    def add(self, scores: Tensor, labels: Tensor, times: int = 1) -> None:
        """One client's scores, (points, rows, classes), and labels, (points, rows); a point may stand for several."""
        self._waiting.append((scores, labels, times))
        self._held += scores.numel()
        if self._held > WAITING:
            self._measure()

    def _measure(self) -> None:
        if not self._waiting:
            return
        sizes = torch.tensor([0] + [s.shape[1] for s, _, _ in self._waiting for _ in s])
        times = torch.tensor([times for s, _, times in self._waiting for _ in s])
        scores = torch.cat([s.flatten(0, 1) for s, _, _ in self._waiting])
        labels = torch.cat([y.flatten() for _, y, _ in self._waiting])
        for metric, values in by_client(self._metrics, scores, labels, sizes.cumsum(0)).items():
            self._values[metric].append(values.repeat_interleave(times))
        self._waiting, self._held = [], 0

    def tables(self) -> dict[str, Tensor]:
        """The values of each metric, (clients, points)."""
        self._measure()
        return {metric: torch.cat(parts).reshape(-1, self._points) for metric, parts in self._values.items()}


def _along(
    fitted: Fitted, client: int, line: Line, rows: Tensor, lambdas: tuple[float, ...], at_once: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """One client's scores and labels at every lam, for several points at a time."""
    task, federation = fitted.work.task, fitted.work.federation
    grid, parts = torch.tensor(lambdas, device=line.near.device), []
    for part in rows.split(at_once):
        batch = federation.batch(part)
        outputs = task.along(line.near, line.far, batch, grid)
        if outputs is None:
            yield from _one_by_one(fitted, client, line, rows, lambdas, at_once)
            return
        points = [task.objective.predictions(out, batch) for out in outputs]
        parts.append([torch.stack(column) for column in zip(*points, strict=True)])
    scores, labels = parts[0] if len(parts) == 1 else (torch.cat(column, 1) for column in zip(*parts, strict=True))
    yield scores.cpu(), labels.cpu()


def _one_by_one(
    fitted: Fitted, client: int, line: Line, rows: Tensor, lambdas: tuple[float, ...], at_once: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The same, one mixed model after another."""
    for lam in lambdas:
        theta = torch.lerp(line.near, line.far, lam)
        model = {"theta": theta, "buffers": fitted.statistics(client, theta)}
        found = predicted(fitted.work.task, fitted.work.federation, model, rows, at_once)
        yield found.scores[None], found.labels[None]
