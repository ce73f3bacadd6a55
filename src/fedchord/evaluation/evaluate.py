"""The written protocol: which model is evaluated, on which clients, on which split, and how it is summarised.

Every client deploys the model its rule says (`ClientRule.deploy`) and is measured on its own rows. Where the outcome is
a synthetic set, a fresh classifier is trained on it by one fixed recipe (`synthetic.learn`), and all clients use that.
The headline is the plain mean over clients; `std` is over clients (ddof 0); `pooled` treats all rows as one set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord.check import fail
from fedchord.core.rules import Algorithm, ServerState
from fedchord.core.task import Task
from fedchord.data.federation import Federation
from fedchord.engine.memory import ClientMemory
from fedchord.metrics import HIGHER_IS_BETTER, by_client, find, summarise
from fedchord.synthetic.learn import Judge, judged
from fedchord.synthetic.set import SyntheticSet, drawn
from fedchord.tensors import Tensors

ROWS = 4096
"""How many rows go through the model at a time."""
STATISTICS = 256
"""How many training rows make a batch when BatchNorm statistics are recomputed."""
POOLED = 50_000_000
"""How many scores are kept for the pooled value of metrics that need all rows at once."""
ADDITIVE = frozenset({"top1", "top5", "loss"})


Tune = Callable[[int, Tensors | None, ServerState], Tensors | None]


@dataclass(frozen=True)
class Evaluation:
    """What was measured, on what, and the values: summaries over clients and the values themselves."""

    protocol: dict[str, object]
    metrics: dict[str, dict[str, float]]
    per_client: dict[str, Tensor]
    clients: tuple[int, ...]
    samples: SyntheticSet | None = None
    """The synthetic set whose classifier was measured, where the outcome is samples."""

    def mean(self, metric: str) -> float:
        """The plain mean of a metric over the evaluated clients."""
        return self.metrics[metric]["mean"]


def evaluate(
    algorithm: Algorithm,
    task: Task,
    federation: Federation,
    state: ServerState,
    memory: ClientMemory,
    split: str = "test",
    metrics: tuple[str, ...] | None = None,
    tune: Tune | None = None,
    judge: Judge | None = None,
    seed: int = 0,
) -> Evaluation:
    """Measure every client's deployed model on its own rows of a split.

    `tune(client, kept, state)` gives what a client deploys from; by default what it keeps. For the outcome "samples",
    `judge` is the recipe of the classifier and `seed` that of the draw and of the classifier.
    """
    clients = _with_rows(federation, split)
    protocol = _protocol(algorithm, federation, state, split, len(clients))
    if algorithm.outcome == "samples":
        made, recipe = drawn(algorithm, task, federation, state, seed), judge or Judge()
        learnt = judged(recipe, made, seed)
        place = federation.columns["x"].device
        model = {name: tensor.to(place) for name, tensor in learnt.model.items()}
        summary, per_client = measure(learnt.task.to(place), federation, [(clients, model)], split, metrics)
        told = {"samples": len(made.y), "classifier": recipe.told(made.shape), "classifier_loss": learnt.loss}
        return Evaluation(protocol | told, summary, per_client, tuple(clients), made)
    alike: list[int] = []
    models = _by_model(algorithm, task, federation, state, memory, clients, tune)
    summary, per_client = measure(task, federation, _noted(models, state, alike), split, metrics)
    shared = len(alike) if algorithm.client.mixes else 0  # nothing shared: what is broadcast is the first model
    return Evaluation(protocol | {"global_model": shared}, summary, per_client, tuple(clients))


def _noted(
    models: Iterable[tuple[list[int], Tensors]], state: ServerState, alike: list[int]
) -> Iterator[tuple[list[int], Tensors]]:
    """The same models; clients that deploy the global one are added to `alike`."""
    for clients, model in models:
        if model["theta"] is state.broadcast["theta"]:
            alike.extend(clients)
        yield clients, model


def _with_rows(federation: Federation, split: str) -> list[int]:
    """The clients that can be measured."""
    clients = federation.part(split).sizes.nonzero().flatten().tolist()
    if not clients:
        raise fail("evaluate", f"no client has {split} rows")
    return clients


def everyone(
    task: Task, federation: Federation, model: Tensors, split: str = "test", metrics: tuple[str, ...] | None = None
) -> dict[str, dict[str, float]]:
    """The summary over clients if all use one model."""
    return measure(task, federation, [(_with_rows(federation, split), model)], split, metrics)[0]


def measure(
    task: Task,
    federation: Federation,
    models: Iterable[tuple[list[int], Tensors]],
    split: str,
    metrics: tuple[str, ...] | None = None,
) -> tuple[dict[str, dict[str, float]], dict[str, Tensor]]:
    """Metrics of clients, given in groups that share a model: summaries over clients, and the values by client."""
    names, rows = metrics or task.objective.metrics, federation.part(split)
    for name in names:
        find(name)
    values: dict[str, list[Tensor]] = {name: [] for name in names}
    kept: list[tuple[Tensor, Tensor]] = []
    counted: list[Tensor] = []
    at_once = task.objective.rows or ROWS
    for group, model in models:
        for part in _pieces(group, rows.sizes, at_once):
            scores, labels, units = predicted(
                task, federation, model, torch.cat([rows[client] for client in part]), at_once
            )
            counted.append(_counts(units, rows.sizes[part], len(labels)))
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counted[-1].cumsum(0)])
            for name, value in by_client(names, scores, labels, offsets).items():
                values[name].append(value)
            if not ADDITIVE.issuperset(names):
                kept.append((scores, labels))
    per_client = {name: torch.cat(parts) for name, parts in values.items()}
    sizes = torch.cat(counted).double()
    pooled = _pooled(names, per_client, sizes, kept)
    summary = {n: summarise(v, sizes, n in HIGHER_IS_BETTER) | {"pooled": pooled[n]} for n, v in per_client.items()}
    return summary, per_client


def _protocol(
    algorithm: Algorithm, federation: Federation, state: ServerState, split: str, evaluated: int
) -> dict[str, object]:
    return {
        "model": algorithm.client.deploys,
        "split": split,
        "round": state.round,
        "clients": federation.num_clients,
        "evaluated": evaluated,
        "without_rows": federation.num_clients - evaluated,
        "never_sampled": int((state.visits == 0).sum()),
        "global_model": 0,
        "mean": "plain mean over evaluated clients; std over clients, ddof 0; pooled over all rows",
    }


def deployed(
    algorithm: Algorithm,
    task: Task,
    federation: Federation,
    state: ServerState,
    client: int,
    own: Tensors | None,
    tune: Tune | None = None,
) -> Tensors:
    """The model a client deploys, {"theta", "buffers"}, from what it keeps (None: it never trained).

    A rule that mixes models gives no buffers: the statistics are then recomputed on the client's training rows.
    """
    model = algorithm.client.deploy(task, state.broadcast, tune(client, own, state) if tune else own)
    if "buffers" not in model:
        model = model | {"buffers": recalibrated(task, federation, client, model["theta"])}
    return model


def recalibrated(task: Task, federation: Federation, client: int, theta: Tensor) -> Tensor:
    """BatchNorm statistics of a model, recomputed on a client's training rows (empty where the model has none)."""
    if not task.buffers.size:
        return torch.zeros(0, device=theta.device)
    return task.statistics(theta, (federation.batch(rows) for rows in federation.train[client].split(STATISTICS)))


