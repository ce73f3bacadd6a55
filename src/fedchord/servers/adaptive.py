"""Adaptive server optimisers: FedAvgM, FedAdam, FedYogi, FedAdagrad. Their state persists over rounds.

The mixed update D = sum_i p_i (theta_i - theta) plays the part of a (negative) gradient. Reddi et al. (2021),
algorithm 2:

    m <- b1 m + (1 - b1) D,   theta <- theta + lr m / (sqrt(v) + tau),   m_0 = 0,   v_0 = tau^2,

with v by Adam, Yogi or Adagrad. The paper corrects no bias. FedAdam can be told to: `bias_correction="adam"`
multiplies the step of round t = 1, 2, ... by sqrt(1 - b2^t) / (1 - b1^t) (Kingma and Ba, 2015), and "flower" does the
same with t + 1, which is what Flower's strategy does; with `v0=0` its numbers are met.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fedchord import check
from fedchord.core.rules import RoundInfo, ServerRule, Update
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Momentum(ServerRule):
    """FedAvgM, server momentum on the mixed update D (Hsu et al., 2019).

        v <- beta v + D,   theta <- theta + lr v,   v_0 = 0.

    There is no factor 1 - beta; beta = 0 is the plain step.
    """

    lr: float = 1.0
    beta: float = 0.9

    def __post_init__(self) -> None:
        check.positive("Momentum", "lr", self.lr)
        check.below("Momentum", "beta", self.beta, 1)

    def init(self, moving: Tensors) -> Tensors:
        return {f"v.{name}": torch.zeros_like(tensor) for name, tensor in moving.items()}

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        state = {f"v.{n}": self.beta * state[f"v.{n}"] + change for n, change in update.mix.items()}
        return broadcast | {n: broadcast[n].add(state[f"v.{n}"], alpha=self.lr) for n in update.mix}, state


@final
@dataclass(frozen=True)
class Adam(ServerRule):
    """FedAdam, Adam on the mixed update D (Reddi et al., 2021).

        m <- b1 m + (1 - b1) D,   v <- b2 v + (1 - b2) D^2,
        theta <- theta + lr m / (sqrt(v) + tau),   m_0 = 0,   v_0 = tau^2.

    Departs from common code: one update in the first round, and the state is kept.
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    tau: float = 1e-4
    v0: float | None = None
    bias_correction: str = "none"

    def __post_init__(self) -> None:
        check.one_of("Adam", "bias_correction", self.bias_correction, ("none", "adam", "flower"))
        _check("Adam", self.lr, self.beta1, self.tau, self.v0, self.beta2)

    def init(self, moving: Tensors) -> Tensors:
        return _memory(moving, self.tau, self.v0)

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        def second(v: Tensor, d2: Tensor) -> Tensor:
            return self.beta2 * v + (1 - self.beta2) * d2

        state = _remember(update, state, self.beta1, second)
        return _move(broadcast, update, state, self.lr * self._correction(info.round + 1), self.tau), state

    def _correction(self, t: int) -> float:
        if self.bias_correction == "none":
            return 1.0
        t += self.bias_correction == "flower"
        return math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)


@final
@dataclass(frozen=True)
class Yogi(ServerRule):
    """FedYogi, Yogi on the mixed update D (Reddi et al., 2021).

        m <- b1 m + (1 - b1) D,   v <- v - (1 - b2) D^2 sign(v - D^2),
        theta <- theta + lr m / (sqrt(v) + tau),   m_0 = 0,   v_0 = tau^2.

    The second moment falls by at most (1 - b2) D^2 in a round, whatever its size.
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    tau: float = 1e-4
    v0: float | None = None

    def __post_init__(self) -> None:
        _check("Yogi", self.lr, self.beta1, self.tau, self.v0, self.beta2)

    def init(self, moving: Tensors) -> Tensors:
        return _memory(moving, self.tau, self.v0)

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        def second(v: Tensor, d2: Tensor) -> Tensor:
            return v - (1 - self.beta2) * d2 * torch.sign(v - d2)

        state = _remember(update, state, self.beta1, second)
        return _move(broadcast, update, state, self.lr, self.tau), state


@final
@dataclass(frozen=True)
class Adagrad(ServerRule):
    """FedAdagrad, Adagrad on the mixed update D (Reddi et al., 2021).

        m <- b1 m + (1 - b1) D,   v <- v + D^2,
        theta <- theta + lr m / (sqrt(v) + tau),   m_0 = 0,   v_0 = tau^2.

    The paper runs it with b1 = 0, the default here.
    """

    lr: float = 0.01
    beta1: float = 0.0
    tau: float = 1e-4
    v0: float | None = None

    def __post_init__(self) -> None:
        _check("Adagrad", self.lr, self.beta1, self.tau, self.v0)

    def init(self, moving: Tensors) -> Tensors:
        return _memory(moving, self.tau, self.v0)

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        state = _remember(update, state, self.beta1, torch.add)
        return _move(broadcast, update, state, self.lr, self.tau), state


def _check(owner: str, lr: float, beta1: float, tau: float, v0: float | None, beta2: float = 0.0) -> None:
    check.positive(owner, "lr", lr)
    check.below(owner, "beta1", beta1, 1)
    check.below(owner, "beta2", beta2, 1)
    check.positive(owner, "tau", tau)
    if v0 is not None:
        check.at_least(owner, "v0", v0, 0)


def _memory(moving: Tensors, tau: float, v0: float | None) -> Tensors:
    start = tau**2 if v0 is None else v0
    first = {f"m.{name}": torch.zeros_like(tensor) for name, tensor in moving.items()}
    return first | {f"v.{name}": torch.full_like(tensor, start) for name, tensor in moving.items()}


def _remember(update: Update, state: Tensors, beta1: float, second: Callable[[Tensor, Tensor], Tensor]) -> Tensors:
    """m and v after one update; `second(v, D^2)` is the rule's own form of v."""
    new: Tensors = {}
    for name, change in update.mix.items():
        new[f"m.{name}"] = beta1 * state[f"m.{name}"] + (1 - beta1) * change
        new[f"v.{name}"] = second(state[f"v.{name}"], change * change)
    return new


def _move(broadcast: Tensors, update: Update, state: Tensors, lr: float, tau: float) -> Tensors:
    steps = {name: state[f"m.{name}"] / (torch.sqrt(state[f"v.{name}"]) + tau) for name in update.mix}
    return broadcast | {name: broadcast[name].add(step, alpha=lr) for name, step in steps.items()}
