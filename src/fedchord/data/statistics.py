"""How much each client holds: the four numbers of the thesis' tables of data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from fedchord.data.federation import Federation


@final
@dataclass(frozen=True)
class Statistics:
    """Clients, their rows in all, and mean and std (over clients, divided by their number) of their rows."""

    clients: int
    samples: int
    mean: float
    std: float


def client_sizes(federation: Federation) -> Tensor:
    """The rows of each client: training, validation and test together."""
    return federation.train.sizes + federation.validation.sizes + federation.test.sizes


def statistics(federation: Federation) -> Statistics:
    """The statistics of a federation; std = sqrt(mean over clients of (n_i - mean)^2), as in the thesis."""
    sizes = client_sizes(federation).double()
    mean, std = float(sizes.mean()), float(sizes.std(correction=0))
    return Statistics(federation.num_clients, int(sizes.sum()), mean, std)