def _by_model(
    algorithm: Algorithm,
    task: Task,
    federation: Federation,
    state: ServerState,
    memory: ClientMemory,
    clients: list[int],
    tune: Tune | None,
) -> Iterator[tuple[list[int], Tensors]]:
    """Clients in runs that deploy the very same model, so that a shared model is used once for many."""
    group: list[int] = []
    current: Tensors | None = None
    for client in clients:
        own = None
        if state.visits[client] > 0:
            own = memory.get(client) or {}
        model = deployed(algorithm, task, federation, state, client, own, tune)
        if current is not None and any(model[name] is not current[name] for name in ("theta", "buffers")):
            yield group, current
            group = []
        group.append(client)
        current = model
    if current is not None:
        yield group, current


def _pieces(clients: list[int], sizes: Tensor, at_once: int) -> Iterator[list[int]]:
    """Clients in pieces of about so many rows."""
    piece: list[int] = []
    count = 0
    for client in clients:
        piece.append(client)
        count += int(sizes[client])
        if count >= at_once:
            yield piece
            piece, count = [], 0
    if piece:
        yield piece


def predicted(
    task: Task, federation: Federation, model: Tensors, rows: Tensor, at_once: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores and labels of some rows, and how many labels each row has where the objective unrolls it (tokens)."""
    parts, units = [], []
    for part in rows.split(at_once):
        batch = federation.batch(part)
        outputs = task.outputs(model["theta"], model["buffers"], batch)
        parts.append(task.objective.predictions(outputs, batch))
        if task.objective.units is not None:
            units.append(task.objective.units(batch).cpu())
    scores, labels = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    return scores, labels, torch.cat(units) if units else None


def _counts(units: Tensor | None, sizes: Tensor, labels: int) -> Tensor:
    """How many labels each client has: one per row unless the objective unrolls rows."""
    if units is None:
        units = torch.ones(int(sizes.sum()), dtype=torch.int64)
    if int(units.sum()) != labels:
        raise fail("evaluate", f"{labels} labels for {int(sizes.sum())} rows of {int(units.sum())} units")
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return torch.zeros(len(sizes), dtype=torch.int64).index_add_(0, owner, units.to(torch.int64))


def _pooled(
    names: tuple[str, ...], per_client: dict[str, Tensor], sizes: Tensor, kept: list[tuple[Tensor, Tensor]]
) -> dict[str, float]:
    """Each metric on all rows as one set; additive ones are size-weighted means, the others need all scores."""
    pooled = {n: float((per_client[n] * sizes).sum() / sizes.sum()) for n in names if n in ADDITIVE}
    rest = tuple(name for name in names if name not in ADDITIVE)
    if not rest or sum(scores.numel() for scores, _ in kept) > POOLED:
        return pooled | dict.fromkeys(rest, float("nan"))
    scores, labels = torch.cat([s for s, _ in kept]), torch.cat([y for _, y in kept])
    whole = by_client(rest, scores, labels, torch.tensor([0, len(labels)]))
    return pooled | {name: float(value[0]) for name, value in whole.items()}
