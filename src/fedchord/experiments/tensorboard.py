"""The numbers of a run for TensorBoard, in the folder `tensorboard` of the run. Needs the extra `tensorboard`.

Tags are the paths of rounds.jsonl (metrics/top1/mean), steps are rounds. A run that goes on writes another file, which
voids what the files before it have of the rounds that come again.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from fedchord.check import fail
from fedchord.experiments.reading import Line, flat

FOLDER = "tensorboard"


class TensorBoard:
    """Every number of every round, for TensorBoard, in OUT/tensorboard."""

    def __init__(self) -> None:
        try:
            import_module("tensorboard")
        except ImportError:
            raise fail("log=tensorboard", "needs tensorboard: pip install 'fedchord[tensorboard]'") from None
        self._writer: Any = None

    def begin(self, facts: Line) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(Path(facts["out"]) / FOLDER), purge_step=facts["done"] + 1)

    def round(self, line: Line) -> None:
        step = line["round"]
        for tag, value in flat(line).items():
            if tag != "round":
                self._writer.add_scalar(tag, value, step)
        self._writer.flush()  # to be seen at once, and so that no forked worker has anything left to write

    def end(self, summary: Line) -> None:
        self._writer.close()
