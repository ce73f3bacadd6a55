"""TensorBoard's own reader finds in the run's folder what rounds.jsonl says: tags, steps, values; each round once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedchord.check import FedchordError
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.tensorboard import TensorBoard

SMALL = ["clients=4", "cohort=2", "rounds=6", "model=logreg", "eval_every=2", "checkpoint_every=2", "log=tensorboard"]


@pytest.fixture
def reader():
    """What TensorBoard reads from a folder: (tag, step) to value."""
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder: Path) -> dict[tuple[str, int], float]:
        found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
        points = [(tag, point) for tag in found.Tags()["scalars"] for point in found.Scalars(tag)]
        assert len(points) == len({(tag, point.step) for tag, point in points})  # nothing twice
        return {(tag, point.step): point.value for tag, point in points}

    return read


def expected(out: Path) -> dict[tuple[str, int], float]:
    """The numbers of rounds.jsonl, taken apart level by level; TensorBoard keeps 32 bits."""
    found: dict[tuple[str, int], float] = {}
    for line in map(json.loads, (out / "rounds.jsonl").read_text().splitlines()):
        values = {key: line[key] for key in ("seconds", "elapsed", "bytes_up", "bytes_down")}
        values |= {f"log/{name}": value for name, value in line["log"].items()}
        for metric, columns in line.get("metrics", {}).items():
            values |= {f"metrics/{metric}/{column}": value for column, value in columns.items()}
        found |= {(tag, line["round"]): float(np.float32(value)) for tag, value in values.items() if value is not None}
    return found


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_it_holds_the_numbers_of_the_rounds(executor, reader, tmp_path):
    out = tmp_path / "a"
    runs.execute(RunConfig.from_pairs([*SMALL, f"executor={executor}", "method=superfed-mm", f"out={out}"]))
    found = reader(out / "tensorboard")
    assert found == expected(out)
    assert {step for tag, step in found if tag == "metrics/top1/mean"} == {2, 4, 6}
    assert {step for tag, step in found if tag == "bytes_up"} == set(range(1, 7))
    assert len(list((out / "tensorboard").iterdir())) == 1


KILLED = """
import os, sys
from fedchord.experiments import loggers, run
from fedchord.experiments.config import RunConfig

class Killer:
    def begin(self, facts): ...
    def end(self, summary): ...
    def round(self, line):
        if line["round"] == 5: os._exit(9)

class Both(loggers.TensorBoard):
    def round(self, line):
        marked = {"elapsed": 1e6} if line["round"] == 5 else {}
        super().round(line | marked); Killer().round(line)

loggers.LOGGERS["tensorboard"] = Both
run.execute(RunConfig.from_pairs(sys.argv[1:]))
"""


def test_a_run_that_was_killed_and_goes_on_has_every_round_once(reader, tmp_path):
    """Killed after round 5 was written, gone on with from the checkpoint of round 4."""
    out = tmp_path / "a"
    pairs = [*SMALL, "executor=serial", f"out={out}"]
    assert subprocess.run([sys.executable, "-c", KILLED, *pairs], timeout=300).returncode == 9
    before = reader(out / "tensorboard")
    assert max(step for _, step in before) == 5 and before[("elapsed", 5)] == 1e6
    runs.resume(out)
    found = reader(out / "tensorboard")
    assert found == expected(out) and len(list((out / "tensorboard").iterdir())) == 2
    assert all(found[place] == value for place, value in before.items() if place[1] <= 4)
    assert found[("elapsed", 5)] < 1e6  # round 5 is the one that was done again


@pytest.mark.parametrize("ahead", [0, 86400])
def test_an_earlier_file_is_read_before_the_new_one(reader, tmp_path, ahead):
    """Files are read by name: the second, the host, the process; a run may go on within a second, in any process, and
    after the clock was set back by a day."""
    folder = tmp_path / "tensorboard"
    for value in (1.0, 2.0):
        log = TensorBoard()
        log.begin({"out": str(tmp_path), "done": 0})
        log.round({"round": 1, "log": {"x": value}})
        log.end({})
        if value == 1.0:
            (written,) = folder.iterdir()
            written.rename(folder / f"events.out.tfevents.{int(time.time()) + ahead:010d}.~host.99999999.0")
    assert reader(folder) == {("log/x", 1): 2.0}


def test_without_the_package_it_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    with pytest.raises(FedchordError) as caught:
        runs.execute(RunConfig.from_pairs([*SMALL, "executor=serial", f"out={tmp_path / 'a'}"]))
    assert str(caught.value) == "log=tensorboard: needs tensorboard: pip install 'fedchord[tensorboard]'"
    assert list(tmp_path.iterdir()) == []
