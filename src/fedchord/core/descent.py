"""Default steps of a dense task by a kernel: the operations of the loop's steps, with fewer calls between them."""

from __future__ import annotations

from collections.abc import Callable

from fedchord.core import clock, fused
from fedchord.core.rules import Phase
from fedchord.core.stream import ClientStream, Stream
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser
from fedchord.tensors import Tensors


def descend(
    task: Task,
    phase: Phase,
    optimiser: LocalOptimiser,
    trained: Tensors,
    memory: Tensors,
    stream: Stream,
    index: int,
    watch: Callable[[int, Tensors], None] | None = None,
    piece: slice | None = None,
) -> bool:
    """Make the default steps of a phase in place, bit for bit as the loop would; false, and nothing done, where the
    kernel does not apply: it is for plain SGD on stacks of Linear and ReLU. `watch` is as in `local.train`; with
    `piece` only these of its steps are made."""
    if task.dense is None or not optimiser.eager_sgd or phase.moves != ("theta",):
        return False
    if not isinstance(stream, ClientStream):
        return False
    theta, slope = trained["theta"], task.scratch(trained["theta"])
    decay, size = optimiser.training.weight_decay, stream.batch
    values, slopes, velocities = [theta], [slope], list(memory.values())
    gradient, follow, done = clock.timed(clock.MODEL, task.dense.slopes), optimiser.descend, 0
    with fused.inference(True):
        for block in clock.over(clock.DATA, stream.blocks(index, phase, piece)):
            x, toward = block["x"].flatten(1), task.dense.toward(block["y"], size)
            for rows, pulls in zip(x.unsafe_split(size), toward.unsafe_split(size), strict=True):  # split, fewer calls
                gradient(theta, rows, pulls, slope)
                follow(values, slopes, velocities, decay)
            if watch is not None:
                done += -(-len(x) // size)
                watch(done, trained)
    return True
