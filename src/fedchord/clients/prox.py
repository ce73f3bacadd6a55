"""FedProx: local training that is held near the received model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedchord import check, rng
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Visit
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Prox(ClientRule):
    """Local SGD on F_i(theta) + (mu / 2) ||theta - theta_g||^2 (Li et al., 2020, FedProx).

        theta <- theta - lr (grad F_i(theta) + mu (theta - theta_g)),   theta_g the received model.

    The norm is squared and taken over all trainable parameters; mu = 0 is FedAvg.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        check.at_least("Prox", "mu", self.mu, 0)

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        return pulled(visit.slope(trained, batch, key), trained, visit, self.mu)


def pulled(slope: Tensors, trained: Tensors, visit: Visit, mu: float) -> Tensors:
    """A slope with mu (theta - theta_g), the gradient of the proximal term, added."""
    return slope | {"theta": slope["theta"].add(trained["theta"] - visit.shared["theta"], alpha=mu)}
