"""One client's round: the only training loop of the library, and the local optimiser.

The simulator calls `local_round` in a loop, in worker processes or under `torch.func.vmap`; a Flower client calls it
once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.data.federation import Federation
from fedchord.rules import ClientRule, Phase, RoundInfo, Slope, Upload, Visit
from fedchord.task import Batch, Task
from fedchord.tensors import Tensors, clone

BLOCK_BYTES = 16 << 20
"""How many bytes of examples are gathered at a time."""
VARIED = 1
"""The fold of an epoch's key that training pictures are varied by."""


@dataclass(frozen=True)
class Training:
    """How clients train: epochs, batch size (0: the whole client) and the local optimiser.

    The learning rate of round t (from 0) is lr * lr_decay ** floor(t / lr_step). Momentum starts at zero in every
    round. Weight decay is added to the gradient (for Adam too). `clip`, where above 0, bounds the norm of the whole
    gradient.
    """

    epochs: int = 1
    batch: int = 20
    lr: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    lr_step: int = 1
    clip: float = 0.0
    optimiser: str = "sgd"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check.whole("Training", "epochs", self.epochs)
        check.whole("Training", "batch", self.batch)
        check.positive("Training", "lr", self.lr)
        check.below("Training", "momentum", self.momentum, 1)
        check.at_least("Training", "weight_decay", self.weight_decay, 0)
        check.positive("Training", "lr_decay", self.lr_decay)
        check.whole("Training", "lr_step", self.lr_step, 1)
        check.at_least("Training", "clip", self.clip, 0)
        check.one_of("Training", "optimiser", self.optimiser, ("sgd", "adam"))
        check.below("Training", "beta1", self.beta1, 1)
        check.below("Training", "beta2", self.beta2, 1)
        check.positive("Training", "eps", self.eps)

    def rate(self, round: int) -> float:
        """The learning rate of a round, counted from 0."""
        return self.lr * self.lr_decay ** (round // self.lr_step)


class LocalOptimiser:
    """SGD with momentum, or Adam, on named vectors.

        SGD:   v <- momentum v + (g + wd x),  x <- x - lr v
        Adam:  m <- b1 m + (1 - b1) g,  s <- b2 s + (1 - b2) g^2,  x <- x - lr (m / (1 - b1^t)) / (sqrt(s / (1 -
        b2^t)) + eps)

    Inside a traced (vectorised) run it computes new tensors by these formulas; otherwise torch's fused kernels change
    the loop's own copies in place.
    """

    def __init__(self, training: Training, lr: float, task: Task) -> None:
        self.training, self.lr, self._task = training, lr, task
        self._split: dict[str, tuple[Tensor, list[Tensor]]] = {}
        self.kept: dict[str, object] = {}
        """What a rule's own step keeps for the length of a visit, such as views of the vectors."""

    @property
    def eager_sgd(self) -> bool:
        """Whether steps are plain SGD in place, so that a rule may fuse its own arithmetic with `descend`."""
        return not self._task.traced and self.training.optimiser == "sgd" and self.training.clip == 0

    def init(self, trained: Tensors, moves: tuple[str, ...]) -> Tensors:
        """The optimiser's memory at the start of a phase."""
        if self.training.optimiser == "adam":
            kinds = {
                f"{kind}.{name}": torch.zeros_like(trained[name]) for name in moves for kind in ("first", "second")
            }
            return kinds | {"count": torch.zeros((), device=trained[moves[0]].device)}
        if self.training.momentum == 0:
            return {}
        return {f"momentum.{name}": torch.zeros_like(trained[name]) for name in moves}

    def step(self, trained: Tensors, slope: Slope, memory: Tensors, moves: tuple[str, ...]) -> tuple[Tensors, Tensors]:
        """Move the entries in `moves` along their slopes and replace the carried ones."""
        if self.training.clip > 0:
            slope = self._clipped(slope, moves)
        move = self._adam if self.training.optimiser == "adam" else self._sgd
        trained, memory = (dict(trained), dict(memory)) if self._task.traced else (trained, memory)
        if self.training.optimiser == "adam":
            memory["count"] = memory["count"] + 1
        for name, value in slope.items():
            if name in moves:
                move(name, trained, value, memory)
            else:
                trained[name] = value  # type: ignore[assignment]
        return trained, memory

    def _clipped(self, slope: Slope, moves: tuple[str, ...]) -> Slope:
        lists = {name: value if isinstance(value, list) else [value] for name, value in slope.items() if name in moves}
        norm = torch.stack([(part * part).sum() for parts in lists.values() for part in parts]).sum().sqrt()
        scale = (self.training.clip / (norm + 1e-6)).clamp_max(1.0)
        scaled = {name: [part * scale for part in parts] for name, parts in lists.items()}
        return dict(slope) | {n: p if isinstance(slope[n], list) else p[0] for n, p in scaled.items()}

    def _pieces(self, name: str, vector: Tensor) -> list[Tensor]:
        """The layout's views of a vector, made once."""
        known = self._split.get(name)
        if known is None or known[0] is not vector:
            known = (vector, list(self._task.layout.views(vector).values()))
            self._split[name] = known
        return known[1]

    def _lists(self, slope: Tensor | list[Tensor], **vectors: Tensor) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        """Slope and vectors in the list form of the fused kernels: whole vectors, or one piece per layout entry."""
        if isinstance(slope, list):
            return slope, {name: self._pieces(name, vector) for name, vector in vectors.items()}
        return [slope], {name: [vector] for name, vector in vectors.items()}

    def _sgd(self, name: str, trained: Tensors, slope: Tensor | list[Tensor], memory: Tensors) -> None:
        decay, momentum = self.training.weight_decay, self.training.momentum
        if self._task.traced:
            assert isinstance(slope, Tensor)
            velocity = slope + decay * trained[name] if decay else slope
            if momentum:
                velocity = momentum * memory[f"momentum.{name}"] + velocity
                memory[f"momentum.{name}"] = velocity
            trained[name] = trained[name] - self.lr * velocity
            return
        held = [memory[f"momentum.{name}"]] if momentum else []
        if isinstance(slope, Tensor):
            self.descend([trained[name]], [slope], held, decay)
        else:
            moments = self._pieces(f"momentum.{name}", held[0]) if held else []
            self.descend(self._pieces(name, trained[name]), slope, moments, decay)

    def descend(
        self, values: list[Tensor], slopes: list[Tensor], velocities: list[Tensor], decay: float, share: float = 1.0
    ) -> None:
        """One SGD step in place on lists of tensors, v <- momentum v + share (slope + decay x), x <- x - lr v.

        `velocities` is empty without momentum.
        """
        torch._fused_sgd_(
            values,
            slopes,
            velocities,
            weight_decay=decay,
            momentum=self.training.momentum,
            lr=self.lr if velocities else self.lr * share,
            dampening=1.0 - share if velocities else 0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )

    def _adam(self, name: str, trained: Tensors, slope: Tensor | list[Tensor], memory: Tensors) -> None:
        t = self.training
        first, second = f"first.{name}", f"second.{name}"
        if self._task.traced:
            assert isinstance(slope, Tensor)
            g = slope + t.weight_decay * trained[name]
            memory[first] = t.beta1 * memory[first] + (1 - t.beta1) * g
            memory[second] = t.beta2 * memory[second] + (1 - t.beta2) * g * g
            mean = memory[first] / _unbias(t.beta1, memory["count"])
            spread = torch.sqrt(memory[second] / _unbias(t.beta2, memory["count"]))
            trained[name] = trained[name] - self.lr * mean / (spread + t.eps)
            return
        slopes, lists = self._lists(slope, **{name: trained[name], first: memory[first], second: memory[second]})
        torch._fused_adam_(
            lists[name],
            slopes,
            lists[first],
            lists[second],
            [],
            [memory["count"]] * len(slopes),
            lr=self.lr,
            beta1=t.beta1,
            beta2=t.beta2,
            weight_decay=t.weight_decay,
            eps=t.eps,
            amsgrad=False,
            maximize=False,
        )


def _unbias(beta: float, count: Tensor) -> Tensor:
    """1 - beta^count without the cancellation that float32 powers near one would bring."""
    return -torch.expm1(count * math.log(beta)) if beta else torch.ones_like(count)


class Stream(Protocol):
    """One client's training examples, as the loop reads them."""

    @property
    def size(self) -> int | Tensor:
        """How many examples there are."""

    def steps(self, phase: Phase) -> int | Tensor:
        """How many batches a phase has."""

    def batches(self, index: int, phase: Phase) -> Iterator[Batch]:
        """The batches of the phase with this index."""

    def whole(self) -> Iterator[Batch]:
        """All examples once, in order, in large pieces."""


class ClientStream:
    """The examples of one client of a federation: shuffled anew in every epoch, gathered in blocks, then sliced.

    The last batch of an epoch may be short; one below `least` rows is left out of that epoch.
    """

    def __init__(self, federation: Federation, client: int, batch: int, key: int, least: int = 1) -> None:
        self._federation, self._rows, self._key = federation, federation.train[client], key
        self.size = len(self._rows)
        self.batch = batch or max(self.size, 1)
        short = self.size % self.batch
        self._used = self.size - short if 0 < short < least else self.size
        if self.size and not self._used:
            name = federation.client_names[client]
            raise check.fail(
                federation.name, f"{name} has {self.size} training row; BatchNorm needs {least}: use GroupNorm"
            )
        self._per_epoch = math.ceil(self._used / self.batch)
        self._block = max(1, BLOCK_BYTES // max(1, federation.row_bytes * self.batch)) * self.batch

    def steps(self, phase: Phase) -> int:
        """How many batches a phase has."""
        return phase.steps if phase.steps is not None else phase.epochs * self._per_epoch

    def order(self, index: int, phase: Phase) -> Iterator[Tensor]:
        """The row numbers of each epoch of a phase, in their shuffled order."""
        key = rng.fold(self._key, index)
        left = self.steps(phase) if self._per_epoch else 0
        for epoch in range(math.ceil(left / max(self._per_epoch, 1))):
            order = rng.permutation(rng.fold(key, epoch), self.size)
            yield self._rows.index_select(0, order[: min(self._used, left * self.batch)])
            left -= self._per_epoch

    def blocks(self, index: int, phase: Phase) -> Iterator[Batch]:
        """The rows of a phase in blocks of whole batches; only the last batch of an epoch may be short."""
        for epoch, rows in enumerate(self.order(index, phase)):
            key = rng.fold(rng.fold(rng.fold(self._key, index), epoch), VARIED)
            assert isinstance(key, int)
            for start in range(0, len(rows), self._block):
                yield self._federation.batch(rows[start : start + self._block], key)

    def batches(self, index: int, phase: Phase) -> Iterator[Batch]:
        """The batches of a phase."""
        for block in self.blocks(index, phase):
            for first in range(0, len(block["y"]), self.batch):
                yield {name: column[first : first + self.batch] for name, column in block.items()}

    def whole(self) -> Iterator[Batch]:
        """All examples once, in order, in large pieces."""
        for start in range(0, self.size, self._block):
            yield self._federation.batch(self._rows[start : start + self._block])


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
