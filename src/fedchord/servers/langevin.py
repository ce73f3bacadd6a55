"""The Langevin step of FedEvg's server: the synthetic set moves along the mixed energy gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.core.rules import RoundInfo, ServerRule, Update
from fedchord.privacy.quotient import only
from fedchord.tensors import Tensors

SCHEDULE: dict[str, Any] = {
    "beta": 10.0,
    "beta_end": 0.01,
    "delta": 0.01,
    "adapt": 0.0,
    "momentum": 0.0,
    "repel": 0.0,
    "repel_end": 0.0,
}
"""The thesis' settings."""
SHORT: dict[str, Any] = {"beta": 0.03, "beta_end": 0.003, "repel": 0.0, "repel_end": 0.0}
"""What differs for tables."""
STILL: dict[str, Any] = {"delta": 0.0, "repel": 0.0, "repel_end": 0.0}
"""What differs for witness energies, under which samples of a class keep apart by themselves."""

EPS = 1e-12
"""The least length to divide by."""


@final
@dataclass(frozen=True)
class Langevin(ServerRule):
    """A Langevin step of every sample along the mixed energy gradient (thesis, chapter 4).

        x <- clamp(x - beta_t g + delta N(0, I)),   g = sum_i w_i a_i G_i / sum_i w_i a_i.

    x has the shape (classes, samples of a class, ...). The step falls from `beta` in the first round to `beta_end` in
    the last, by half a cosine,

        beta_t = beta_end + (beta - beta_end) (1 + cos(pi t / (T - 1))) / 2,   t = 0 .. T - 1.

    `schedule="nichol"` is the curve of the thesis' published code instead: with the steps b_t = 1 - A(t + 1) / A(t), at
    most 0.999, of A(t) = cos^2(pi / 2 (t / T + 0.008) / 1.008) (Nichol and Dhariwal, 2021), brought to the same ends by
    beta_t = beta - (beta - beta_end) (b_t - b_0) / (b_{T-1} - b_0); it falls in the very last rounds.

    A sample that nobody in the cohort gives a weight (sum_i w_i a_i = 0) stays where it is. Samples stay within
    [-margin, 1 + margin] of the unit range. With `adapt` above 0 the direction of every sample is
    divided by its length, remembered over rounds, so that beta_t is a length in units of the range, whatever the scale
    of the energies; `momentum` is b, and memories start at zero (t counts from 1):

        m <- b m + (1 - b) g,   v <- adapt v + (1 - adapt) mean g^2,   g <- (m / (1 - b^t)) / sqrt(v / (1 - adapt^t)).

    With `repel` above 0, samples of a class keep apart: the direction becomes g - c_t r / rms(r), with c_t from `repel`
    to `repel_end` as beta_t, and r the repulsion of Stein's variational descent among the n samples of the class (Liu
    and Wang, 2016),

        r_j = sum_l k(x_l, x_j) (x_j - x_l),   k(a, b) = exp(-||a - b||^2 log(n + 1) / median of the ||a - b||^2).
    """

    takes: ClassVar[Mapping[str, str]] = {"num": "mix", "den": "mix"}

    beta: float = 0.1
    beta_end: float = 0.01
    delta: float = 0.01
    schedule: str = "cosine"
    margin: float = 0.0
    adapt: float = 0.9
    momentum: float = 0.5
    repel: float = 0.15
    repel_end: float = 0.05

    def __post_init__(self) -> None:
        check.one_of("Langevin", "schedule", self.schedule, ("cosine", "nichol"))
        for name in ("adapt", "momentum"):
            check.below("Langevin", name, getattr(self, name), 1)
        for name in ("beta", "beta_end", "delta", "margin", "repel", "repel_end"):
            check.at_least("Langevin", name, getattr(self, name), 0)

    def numerator(self) -> Langevin:
        """The rule that is told no weights, where whole clients are hidden: g = sum_i w_i a_i G_i."""
        return only(self, "takes", {"num": "mix"})

    @property
    def horizon(self) -> str:
        """What depends on the number of all rounds: T in what falls until the last one."""
        ends = (("beta", self.beta, self.beta_end), ("repel", self.repel, self.repel_end))
        keys = [f"method.{name}_end" for name, first, last in ends if first != last]
        return f"lowers its steps until the last round ({', '.join(keys)})" if keys else ""

    def rate(self, info: RoundInfo) -> float:
        """beta_t."""
        return self._between(self.beta, self.beta_end, info)

    def _between(self, first: float, end: float, info: RoundInfo) -> float:
        """A number that falls from its first to its last value by the schedule."""
        last = max(info.rounds - 1, 1)
        if self.schedule == "cosine":
            fallen = (1 - math.cos(math.pi * info.round / last)) / 2
        else:
            begin, here, stop = (_nichol(t, last + 1) for t in (0, info.round, last))
            fallen = (here - begin) / (stop - begin)
        return first - (first - end) * fallen

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        x, num = broadcast["x"], update.mix["num"]
        den = update.mix["den"] if "den" in self.takes else num.new_ones(num.shape[:2])
        den = den.reshape(*den.shape, *[1] * (x.ndim - den.ndim))
        held = den != 0
        direction, state = self._conditioned(num / torch.where(held, den, 1.0), held, state)
        if self.repel or self.repel_end:
            direction = direction - self._between(self.repel, self.repel_end, info) * repulsion(x)
        moved = x.add(direction, alpha=-self.rate(info))
        if self.delta:
            moved = moved.add(rng.normal(info.key, tuple(x.shape), x.device), alpha=self.delta)
        moved = torch.where(held, moved, x)
        check.require(
            bool(torch.isfinite(moved).all()),
            "Langevin",
            f"the energies diverged in round {info.round + 1}; the last good set is that of round {info.round}",
        )
        return broadcast | {"x": moved.clamp(-self.margin, 1 + self.margin)}, state

    def _conditioned(self, g: Tensor, held: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """The direction, and the memories after it, which stay as they are for samples that nobody moves; none without
        `adapt` and `momentum`."""
        if not self.adapt and not self.momentum:
            return g, state
        square = g.square().mean(tuple(range(2, g.ndim)), keepdim=True)
        none = {"m": torch.zeros_like(g), "v": torch.zeros_like(square), "count": torch.zeros_like(square)}
        old = state or none
        m = self.momentum * old["m"] + (1 - self.momentum) * g
        v = self.adapt * old["v"] + (1 - self.adapt) * square
        state = {"m": m, "v": v, "count": old["count"] + 1}
        state = {name: torch.where(held, new, old[name]) for name, new in state.items()}
        count = state["count"].clamp_min(1).double()
        direction = state["m"] / (1 - self.momentum**count).to(g.dtype)
        if self.adapt:
            direction = direction / (state["v"] / (1 - self.adapt**count).to(g.dtype)).sqrt().clamp_min(EPS)
        return direction, state


def repulsion(x: Tensor) -> Tensor:
    """r_j of every sample (classes, n, ...), divided by the root mean square over its numbers."""
    rows = x.flatten(2)
    first, second = torch.triu_indices(rows.shape[1], rows.shape[1], offset=1)
    if not len(first):
        return torch.zeros_like(x)
    apart = (rows.unsqueeze(2) - rows.unsqueeze(1)).square().sum(-1)
    middle = apart[:, first, second].median(1).values.clamp_min(EPS).reshape(-1, 1, 1)
    kernel = torch.exp(-apart * math.log(rows.shape[1] + 1) / middle)
    r = rows * kernel.sum(2, keepdim=True) - kernel @ rows
    return (r / r.square().mean(-1, keepdim=True).sqrt().clamp_min(EPS)).reshape(x.shape)


def _nichol(t: int, rounds: int) -> float:
    """b_t, the step of the noise level cos^2 between two times."""

    def level(time: int) -> float:
        return math.cos(math.pi / 2 * (time / rounds + 0.008) / 1.008) ** 2

    return min(1 - level(t + 1) / level(t), 0.999)
