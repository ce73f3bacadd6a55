"""One trial of a model of the user's own on rows of zeros, so that what does not fit is told before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedchord import plugins, rng
from fedchord.check import fail, require
from fedchord.core.task import Task

if TYPE_CHECKING:
    from fedchord.data import Federation

ROWS = 2


def trial(name: str, task: Task, federation: Federation, one_logit: bool = True) -> int:
    """The width of a model's outputs, after checking that it fits the classes of the data.

    Two classes may be one logit, unless the method needs both of them (`one_logit` false).
    """
    rows = federation.example(ROWS)
    first = task.init(rng.key(0, "trial"))
    shape = tuple(rows["x"].shape)
    try:
        outputs: Any = task.outputs(first["theta"], first["buffers"], rows)
    except Exception as error:
        words = plugins.failed(name, plugins.path_of(name), error)
        raise fail(str(words), f"when it was tried on rows of shape {shape}") from None
    _tensor(name, outputs)
    y = rows["y"]
    if outputs.shape == y.shape[:1]:  # one logit a row, without a column
        outputs = outputs[:, None]
    lengths = tuple(outputs.shape[:-1])
    good = outputs.ndim == y.ndim + 1 and lengths == tuple(y.shape)
    wanted = f"({', '.join(str(side) for side in y.shape)}, {federation.classes})"
    require(good, name, f"{shape} rows must give outputs of shape {wanted}, got {tuple(outputs.shape)}")
    width, classes = outputs.shape[-1], federation.classes
    widths = (1, 2) if classes == 2 and one_logit else (classes,)
    if width not in widths:
        told = " or ".join(str(known) for known in widths)
        if federation.regression:
            raise fail(name, f"has {width} outputs, but {federation.name} has one number to predict")
        advice = f"make its last layer {told} wide (a parameter named classes receives the number of classes)"
        raise fail(name, f"has {width} outputs, but {federation.name} has {classes} classes; {advice}")
    return int(width)


def _tensor(name: str, outputs: object) -> None:
    """A model must give one tensor; objects that hold one are named."""
    if isinstance(outputs, Tensor):
        return
    kind = type(outputs).__name__
    if hasattr(outputs, "logits"):
        apply = 'Task(model, apply=lambda module, batch: module(batch["x"]).logits)'
        raise fail(name, f"gives a {kind} with .logits, not a tensor; return its .logits, or in Python write {apply}")
    raise fail(name, f"must give one tensor, got {kind}")
