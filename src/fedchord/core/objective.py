"""How outputs are scored: the loss of each example, what metrics are told, and the mean over a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedchord.tensors import Tensors

Batch = Tensors


@dataclass(frozen=True)
class Objective:
    """How outputs are scored.

    `losses(outputs, batch)` gives, per example, the summed loss and the number of units it sums over (None: one
    each), so that a loss per token is the ratio of two sums. `predictions(outputs, batch)` gives (scores, labels) for
    the metrics; `units(batch)` tells how many of them each example gives (None: one). `rows` is how many examples are
    scored at a time where outputs are large (None: as many as there are).
    """

    name: str
    losses: Callable[[Tensor, Batch], tuple[Tensor, Tensor | None]]
    predictions: Callable[[Tensor, Batch], tuple[Tensor, Tensor]]
    metrics: tuple[str, ...]
    units: Callable[[Batch], Tensor] | None = None
    rows: int | None = None


def _cross_entropy(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
    return F.cross_entropy(outputs, batch["y"], reduction="none"), None


def _binary_cross_entropy(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
    y = batch["y"].to(outputs.dtype)
    return F.binary_cross_entropy_with_logits(outputs.reshape(len(y)), y, reduction="none"), None


def _token_cross_entropy(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
    y, counted = batch["y"], batch["mask"].to(outputs.dtype)
    losses = F.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none").reshape(y.shape)
    return (losses * counted).sum(1), counted.sum(1)


def _tokens(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    return outputs[batch["mask"]], batch["y"][batch["mask"]]


def _token_count(batch: Batch) -> Tensor:
    return batch["mask"].sum(1)


def _labelled(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    return outputs.reshape(len(batch["y"]), -1), batch["y"]


CLASSIFICATION = Objective("cross-entropy", _cross_entropy, _labelled, ("top1", "top5", "loss", "ece", "mce"))
BINARY = Objective("binary cross-entropy", _binary_cross_entropy, _labelled, ("top1", "loss", "auroc", "ece", "mce"))
TOKENS = Objective(
    "cross-entropy per token", _token_cross_entropy, _tokens, ("top1", "top5", "loss"), _token_count, rows=128
)
"""Outputs (n, length, classes) against y (n, length), where `mask` is true; the mean is over tokens, not over rows."""


PLAIN = (_cross_entropy, _binary_cross_entropy, _token_cross_entropy)
"""Losses that the metric `loss` finds from scores and labels alone."""


def squared(mean: float = 0.0, std: float = 1.0) -> Objective:
    """Regression by squared error: (f(x) - z)^2 with z = (y - mean) / std. Metrics are in the units of y."""
    return _regression("squared error", torch.square, mean, std)


def absolute(mean: float = 0.0, std: float = 1.0) -> Objective:
    """Regression by absolute error: |f(x) - z| with z = (y - mean) / std. Metrics are in the units of y."""
    return _regression("absolute error", torch.abs, mean, std)


def _regression(name: str, cost: Callable[[Tensor], Tensor], mean: float, std: float) -> Objective:
    def losses(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        y = batch["y"]
        return cost(outputs.reshape(len(y)) - (y - mean) / std), None

    def predictions(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        return outputs.reshape(len(batch["y"]), 1) * std + mean, batch["y"]

    return Objective(name, losses, predictions, ("r2", "mae", "mse", "loss"))


def weighted(objective: Objective) -> Objective:
    """The same objective with rows that weigh what their column `weight` says: sum_i w_i l_i / sum_i w_i."""

    def losses(outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        total, units = objective.losses(outputs, batch)
        weight = batch["weight"]
        return weight * total, weight if units is None else weight * units

    return replace(objective, name=f"weighted {objective.name}", losses=losses)


def mean_loss(objective: Objective, outputs: Tensor, batch: Batch) -> Tensor:
    """The mean loss of a batch per unit; rows whose `live` mark is 0 (padding) do not count."""
    return live_mean(*objective.losses(outputs, batch), batch)


def live_mean(total: Tensor, units: Tensor | None, batch: Batch) -> Tensor:
    """The mean of per-example values over the examples of a batch that are not padding, per unit where units are
    given; 0 where nothing counts."""
    live = batch.get("live")
    if live is None and units is None:
        return total.mean()
    counted = units if live is None else live if units is None else live * units
    assert counted is not None
    count = counted.sum()
    value = total.sum() if live is None else (total * live).sum()
    return value / torch.where(count > 0, count, 1.0)
