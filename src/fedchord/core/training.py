"""How clients train: the settings, and the local optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord import check
from fedchord.core import clock, fused
from fedchord.core.rules import Slope
from fedchord.core.task import Task
from fedchord.tensors import Tensors

MOST_EPOCHS = 1_000_000


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
        check.whole("Training", "epochs", self.epochs, 0, MOST_EPOCHS)
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
        self._fused_sgd = clock.timed(clock.UPDATE, fused.sgd)
        self._fused_adam = clock.timed(clock.UPDATE, fused.adam)
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
        self._fused_sgd(
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
        self._fused_adam(
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
