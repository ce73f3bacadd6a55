"""The lambda sweep: every model on the line between a client's two ends, measured on the client's own rows.

For a method with two models per client (SuPerFed, APFL, Ditto) the model (1 - lam) near + lam far is evaluated for
lam in 0, 0.1, ..., 1. A client without two ends (never trained) is measured with what it deploys, at every lam, and
is counted. Three summaries, never to be confused:

    best_mean      one lam for all clients, the best of the mean curve on the test rows (the thesis' wording)
    optimistic     every client's own best lam on its test rows: an upper bound, not a result
    validated      every client's best lam on its validation rows, measured on its test rows: the honest one
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord.check import require
from fedchord.data.federation import Federation
from fedchord.engine.memory import ClientMemory
from fedchord.evaluate import Tune, deployed, recalibrated
from fedchord.metrics import HIGHER_IS_BETTER, by_client, find
from fedchord.rules import Algorithm, ClientRule, ServerState
from fedchord.task import Batch, Task
from fedchord.tensors import Tensors

LAMBDAS = tuple(i / 10 for i in range(11))
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

    @property
    def mean(self) -> Tensor:
        """The mean over clients at every lam."""
        return self.test.nanmean(0)

    @property
    def std(self) -> Tensor:
        """The spread over clients at every lam (ddof 0)."""
        return (self.test - self.mean).square().nanmean(0).sqrt()

    def _best(self, values: Tensor) -> Tensor:
        signed = values if self.metric in HIGHER_IS_BETTER else -values
        return signed.nan_to_num(-torch.inf).argmax(-1)

    def best_mean(self) -> tuple[float, Tensor]:
        """The lam with the best mean on the test rows, and every client's value there."""
        index = int(self._best(self.mean))
        return self.lambdas[index], self.test[:, index]

    def optimistic(self) -> Tensor:
        """Every client's value at its own best lam on the test rows."""
        return self.test.gather(1, self._best(self.test).unsqueeze(1)).squeeze(1)

    def validated(self) -> tuple[Tensor, Tensor] | None:
        """Every client's lam chosen on its validation rows, and its value on the test rows there."""
        if self.validation is None:
            return None
        index = self._best(self.validation)
        return torch.tensor(self.lambdas)[index], self.test.gather(1, index.unsqueeze(1)).squeeze(1)


def sweep(
    algorithm: Algorithm,
    task: Task,
    federation: Federation,
    state: ServerState,
    memory: ClientMemory,
    metric: str = "top1",
    lambdas: tuple[float, ...] = LAMBDAS,
    tune: Tune | None = None,
) -> Sweep | None:
    """Measure every client along its line; None if no client has two models."""
    find(metric)
    require(bool(lambdas), "sweep", "needs at least one lambda")
    for lam in lambdas:
        require(0 <= lam <= 1, "sweep", f"every lambda must lie between 0 and 1, got {lam}")
    if type(algorithm.client).endpoints is ClientRule.endpoints:  # one model: there is nothing to measure
        return None
    clients = federation.test.sizes.nonzero().flatten().tolist()
    chosen = bool(clients) and not unvalidated(federation)
    splits = ("test", "validation") if chosen else ("test",)
    measured = {split: _Measured(metric, len(lambdas)) for split in splits}
    two_ended = []
    for client in clients:
        own = (memory.get(client) or {}) if state.visits[client] > 0 else None
        own = tune(client, own, state) if tune else own
        ends = algorithm.client.endpoints(task, state.broadcast, own)
        two_ended.append(ends is not None)
        if ends is None:
            model = deployed(algorithm, task, federation, state, client, own)
            ends = model, model
        for split in splits:
            batch = federation.batch(federation.part(split)[client])
            measured[split].add(*_along(task, federation, client, ends, batch, lambdas))
    if not any(two_ended):
        return None
    stacked = {split: part.table() for split, part in measured.items()}
    return Sweep(metric, lambdas, tuple(clients), stacked["test"], stacked.get("validation"), torch.tensor(two_ended))


def unvalidated(federation: Federation) -> str:
    """Why no lambda can be chosen on validation rows, in words; empty if it can be.

    Every client that is measured needs a validation row of its own: a lambda chosen for some clients only would make
    a mean over other clients.
    """
    tested = federation.test.sizes > 0
    without = int((tested & (federation.validation.sizes == 0)).sum())
    if not without:
        return ""
    total = int(tested.sum())
    return f"{without} of {total} clients have no validation row, so no lambda is chosen; each needs 3 rows or more"


class _Measured:
    """A metric of many models on many clients, computed for several clients at a time."""

    def __init__(self, metric: str, points: int) -> None:
        self._metric, self._points = metric, points
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._values: list[Tensor] = []

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """One client's scores, (points, rows, classes), and labels, (points, rows)."""
        self._waiting.append((scores, labels))
        if sum(scores.numel() for scores, _ in self._waiting) > WAITING:
            self._measure()

    def _measure(self) -> None:
        if not self._waiting:
            return
        sizes = torch.tensor([0] + [s.shape[1] for s, _ in self._waiting for _ in range(self._points)])
        scores = torch.cat([s.flatten(0, 1) for s, _ in self._waiting])
        labels = torch.cat([y.flatten() for _, y in self._waiting])
        self._values.append(by_client((self._metric,), scores, labels, sizes.cumsum(0))[self._metric])
        self._waiting = []

    def table(self) -> Tensor:
        """The values, (clients, points)."""
        self._measure()
        return torch.cat(self._values).reshape(-1, self._points)


def _along(
    task: Task,
    federation: Federation,
    client: int,
    ends: tuple[Tensors, Tensors],
    batch: Batch,
    lambdas: tuple[float, ...],
) -> tuple[Tensor, Tensor]:
    """One client's scores and labels at every lam."""
    near, far = ends[0]["theta"], ends[1]["theta"]
    if task.dense is not None:
        outputs = task.dense.along(near, far, batch["x"], torch.tensor(lambdas))
    else:
        outputs = torch.stack(
            [_outputs(task, federation, client, torch.lerp(near, far, lam), batch) for lam in lambdas]
        )
    points = [task.objective.predictions(output, batch) for output in outputs]
    return torch.stack([scores for scores, _ in points]), torch.stack([labels for _, labels in points])


def _outputs(task: Task, federation: Federation, client: int, theta: Tensor, batch: Batch) -> Tensor:
    return task.outputs(theta, recalibrated(task, federation, client, theta), batch)
