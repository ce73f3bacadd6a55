"""One client's round: the only training loop of the library.

The simulator calls `local_round` in a loop, in worker processes or under `torch.func.vmap`; a Flower client calls it
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedchord import rng
from fedchord.core import clock
from fedchord.core.descent import descend
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Phase, RoundInfo, Upload, Visit
from fedchord.core.stream import ClientStream, Stream
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser, Training
from fedchord.tensors import Tensors, clone

Watch = Callable[[int, Tensors], None]
"""Is told how many steps of a phase are done and what was trained by them, at least at the end of every epoch. What it
is given may be changed by the next step."""


class Begun(NamedTuple):
    """A visit between two of its steps: what is trained, the optimiser's memory, how many steps are made in all."""

    trained: Tensors
    memory: Tensors
    steps: int


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
    begun: Begun | None = None,
) -> tuple[Upload, Tensors, Tensor | None]:
    """One client's round: what it uploads, what it keeps, and the loss of the received model if asked for.

    The guards come after everything that the rule does, one after another. A round that `begin_round` began goes on
    from there, and then has no loss to tell again.
    """
    visit, phases = _opened(rule, task, shared, own, stream, info, client)
    loss = _received_loss(rule, visit, stream) if needs_loss and begun is None else None
    trained = train(rule, training, visit, stream, phases, key, begun=begun)
    upload, kept = rule.finish(trained, visit)
    for guard in guards:
        upload = guard(upload, visit)
    return upload, kept, loss


def begin_round(
    rule: ClientRule,
    task: Task,
    training: Training,
    shared: Tensors,
    own: Tensors,
    stream: ClientStream,
    info: RoundInfo,
    client: int,
    key: rng.Key,
    steps: int,
    needs_loss: bool = False,
) -> tuple[Begun, Tensor | None]:
    """The first steps of a client's round, and the loss of the received model if asked for.

    Anyone who has the same data may go on, by `local_round` with `begun`, to the bits of a round in one piece.
    """
    visit, phases = _opened(rule, task, shared, own, stream, info, client)
    loss = _received_loss(rule, visit, stream) if needs_loss else None
    return _walk(rule, training, visit, stream, phases, key, last=steps), loss


def _opened(
    rule: ClientRule,
    task: Task,
    shared: Tensors,
    own: Tensors,
    stream: Stream,
    info: RoundInfo,
    client: int | Tensor,
) -> tuple[Visit, tuple[Phase, ...]]:
    visit = Visit(task, shared, own, info, client, stream.size)
    phases = rule.phases(visit)
    steps = sum(stream.steps(phase) for phase in phases)
    return Visit(task, shared, own, info, client, stream.size, steps), phases


def _received_loss(rule: ClientRule, visit: Visit, stream: Stream) -> Tensor:
    return clock.timed(clock.MODEL, data_loss)(visit.task, rule.received(visit), stream)


def train(
    rule: ClientRule,
    training: Training,
    visit: Visit,
    stream: Stream,
    phases: tuple[Phase, ...],
    key: rng.Key,
    watch: Watch | None = None,
    begun: Begun | None = None,
) -> Tensors:
    """All steps of a visit, or those that are left of one. Returns the trained entries."""
    return _walk(rule, training, visit, stream, phases, key, watch, begun).trained


def _walk(
    rule: ClientRule,
    training: Training,
    visit: Visit,
    stream: Stream,
    phases: tuple[Phase, ...],
    key: rng.Key,
    watch: Watch | None = None,
    begun: Begun | None = None,
    last: int | None = None,
) -> Begun:
    """The loop: phases, batches, steps; from where it was left, and up to the step `last` of all phases."""
    task, before = visit.task, 0
    cut = None if begun is None and last is None else stream
    assert cut is None or isinstance(cut, ClientStream)
    trained, memory, made = begun or Begun(clone(rule.start(visit)), {}, 0)
    for index, phase in enumerate(phases):
        piece = None
        if cut is not None:
            count = cut.steps(phase)
            piece = slice(made - before, count if last is None else min(count, last - before))
            before += count
            if piece.start >= piece.stop:
                continue
            made = before - count + piece.stop
        visit = replace(visit, task=task.bare if phase.stays else task, phase=phase, key=rng.fold(key, index))
        optimiser = LocalOptimiser(training, visit.info.lr if phase.lr is None else phase.lr, visit.task)
        if piece is None or piece.start == 0:
            memory = optimiser.init(trained, phase.moves)
        if has_default_steps(rule) and descend(
            visit.task, phase, optimiser, trained, memory, stream, index, watch, piece
        ):
            continue
        step = clock.timed(clock.MODEL, rule.step)
        batches = stream.batches(index, phase) if cut is None else cut.batches(index, phase, piece)
        for t, batch in enumerate(clock.over(clock.DATA, batches), piece.start if piece else 0):
            old = trained, memory
            trained, memory = step(trained, memory, visit, batch, rng.fold(visit.key, t), optimiser)
            if visit.task.traced:
                trained, memory = (_keep(batch["live"], *pair) for pair in zip((trained, memory), old, strict=True))
            if watch is not None:
                watch(t + 1, trained)
    return Begun(trained, memory, made)


def has_default_steps(rule: ClientRule) -> bool:
    """Whether every step of a rule follows the gradient of the data loss."""
    kind = type(rule)
    return (kind.step, kind.direction, kind.loss) == (ClientRule.step, ClientRule.direction, ClientRule.loss)


def _keep(live: Tensor, new: Tensors, old: Tensors) -> Tensors:
    """In a vectorised run, a step on padding changes nothing."""
    real = live.any()
    return {name: torch.where(real, new[name], old[name]) for name in new}
