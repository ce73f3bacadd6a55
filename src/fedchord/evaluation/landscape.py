"""The loss around a model: a plane through three models, and the loss at the points of a grid on it.

After Garipov et al. (2018): from w1, w2, w3 take u = w2 - w1 and v = (w3 - w1) - <w3 - w1, u> u / |u|^2; the surface is
loss(w1 + x u / |u| + y v / |v|), x and y being distances in parameter space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord.check import require
from fedchord.core.objective import Batch, mean_loss
from fedchord.core.task import Task


@dataclass(frozen=True)
class Plane:
    """An origin and two orthonormal directions."""

    origin: Tensor
    right: Tensor
    up: Tensor

    @staticmethod
    def through(first: Tensor, second: Tensor, third: Tensor) -> Plane:
        """The plane through three models, with the first as origin and the second to its right."""
        right = (second - first).double()
        up = (third - first).double()
        require(float(right.norm()) > 0, "landscape", "the first two models are the same")
        right = right / right.norm()
        up = up - (up @ right) * right
        require(float(up.norm()) > 1e-9 * float((third - first).norm()), "landscape", "the three models lie on a line")
        return Plane(first, right.to(first.dtype), (up / up.norm()).to(first.dtype))

    def at(self, x: float, y: float) -> Tensor:
        """The model at a point of the plane."""
        return self.origin + x * self.right + y * self.up

    def place(self, theta: Tensor) -> tuple[float, float]:
        """Where a model lies on the plane (its projection)."""
        away = theta - self.origin
        return float(away @ self.right), float(away @ self.up)


@dataclass(frozen=True)
class Surface:
    """The loss at the points (x, y) of a grid; rows are y, columns are x."""

    x: Tensor
    y: Tensor
    loss: Tensor

    def flatness(self, radius: float) -> float:
        """How much the loss rises nearby: its mean over the grid within a radius of the origin, less its value there.

        Lower is flatter. The radius is a distance in parameter space, so equal radii compare equal moves.
        """
        distance = torch.sqrt(self.x.unsqueeze(0) ** 2 + self.y.unsqueeze(1) ** 2)
        centre = self.loss.flatten()[distance.argmin()]
        return float((self.loss[distance <= radius].mean() - centre).double())


def surface(task: Task, plane: Plane, buffers: Tensor, batch: Batch, x: Sequence[float], y: Sequence[float]) -> Surface:
    """The mean loss of a batch over a grid of the plane."""
    rows = []
    for up in y:
        outputs = [task.outputs(plane.at(right, up), buffers, batch) for right in x]
        rows.append(torch.stack([mean_loss(task.objective, output, batch) for output in outputs]))
    return Surface(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64), torch.stack(rows))
