"""A synthetic set that is itself broadcast and moved by the server: how it begins, its labels, and how it ends.

The broadcast x has the shape (classes, samples of a class, ...), in unit coordinates: the data's range is [0, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.core.inputs import Inputs
from fedchord.core.objective import Batch
from fedchord.core.task import Task
from fedchord.tensors import Tensors


def opening(owner: str, task: Task, spc: int, key: int) -> Tensors:
    """The first broadcast: noise, `spc` samples of every class."""
    inputs = described(task, owner)
    return {"x": noise(key, (inputs.classes, spc), inputs, task.device)}


def labels(task: Task, spc: int) -> Tensor:
    """The class of every sample, class by class."""
    return torch.arange(described(task).classes, device=task.device).repeat_interleave(spc)


def settled(task: Task, x: Tensor) -> Batch:
    """The labelled set of a broadcast: in the range of the data, every category one of its codes."""
    inputs = described(task)
    return {"x": inputs.clip(inputs.from_unit(inputs.settle(x.flatten(0, 1)))), "y": labels(task, x.shape[1])}


def noise(key: int, counts: tuple[int, ...], inputs: Inputs, device: torch.device) -> Tensor:
    """Examples of N(0, I), clamped to the unit range."""
    return rng.normal(key, (*counts, *inputs.shape), device).clamp(0, 1)


def described(task: Task, owner: str = "Task") -> Inputs:
    """What the task's examples look like."""
    told = "the task must tell what an example is: Task(..., inputs=federation.inputs)"
    check.require(task.inputs is not None, owner, told)
    assert task.inputs is not None
    return task.inputs
