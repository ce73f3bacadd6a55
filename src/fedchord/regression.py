"""Metrics of predicted numbers, for many clients at once, in the units of what is predicted.

A prediction that is NaN (a model that has diverged) is infinitely wrong. A client without samples is undefined (NaN).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord.tensors import owners


@dataclass(frozen=True)
class Numbers:
    """Predictions and true values of K clients, one after another; client k has rows offsets[k] to offsets[k+1] - 1."""

    predicted: Tensor
    true: Tensor
    offsets: Tensor

    @property
    def sizes(self) -> Tensor:
        """How many samples each client has."""
        return self.offsets.diff()

    @property
    def wrong(self) -> Tensor:
        """By how much each prediction is wrong."""
        difference = (self.predicted.double() - self.true.double()).abs()
        return difference.masked_fill(difference.isnan(), torch.inf)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over each client's samples."""
        return self.sum(values) / self.sizes

    def sum(self, values: Tensor) -> Tensor:
        """The sum over each client's samples."""
        return torch.bincount(owners(self.sizes), values, minlength=len(self.sizes)).double()


def mse(numbers: Numbers) -> Tensor:
    """The mean squared error, (1/n) sum_i (f_i - y_i)^2."""
    return numbers.mean(numbers.wrong.square())


def mae(numbers: Numbers) -> Tensor:
    """The mean absolute error, (1/n) sum_i |f_i - y_i|."""
    return numbers.mean(numbers.wrong)


def r2(numbers: Numbers) -> Tensor:
    """How much of the spread is explained, 1 - sum_i (f_i - y_i)^2 / sum_i (y_i - mean y)^2.

    The mean is that of the client's own true values, and 0 is what it would reach. Undefined where they do not vary.
    """
    true = numbers.true.double()
    spread = numbers.sum((true - numbers.mean(true)[owners(numbers.sizes)]).square())
    explained = 1 - numbers.sum(numbers.wrong.square()) / spread
    return explained.masked_fill(spread == 0, torch.nan)


FORMULAS: dict[str, Callable[[Numbers], Tensor]] = {"mse": mse, "mae": mae, "r2": r2}
