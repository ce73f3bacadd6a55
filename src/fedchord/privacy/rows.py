"""Privacy of rows: gradients of single rows, clipped, summed and noised at every step (Abadi et al., 2016).

With b rows in a batch on average, clip C and noise z, the gradient of a step is

    (sum over the drawn rows of g_i min(1, C / ||g_i||) + z C N(0, I)) / b,

where each of a client's n rows is drawn with probability b / n, independently at every step: Poisson sampling, which
the accounting assumes. Everything a client trains from such gradients may leave it. The numbers of rows of clients and
all settings are taken as known. A phase whose outcome never leaves and goes into nothing that does (`Phase.stays`)
trains as without privacy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, final

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import fail, require
from fedchord.core.objective import Batch
from fedchord.core.rules import Cohort, Mix, MixingRule, Phase, RoundInfo, Visit
from fedchord.core.stream import VARIED, ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.privacy import draws
from fedchord.privacy.accounting import POISSON, Draw, epsilon, least
from fedchord.privacy.terms import Privacy
from fedchord.tensors import Tensors

CHUNK = 128
"""Rows whose gradients are held at a time."""
PLANNED = "planned"
"""The entry of a batch that tells how many rows it has on average."""
_CHOSEN = 2
"""The fold of a phase's key that rows are drawn by."""


@final
@dataclass(frozen=True)
class Course:
    """What training costs each client: of how many rows (`sizes`) it draws `batch` at a step, and how many `steps` it
    has made after each round; `gradients` of a batch are shown at a step."""

    sizes: tuple[int, ...]
    batch: int
    steps: tuple[tuple[int, ...], ...]
    """By client, the steps up to each round."""
    delta: float
    gradients: int = 1
    given: float | None = None
    wanted: float | None = None
    _found: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def noise(self) -> float:
        """The noise, as a multiple of the clipping norm: the least by which no client spends more than is wanted."""
        if self.given is not None:
            return self.given
        if "noise" not in self._found:
            assert self.wanted is not None
            self._found["noise"] = least(lambda noise: self._worst(noise, -1), self.wanted)
        return self._found["noise"]

    @property
    def sampled(self) -> bool:
        """Whether some client reads a part of its rows at a step, and not all of them."""
        return any(0 < self.batch < size for size in self.sizes)

    def after(self, rounds: int) -> float:
        """The epsilon of the client that has spent most, if it took part in all rounds so far."""
        return self._worst(self.noise, rounds - 1)

    def by_client(self) -> list[float]:
        """The epsilon of every client that takes part in all rounds."""
        return [self._cost(self.noise, size, steps[-1]) for size, steps in zip(self.sizes, self.steps, strict=True)]

    def _worst(self, noise: float, round: int) -> float:
        kinds = {(size, _upto(steps, round)) for size, steps in zip(self.sizes, self.steps, strict=True)}
        return max(self._cost(noise, *kind) for kind in kinds)

    def _cost(self, noise: float, size: int, steps: int) -> float:
        """k gradients of one batch with noise each are one of k times the length: the noise counts 1 / sqrt(k)."""
        if not size:
            return 0.0
        draw = Draw(POISSON, min(self.batch or size, size), size)
        return epsilon(draw, noise / self.gradients**0.5, steps, self.delta)


