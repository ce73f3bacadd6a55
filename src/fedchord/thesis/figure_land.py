"""The loss around the global models of several methods, over one range and with two numbers for flatness.

The plane of a method goes through its global model g and two of its clients' own models. Its directions are therefore
not the same for all methods: FedAvg's are its own last updates, SuPerFed's lead to models far away. So a second number
stands beside the flatness on the plane: the rise along random directions, the same ones for every method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import require
from fedchord.core.objective import Batch, mean_loss
from fedchord.core.task import Task
from fedchord.evaluation.landscape import Plane, surface
from fedchord.experiments.parts import Parts
from fedchord.experiments.reading import Run
from fedchord.report.plots import Floats, rounds_of
from fedchord.thesis.figure_data import Loaded

POINTS = 25
"""Points along each side of a loss surface."""
DISC = 11
"""Points along each side of the small grid on which flatness is measured."""
ROWS = 2000
"""At most how many test rows the loss is measured on."""
DRAWS = 20
"""Random directions."""
STEP = 0.5
"""The length of a step along a random direction, in lengths of the global model."""


@dataclass(frozen=True)
class Land:
    """The loss on the plane through a global model (at the origin) and two clients' own models (the marks)."""

    label: str
    x: Floats
    y: Floats
    loss: Floats
    """By y, then x."""
    marks: tuple[tuple[float, float], ...]
    clients: tuple[int, int]
    norm: float
    """The length |g| of the global model's parameter vector."""
    radius: float
    flatness: float
    """The mean rise of the loss on the plane within `radius` of g; lower is flatter."""
    random_rise: float
    """The mean rise of the loss after a step of |g| / 2 in random directions; lower is flatter."""


def lands(runs: Mapping[str, Run], points: int = POINTS, rows: int = ROWS) -> list[Land]:
    """Surfaces of several methods over one range, with flatness within one radius.

    The two clients are the first two of the last cohort. The range holds every model with a margin of a fifth; the
    radius is the shortest distance from a global model to a client's model drawn here.
    """
    read = {label: Loaded.of(run.folder) for label, run in runs.items()}
    chosen = {label: _two_clients(run) for label, run in runs.items()}
    planes, marks = {}, {}
    for label, here in read.items():
        first, second = (here.private(client) for client in chosen[label])
        plane = planes[label] = Plane.through(here.state.broadcast["theta"], first, second)
        marks[label] = (plane.place(first), plane.place(second))
    reach = np.array([(0.0, 0.0), *(mark for pair in marks.values() for mark in pair)])
    x, y = (_axis(reach[:, side], points) for side in (0, 1))
    radius = min(math.hypot(*mark) for pair in marks.values() for mark in pair)
    near = np.linspace(-radius, radius, DISC).tolist()
    found = []
    for label, here in read.items():
        task, batch, shared = here.parts.task, _sample(here.parts, rows), here.state.broadcast
        wide = surface(task, planes[label], shared["buffers"], batch, x.tolist(), y.tolist())
        disc = surface(task, planes[label], shared["buffers"], batch, near, near)
        flat = disc.flatness(radius * (1 + 1e-9))
        norm = float(shared["theta"].double().norm())
        rise = random_rise(task, shared["theta"], shared["buffers"], batch, STEP * norm)
        loss = wide.loss.double().numpy()
        found.append(Land(label, x, y, loss, marks[label], chosen[label], norm, radius, flat, rise))
    return found


def random_rise(task: Task, theta: Tensor, buffers: Tensor, batch: Batch, length: float, draws: int = DRAWS) -> float:
    """(1/n) sum_i loss(theta + length u_i) - loss(theta), u_i random unit vectors that depend on the size alone."""
    losses = []
    for draw in range(draws):
        away = rng.normal(rng.key(0, "landscape", draw), (len(theta),), theta.device)
        losses.append(_loss(task, theta + length * away / away.norm(), buffers, batch))
    return sum(losses) / draws - _loss(task, theta, buffers, batch)


def _loss(task: Task, theta: Tensor, buffers: Tensor, batch: Batch) -> float:
    return float(mean_loss(task.objective, task.outputs(theta, buffers, batch), batch))


def _two_clients(run: Run) -> tuple[int, int]:
    cohort = rounds_of(run)[-1]["cohort"]
    require(len(cohort) >= 2, "figure landscape", f"needs a cohort of at least 2, got {len(cohort)}")
    return int(cohort[0]), int(cohort[1])


def _axis(reach: Floats, points: int) -> Floats:
    low, high = float(reach.min()), float(reach.max())
    margin = 0.2 * (high - low)
    return np.linspace(low - margin, high + margin, points)


def _sample(parts: Parts, rows: int) -> Batch:
    """Test rows, at most so many, evenly over all clients."""
    test = parts.federation.test
    every = torch.cat([test[client] for client in range(parts.federation.num_clients)])
    return parts.federation.batch(every[:: math.ceil(len(every) / rows)])
