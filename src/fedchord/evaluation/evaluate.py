"""The written protocol: which model is evaluated, on which clients, on which split, and how it is summarised.

Every client deploys the model its rule says (`ClientRule.deploy`) and is measured on its own rows. The headline is the
plain mean over clients; `std` is over clients (ddof 0); `pooled` treats all rows as one set. The work is done by an
executor, in groups of clients that share a model, on one thread each, so that every executor finds the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fedchord import notebook
from fedchord.check import fail, require
from fedchord.core.objective import PLAIN
from fedchord.core.task import Task
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.engine.executors import Executor, one_by_one
from fedchord.evaluation.fitted import Fitted
from fedchord.metrics import HIGHER_IS_BETTER, by_client, find, summarise
from fedchord.tensors import Tensors, owners

ROWS = 4096
"""How many rows go through the model at a time."""
POOLED = 50_000_000
"""How many scores are kept for the pooled value of metrics that need all rows at once."""
ADDITIVE = frozenset({"top1", "top5", "loss", "mse", "mae"})
MEAN = "plain mean over evaluated clients; std over clients, ddof 0; pooled over all rows"

Item = TypeVar("Item")
Found = TypeVar("Found")
Summary = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Evaluation:
    """What was measured, on what, and the values: summaries over clients and the values themselves."""

    protocol: dict[str, object]
    metrics: Summary
    per_client: dict[str, Tensor]
    clients: tuple[int, ...]

    def __repr__(self) -> str:
        means = ", ".join(f"{notebook.one_line(name)} {notebook.value(self.mean(name))}" for name in self.metrics)
        return f"Evaluation({self._where}: {means})"

    def _repr_html_(self) -> str:
        """The metrics over clients as a table."""
        return f"<div>{notebook.paragraph(self._where)}{metrics_table(self.metrics)}</div>"

    @property
    def _where(self) -> str:
        """After which round, on whose rows."""
        rows = f"{self.protocol.get('split', 'test')} rows of {notebook.counted(len(self.clients), 'client')}"
        return f"round {self.protocol.get('round', '?')}, {rows}"

    def mean(self, metric: str) -> float:
        """The plain mean of a metric over the evaluated clients."""
        return self.metrics[metric]["mean"]


COLUMNS = {"mean": "mean", "std": "std", "worst10": "worst tenth", "best10": "best tenth", "pooled": "pooled"}


def metrics_table(metrics: Mapping[str, Mapping[str, float | None]]) -> str:
    """Metrics over clients in HTML."""
    rows = [[name, *(notebook.value(row.get(column)) for column in COLUMNS)] for name, row in metrics.items()]
    return notebook.table(["metric", *COLUMNS.values()], rows)


def evaluate(
    fitted: Fitted,
    split: str = "test",
    metrics: tuple[str, ...] | None = None,
    executor: Executor | None = None,
    everyone: bool = True,
) -> Evaluation:
    """Measure every client's deployed model on its own rows of a split, in the workers of the executor if one is given.

    Where clients that never took part would first have to train (FedPer's private part), `everyone=False` leaves them
    out and counts them: that is for evaluations on the way.
    """
    rule = fitted.work.algorithm.client
    model = fitted.work.algorithm.outcome == "model"
    require(model, "evaluate", f"{type(rule).__name__} ends with samples, not with a model; see synthetic.judge")
    able = fitted.clients(split)
    clients = able if everyone else [client for client in able if not fitted.waits(client)]
    require(bool(clients), "evaluate", "no client has taken part yet")
    names = checked(metrics or fitted.work.task.objective.metrics)
    groups = list(_groups(fitted, clients, split, executor))
    found = run_each(executor, lambda group: measured(fitted, group, split, names), groups)
    return merged(fitted, split, names, found, len(able))


@dataclass(frozen=True)
class Measured:
    """Clients that share a model, what was measured of them, and whether the model is the global one."""

    clients: list[int]
    scored: Scored
    shared: bool


def measured(fitted: Fitted, clients: list[int], split: str, names: tuple[str, ...]) -> Measured:
    """Measure clients that share a model."""
    model = fitted.deployed(clients[0])
    shared = model["theta"] is fitted.state.broadcast["theta"]
    found = scored(fitted.work.task, fitted.work.federation, clients, model, split, names)
    return Measured(clients, found, shared)


def merged(fitted: Fitted, split: str, names: tuple[str, ...], parts: Sequence[Measured], able: int) -> Evaluation:
    """One evaluation of clients that were measured apart, of `able` that have rows; nothing else of them is needed."""
    clients = [client for part in parts for client in part.clients]
    alike = sum(len(part.clients) for part in parts if part.shared)
    summary, per_client = summed_up(names, [part.scored for part in parts])
    counts = {"evaluated": len(clients), "left_out": able - len(clients)}
    sends = fitted.work.algorithm.client.sends
    counts["global_model"] = alike if sends else 0  # nothing shared: what is broadcast is the first model
    return Evaluation(protocol(fitted, split, able) | counts, summary, per_client, tuple(clients))


def run_each(executor: Executor | None, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """A function of every item, by the executor or here."""
    return one_by_one(function, items) if executor is None else executor.each(function, items)


def checked(metrics: tuple[str, ...]) -> tuple[str, ...]:
    """The names of metrics; an unknown one is an error."""
    for name in metrics:
        find(name)
    return metrics


def protocol(fitted: Fitted, split: str, evaluated: int) -> dict[str, object]:
    """What the numbers are about."""
    algorithm, clients = fitted.work.algorithm, fitted.work.federation.num_clients
    able = int((fitted.work.federation.part(split).sizes > 0).sum())
    return {
        "deploys": asdict(algorithm.client.deploys),
        "split": split,
        "round": fitted.state.round,
        "clients": clients,
        "evaluated": evaluated,
        "without_rows": clients - able,
        **({"among": able} if evaluated < able and fitted.among else {}),
        "never_sampled": 0 if fitted.work.central else int((fitted.state.visits.tensor() == 0).sum()),
        "left_out": 0,
        "global_model": 0,
        "mean": MEAN,
    }


class Everyone(Protocol):
    """Who measures all clients with one model: `everyone`, or the clients themselves where they are."""

    def __call__(
        self,
        task: Task,
        federation: Federation,
        model: Tensors,
        split: str = "test",
        metrics: tuple[str, ...] | None = None,
        executor: Executor | None = None,
    ) -> tuple[Summary, dict[str, Tensor], tuple[int, ...]]: ...


def everyone(
    task: Task,
    federation: Federation,
    model: Tensors,
    split: str = "test",
    metrics: tuple[str, ...] | None = None,
    executor: Executor | None = None,
) -> tuple[Summary, dict[str, Tensor], tuple[int, ...]]:
    """What all clients measure if they use one model: summaries, values by client, and which clients."""
    clients: list[int] = federation.part(split).sizes.nonzero().flatten().tolist()
    if not clients:
        raise fail("evaluate", f"no client has {split} rows")
    names = checked(metrics or task.objective.metrics)
    pieces = list(_pieces(clients, federation.part(split), task.objective.rows or ROWS))
    parts = run_each(executor, lambda piece: scored(task, federation, piece, model, split, names), pieces)
    return *summed_up(names, parts), tuple(clients)


def _groups(fitted: Fitted, clients: list[int], split: str, executor: Executor | None) -> Iterator[list[int]]:
    """Clients in runs that deploy the very same model, so that a shared model is used once for many rows."""
    rows, at_once = fitted.work.federation.part(split), fitted.work.task.objective.rows or ROWS
    run: list[int] = []
    current: Tensors | None = None
    for client, whole in zip(clients, _wholes(fitted, clients, executor), strict=True):
        same = whole is not None and current is not None and all(whole[n] is current[n] for n in ("theta", "buffers"))
        if not same:
            yield from _pieces(run, rows, at_once)
            run = []
        run.append(client)
        current = whole
    yield from _pieces(run, rows, at_once)


def _wholes(fitted: Fitted, clients: list[int], executor: Executor | None) -> Iterator[Tensors | None]:
    """The model of every client that deploys one as it is, with its statistics; where other processes keep the clients'
    states, the global one or None."""
    if not fitted.memory.scattered:
        yield from (_whole(fitted, client) for client in clients)
        return
    model = fitted.state.broadcast

    def common(client: int) -> bool:
        found = _whole(fitted, client)
        return found is not None and all(found[name] is model.get(name) for name in ("theta", "buffers"))

    yield from (model if same else None for same in run_each(executor, common, clients))


def _whole(fitted: Fitted, client: int) -> Tensors | None:
    point = None if fitted.tunes(client) else fitted.point(client)
    return point if isinstance(point, dict) and "buffers" in point else None


def _pieces(clients: list[int], rows: Ragged, at_once: int) -> Iterator[list[int]]:
    """Clients in pieces of about so many rows."""
    piece: list[int] = []
    count = 0
    for client in clients:
        piece.append(client)
        count += len(rows[client])
        if count >= at_once:
            yield piece
            piece, count = [], 0
    if piece:
        yield piece


@dataclass(frozen=True)
class Scored:
    """Metrics by client, how many labels each client has, and the scores where a metric needs all of them at once.

    `units` is what each client's loss is a mean over, where that is not its labels (weights of rows)."""

    values: dict[str, Tensor]
    counts: Tensor
    kept: tuple[Tensor, Tensor] | None
    units: Tensor | None = None


def scored(
    task: Task, federation: Federation, clients: list[int], model: Tensors, split: str, names: tuple[str, ...]
) -> Scored:
    """The metrics of clients that share a model. `loss` is the mean of the objective that was trained."""
    rows = federation.part(split)
    numbers = torch.cat([rows[client] for client in clients])
    own = "loss" in names and task.objective.losses not in PLAIN
    found = predicted(task, federation, model, numbers, task.objective.rows or ROWS, own)
    counts = _counts(found.units, rows.sizes[clients], len(found.labels))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    values = by_client([name for name in names if not own or name != "loss"], found.scores, found.labels, offsets)
    units = None
    if found.losses is not None:
        values["loss"], units = _objective(*found.losses, rows.sizes[clients])
    kept = None if ADDITIVE.issuperset(names) else (found.scores, found.labels)
    return Scored({name: values[name] for name in names}, counts, kept, units)


def _objective(losses: Tensor, over: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the objective over each client's rows, and what it is a mean over; NaN is infinitely bad."""
    owner = owners(sizes)
    total, weights = (torch.bincount(owner, part.double(), minlength=len(sizes)) for part in (losses, over))
    mean = total / weights
    return mean.masked_fill(mean.isnan() & (weights > 0), torch.inf), weights


def summed_up(names: tuple[str, ...], parts: Sequence[Scored]) -> tuple[Summary, dict[str, Tensor]]:
    """Summaries over all clients, and the values by client."""
    per_client = {name: torch.cat([part.values[name] for part in parts]) for name in names}
    sizes = torch.cat([part.counts for part in parts]).double()
    pooled = _pooled(names, per_client, sizes, [part.kept for part in parts if part.kept is not None])
    if parts and parts[0].units is not None:
        units = torch.cat([part.units for part in parts if part.units is not None])
        pooled["loss"] = _weighted(per_client["loss"], units)
    summary = {n: summarise(v, sizes, n in HIGHER_IS_BETTER) | {"pooled": pooled[n]} for n, v in per_client.items()}
    return summary, per_client


@dataclass(frozen=True)
class Predicted:
    """Scores and labels of some rows, how many labels each row has where the objective unrolls it (tokens), and, where
    it was asked for, each row's loss and what it counts in the mean."""

    scores: Tensor
    labels: Tensor
    units: Tensor | None
    losses: tuple[Tensor, Tensor] | None = None


def predicted(
    task: Task, federation: Federation, model: Tensors, rows: Tensor, at_once: int, losses: bool = False
) -> Predicted:
    """What a model says of some rows."""
    parts, units, lost = [], [], []
    for part in rows.split(at_once):
        batch = federation.batch(part)
        outputs = task.outputs(model["theta"], model["buffers"], batch)
        parts.append(task.objective.predictions(outputs, batch))
        if losses:
            total, over = task.objective.losses(outputs, batch)
            lost.append((total.cpu(), (torch.ones_like(total) if over is None else over).cpu()))
        if task.objective.units is not None:
            units.append(task.objective.units(batch).cpu())
    scores, labels = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    found = Predicted(scores, labels, torch.cat(units) if units else None)
    if not losses:
        return found
    total, over = (torch.cat(column) for column in zip(*lost, strict=True))
    return replace(found, losses=(total, over))


def _counts(units: Tensor | None, sizes: Tensor, labels: int) -> Tensor:
    """How many labels each client has: one per row unless the objective unrolls rows."""
    if units is None:
        units = torch.ones(int(sizes.sum()), dtype=torch.int64)
    if int(units.sum()) != labels:
        raise fail("evaluate", f"{labels} labels for {int(sizes.sum())} rows of {int(units.sum())} units")
    return torch.zeros(len(sizes), dtype=torch.int64).index_add_(0, owners(sizes), units.to(torch.int64))


def _pooled(
    names: tuple[str, ...], per_client: dict[str, Tensor], sizes: Tensor, kept: list[tuple[Tensor, Tensor]]
) -> dict[str, float]:
    """Each metric on all rows as one set; additive ones are size-weighted means, the others need all scores."""
    pooled = {n: _weighted(per_client[n], sizes) for n in names if n in ADDITIVE}
    rest = tuple(name for name in names if name not in ADDITIVE)
    if not rest or not kept or sum(scores.numel() for scores, _ in kept) > POOLED:
        return pooled | dict.fromkeys(rest, float("nan"))
    scores, labels = torch.cat([s for s, _ in kept]), torch.cat([y for _, y in kept])
    whole = by_client(rest, scores, labels, torch.tensor([0, len(labels)]))
    return pooled | {name: float(value[0]) for name, value in whole.items()}


def _weighted(values: Tensor, sizes: Tensor) -> float:
    """The mean weighted by sizes; a client with nothing to count has no say."""
    return float(torch.where(sizes > 0, values * sizes, 0.0).sum() / sizes.sum())
