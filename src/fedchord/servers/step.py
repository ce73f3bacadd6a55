"""The plain server step, and SCAFFOLD's, which also moves the control variate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from fedchord import check
from fedchord.core.rules import RoundInfo, ServerRule, Update
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Step(ServerRule):
    """A step along the mixed update; lr = 1 is the weighted mean of the clients' models (McMahan et al., 2017, FedAvg).

        theta <- theta + lr sum_i p_i (theta_i - theta)

    theta_i is what client i of the cohort ends with.
    """

    lr: float = 1.0

    def __post_init__(self) -> None:
        check.positive("Step", "lr", self.lr)

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        return broadcast | moved(broadcast, update, self.lr), state


@final
@dataclass(frozen=True)
class ScaffoldStep(ServerRule):
    """SCAFFOLD's step of the model x and of the control variate c (Karimireddy et al., 2020).

        x <- x + lr sum_i p_i (y_i - x),   c <- c + (|S| / K) mean over the cohort of (c_i' - c_i).

    y_i is what client i ends with; S is the cohort, of K clients.
    """

    takes: ClassVar[Mapping[str, str]] = {"theta": "mix", "control": "mean"}

    lr: float = 1.0

    def __post_init__(self) -> None:
        check.positive("ScaffoldStep", "lr", self.lr)

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        control = broadcast["control"].add(update.mean["control"], alpha=info.cohort / info.num_clients)
        return broadcast | moved(broadcast, update, self.lr) | {"control": control}, state


@final
@dataclass(frozen=True)
class Blend(ServerRule):
    """pFedMe's averaging (Dinh et al., 2020); beta = 1 is the mean.

        theta <- (1 - beta) theta + beta sum_i p_i theta_i

    theta_i is what client i of the cohort ends with.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        check.positive("Blend", "beta", self.beta)

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        return broadcast | moved(broadcast, update, self.beta), state


def moved(broadcast: Tensors, update: Update, lr: float) -> Tensors:
    """The mixed entries after a step of length lr along the mixed update."""
    return {name: broadcast[name].add(change, alpha=lr) for name, change in update.mix.items()}
