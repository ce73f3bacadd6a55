"""The numbers of a run for TensorBoard, in the folder `tensorboard` of the run. Needs the extra `tensorboard`.

Tags are the paths of rounds.jsonl (metrics/top1/mean), steps are rounds. A run that goes on writes another file, which
voids what the files before it have of the rounds that come again.
"""

from __future__ import annotations

import time
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

        folder = Path(facts["out"]) / FOLDER
        _wait(folder)
        self._writer = SummaryWriter(str(folder), purge_step=facts["done"] + 1)

    def round(self, line: Line) -> None:
        step = line["round"]
        for tag, value in flat(line).items():
            if tag != "round":
                self._writer.add_scalar(tag, value, step)
        self._writer.flush()  # to be seen at once, and so that no forked worker has anything left to write

    def end(self, summary: Line) -> None:
        self._writer.close()


def _wait(folder: Path) -> None:
    """Wait for the next second if a file of this one is there: files are read in the order of their names, which begin
    with the second, and the new one must come last."""
    now = time.time()
    seconds = [path.name.split(".")[3] for path in folder.glob("events.out.tfevents.*")]
    if f"{int(now):010d}" in seconds:
        time.sleep(int(now) + 1 - now)