def _upto(steps: tuple[int, ...], round: int) -> int:
    """The steps up to a round (from 0; -1: all); beyond the plan, as where a longer run is tried, in proportion."""
    return steps[round] if round < len(steps) else -(-steps[-1] * (round + 1) // len(steps))


def course_of(
    rule: Any, privacy: Privacy, task: Task, sizes: Sequence[int], training: Training, infos: Sequence[RoundInfo]
) -> Course:
    """The course of a run: a client's phases, round by round."""
    privacy.doubt(min(size for size in sizes if size), "rows")
    if not rule.gradients:  # it reads every row once a round
        once = tuple(range(1, len(infos) + 1))
        return Course(tuple(sizes), 0, (once,) * len(sizes), privacy.delta, 1, privacy.noise, privacy.epsilon)
    batch, known = training.batch, dict[int, tuple[int, ...]]()
    for size in set(sizes):
        total, sums = 0, []
        per_epoch = -(-size // (batch or max(size, 1)))
        for info in infos:
            phases = rule.phases(Visit(task, {}, {}, info, 0, size))
            for phase in phases:
                if not phase.stays and size:
                    total += phase.epochs * per_epoch if phase.steps is None else phase.steps
            sums.append(total)
        known[size] = tuple(sums)
    steps = tuple(known[size] for size in sizes)
    return Course(tuple(sizes), batch, steps, privacy.delta, rule.gradients, privacy.noise, privacy.epsilon)


@final
@dataclass(frozen=True)
class Hiding:
    """How gradients are hidden: the clip and the course that has the noise. Over a network rows and noise are drawn by
    a `secret` of the client; in a simulation by the run's keys."""

    clip: float
    course: Course = field(repr=False)
    secret: bytes = field(default=b"", repr=False)

    def drawn(self, key: int, what: str, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers for a step, which its key tells, and what they are for."""
        if self.secret:
            return draws.secret(self.secret, key, what, shape=shape)
        return draws.keyed(key, what, shape)


@final
class RowTask(Task):
    """A task whose gradients are clipped row by row, and noised. Rules do not know."""

    def __init__(self, task: Task, hiding: Hiding) -> None:
        super().__init__(task._model, task.objective, task._apply, dense=False, inputs=task.inputs)
        self.to(task.device)
        self.hiding, self._plain, self.asked = hiding, task, 0

    @property
    def bare(self) -> Task:
        """The task without privacy."""
        return self._plain

    def to(self, device: torch.device | str) -> RowTask:
        if hasattr(self, "_plain"):
            self._plain.to(device)
        super().to(device)
        return self

    def grad(
        self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(key, int)
        planned = float(batch[PLANNED])
        total = self._clipped(theta, buffers, {name: part for name, part in batch.items() if name != PLANNED}, key)
        noise = self.hiding.course.noise * self.hiding.clip * self._drawn(theta, key).to(theta.device)
        slope = ((total.double() + noise) / planned).to(theta.dtype)
        self.asked += 1
        return slope if out is None else out.copy_(slope), buffers

    def _clipped(self, theta: Tensor, buffers: Tensor, batch: Batch, key: int) -> Tensor:
        """The sum of the rows' clipped gradients."""
        if self._plain.dense is not None:
            return self._plain.dense.clipped(theta, batch["x"], batch["y"], self.hiding.clip)
        total = torch.zeros_like(theta)
        for first in range(0, len(batch["y"]), CHUNK):
            part = {name: column[first : first + CHUNK] for name, column in batch.items()}
            with self._randomness(part, key):
                slopes = self._by_row(theta, buffers, part)
            norms = torch.linalg.vector_norm(slopes, dim=1)
            total += (self.hiding.clip / norms.clamp_min(self.hiding.clip)) @ slopes
        return total

    def _by_row(self, theta: Tensor, buffers: Tensor, batch: Batch) -> Tensor:
        """The gradient of every row's own loss, (rows, parameters)."""

        def loss(point: Tensor, row: Batch) -> Tensor:
            one = {name: value.unsqueeze(0) for name, value in row.items()}
            return self.objective.losses(self.forward(point, buffers, one, training=True), one)[0].sum()

        found: Tensor = torch.func.vmap(torch.func.grad(loss), (None, 0), randomness="different")(theta, batch)
        return found

    def _drawn(self, theta: Tensor, key: int) -> Tensor:
        """Noise for a step; by a secret it depends on the point too, since a server may ask again at another."""
        bits = theta.detach().cpu().numpy().tobytes() if self.hiding.secret else b""
        return self.hiding.drawn(
            key, f"gradient {hashlib.sha256(bits).hexdigest()}" if bits else "gradient", tuple(theta.shape)
        )

    def grad_parts(self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key) -> list[Tensor]:
        return list(self.layout.views(self.grad(theta, buffers, batch, key)[0]).values())

    def descent(
        self, theta: Tensor, buffers: Tensor, batch: Batch, key: rng.Key
    ) -> tuple[Tensor | list[Tensor], Tensor]:
        return self.slope(theta, buffers, batch, key)

    def loss(self, *given: Any, **more: Any) -> NoReturn:
        """Refused, as is everything else by which rows could reach what leaves."""
        raise fail("privacy", "rows are hidden in gradients alone, and this rule uses them in another way")

    grad_of = pullback = grad_x = loss


@final
class PoissonStream(ClientStream):
    """The rows of a client, each drawn with the same probability at every step, independently; a batch may be empty."""

    def __init__(self, *given: Any, secret: bytes = b"") -> None:
        super().__init__(*given)
        self.read = 0
        if secret:
            self._key = draws.secret_key(secret, "rows", self._key)

    def batches(self, index: int, phase: Phase, piece: slice | None = None) -> Iterator[Batch]:
        assert piece is None  # a visit that hides rows counts its gradients, and is made in one piece
        if phase.stays:
            yield from super().batches(index, phase)
            return
        key, planned = rng.fold(self._key, index), min(self.batch, self.size)
        for t in range(self.steps(phase) if self.size else 0):
            drawn = rng.uniform(rng.fold(rng.fold(key, _CHOSEN), t), self.size) < planned / self.size
            varied = rng.fold(rng.fold(key, VARIED), t)
            assert isinstance(varied, int)
            self.read += 1
            yield self._federation.batch(self._rows[drawn], varied) | {PLANNED: torch.tensor(float(planned))}


def counted(rule: Any, task: Task, before: int, stream: PoissonStream) -> None:
    """Refuse a rule that asked for more gradients than it says: each of them costs."""
    assert isinstance(task, RowTask)
    asked, allowed = task.asked - before, stream.read * rule.gradients
    told = f"asked for {asked} gradients of {stream.read} batches, and `gradients` says {rule.gradients} of each"
    require(asked <= allowed, type(rule).__name__, told)


@final
@dataclass(frozen=True)
class Metered(MixingRule):
    """Another mixing rule, which also logs the epsilon that the most exposed client has spent so far."""

    inner: MixingRule
    course: Course = field(repr=False)

    @property
    def needs(self) -> Any:
        return self.inner.needs

    @property
    def full(self) -> bool:
        return self.inner.full

    @property
    def instead(self) -> str:
        return self.inner.instead

    def init(self, num_clients: int) -> Tensors:
        return self.inner.init(num_clients)

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        mix, memory = self.inner.weigh(state, cohort, info)
        log = {**mix.log, "epsilon": self.course.after(info.round + 1)}
        return Mix(mix.coefficients, mix.shares, log), memory
