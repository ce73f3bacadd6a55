"""One client's round: the only training loop of the library.

The simulator calls `local_round` in a loop, in worker processes or under `torch.func.vmap`; a Flower client calls it
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedchord import rng
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Phase, RoundInfo, Upload, Visit
from fedchord.core.stream import ClientStream, Stream
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser, Training
from fedchord.tensors import Tensors, clone


def _cut(blocks: Iterator[Batch], rows: int | None) -> Iterator[Batch]:
    """The blocks, in pieces of at most so many rows if a number is given."""
    for block in blocks:
        if rows is None:
            yield block
        else:
            for first in range(0, len(block["y"]), rows):
                yield {name: column[first : first + rows] for name, column in block.items()}


def data_loss(task: Task, model: Tensors, stream: Stream) -> Tensor:
    """F_i: the mean loss of a model over all examples of a stream, in evaluation mode, in float64."""
    total, units = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for batch in _cut(stream.whole(), task.objective.rows):
        losses, count = task.objective.losses(task.outputs(model["theta"], model["buffers"], batch), batch)
        live = batch.get("live")
        count = torch.ones_like(losses) if count is None else count
        if live is not None:
            losses, count = losses * live, count * live
        total, units = total + losses.double().sum(), units + count.double().sum()
    return total / torch.where(units > 0, units, 1.0)


def local_round(
    rule: ClientRule,
    task: Task,
    training: Training,
    shared: Tensors,
    own: Tensors,
    stream: Stream,
    info: RoundInfo,
    client: int | Tensor,
    key: rng.Key,
    needs_loss: bool = False,
) -> tuple[Upload, Tensors, Tensor | None]:
    """One client's round: what it uploads, what it keeps, and the loss of the received model if asked for."""
    visit = Visit(task, shared, own, info, client, stream.size)
    phases = rule.phases(visit)
    steps = sum(stream.steps(phase) for phase in phases)
    visit = Visit(task, shared, own, info, client, stream.size, steps)
    loss = data_loss(task, rule.received(visit), stream) if needs_loss else None
    trained = train(rule, training, visit, stream, phases, key)
    upload, kept = rule.finish(trained, visit)
    return upload, kept, loss


def train(
    rule: ClientRule, training: Training, visit: Visit, stream: Stream, phases: tuple[Phase, ...], key: rng.Key
) -> Tensors:
    """The loop: phases, batches, steps. Returns the trained entries."""
    trained = clone(rule.start(visit))
    optimiser = LocalOptimiser(training, visit.info.lr, visit.task)
    for index, phase in enumerate(phases):
        visit = replace(visit, phase=phase, key=rng.fold(key, index))
        memory = optimiser.init(trained, phase.moves)
        if isinstance(stream, ClientStream) and is_plain(rule, phase, optimiser, visit.task):
            _descend(trained["theta"], memory, visit.task, stream, index, optimiser, phase)
            continue
        for t, batch in enumerate(stream.batches(index, phase)):
            before = trained, memory
            trained, memory = rule.step(trained, memory, visit, batch, rng.fold(visit.key, t), optimiser)
            if visit.task.traced:
                trained, memory = (_keep(batch["live"], *pair) for pair in zip((trained, memory), before, strict=True))
    return trained


def is_plain(rule: ClientRule, phase: Phase, optimiser: LocalOptimiser, task: Task) -> bool:
    """Whether a phase is nothing but SGD on a dense task: then the rule's hooks need not be asked at every step."""
    kind = type(rule)
    hooks = (kind.step, kind.direction, kind.loss) == (ClientRule.step, ClientRule.direction, ClientRule.loss)
    return hooks and phase.moves == ("theta",) and task.dense is not None and optimiser.eager_sgd


def _descend(
    theta: Tensor,
    memory: Tensors,
    task: Task,
    stream: ClientStream,
    index: int,
    optimiser: LocalOptimiser,
    phase: Phase,
) -> None:
    """The default steps of a dense task in place: the same operations as through the hooks, fewer calls."""
    assert task.dense is not None
    slope, decay, size = task.scratch(theta), optimiser.training.weight_decay, stream.batch
    values, slopes, velocities = [theta], [slope], list(memory.values())
    gradient, descend = task.dense.slopes, optimiser.descend
    with torch._C._InferenceMode(True):
        for block in stream.blocks(index, phase):
            x, toward = block["x"].flatten(1), task.dense.toward(block["y"], size)
            for here, pulls in zip(
                x.unsafe_split(size), toward.unsafe_split(size), strict=True
            ):  # split, in fewer calls
                gradient(theta, here, pulls, slope)
                descend(values, slopes, velocities, decay)


def _keep(live: Tensor, new: Tensors, old: Tensors) -> Tensors:
    """In a vectorised run, a step on padding changes nothing."""
    real = live.any()
    return {name: torch.where(real, new[name], old[name]) for name in new}
