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
    with the second, and the new one must come last. After a clock was set back, older files get earlier names."""
    now = time.time()
    files = sorted(folder.glob("events.out.tfevents.[0-9]*.*"), key=lambda path: path.name, reverse=True)
    if files and _second(files[0]) > now:
        for second, path in zip(range(int(now) - 1, 0, -1), files, strict=False):
            words = path.name.split(".")
            path.rename(path.with_name(".".join([*words[:3], f"{min(second, _second(path)):010d}", *words[4:]])))
    elif any(_second(path) == int(now) for path in files):
        time.sleep(int(now) + 1 - now)


def _second(path: Path) -> int:
    return int(path.name.split(".")[3])
