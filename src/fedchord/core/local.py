"""One client's round: the only training loop of the library.

The simulator calls `local_round` in a loop, in worker processes or under `torch.func.vmap`; a Flower client calls it
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fedchord import rng
from fedchord.core import clock
from fedchord.core.descent import descend
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Phase, RoundInfo, Upload, Visit
from fedchord.core.stream import Stream
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser, Training
from fedchord.tensors import Tensors, clone

Watch = Callable[[int, Tensors], None]
"""Is told how many steps of a phase are done and what was trained by them, at least at the end of every epoch. What it
is given may be changed by the next step."""


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


class Guard(Protocol):
    """What a client does to its upload before it leaves: bound it, add noise to it, make it shorter."""

    def __call__(self, upload: Upload, visit: Visit) -> Upload:
        """The upload that leaves; of the same entries, shapes and types."""
        ...


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
    guards: tuple[Guard, ...] = (),
) -> tuple[Upload, Tensors, Tensor | None]:
    """One client's round: what it uploads, what it keeps, and the loss of the received model if asked for.

    The guards come after everything that the rule does, one after another.
    """
    visit = Visit(task, shared, own, info, client, stream.size)
    phases = rule.phases(visit)
    steps = sum(stream.steps(phase) for phase in phases)
    visit = Visit(task, shared, own, info, client, stream.size, steps)
    loss = clock.timed(clock.MODEL, data_loss)(task, rule.received(visit), stream) if needs_loss else None
    trained = train(rule, training, visit, stream, phases, key)
    upload, kept = rule.finish(trained, visit)
    for guard in guards:
        upload = guard(upload, visit)
    return upload, kept, loss


def train(
    rule: ClientRule,
    training: Training,
    visit: Visit,
    stream: Stream,
    phases: tuple[Phase, ...],
    key: rng.Key,
    watch: Watch | None = None,
) -> Tensors:
    """The loop: phases, batches, steps. Returns the trained entries."""
    trained, task = clone(rule.start(visit)), visit.task
    for index, phase in enumerate(phases):
        visit = replace(visit, task=task.bare if phase.stays else task, phase=phase, key=rng.fold(key, index))
        optimiser = LocalOptimiser(training, visit.info.lr if phase.lr is None else phase.lr, visit.task)
        memory = optimiser.init(trained, phase.moves)
        if has_default_steps(rule) and descend(visit.task, phase, optimiser, trained, memory, stream, index, watch):
            continue
        step = clock.timed(clock.MODEL, rule.step)
        for t, batch in enumerate(clock.over(clock.DATA, stream.batches(index, phase))):
            before = trained, memory
            trained, memory = step(trained, memory, visit, batch, rng.fold(visit.key, t), optimiser)
            if visit.task.traced:
                trained, memory = (_keep(batch["live"], *pair) for pair in zip((trained, memory), before, strict=True))
            if watch is not None:
                watch(t + 1, trained)
    return trained


def has_default_steps(rule: ClientRule) -> bool:
    """Whether every step of a rule follows the gradient of the data loss."""
    kind = type(rule)
    return (kind.step, kind.direction, kind.loss) == (ClientRule.step, ClientRule.direction, ClientRule.loss)


def _keep(live: Tensor, new: Tensors, old: Tensors) -> Tensors:
    """In a vectorised run, a step on padding changes nothing."""
    real = live.any()
    return {name: torch.where(real, new[name], old[name]) for name in new}
