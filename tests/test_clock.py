"""A clock that jumps: nothing is ordered by it, and a run that is interrupted meanwhile ends with the same bits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from helpers.source import called, calls, trees

from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts
from fedchord.experiments.session import Run

WALL = ("time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "datetime.utcnow", "time.localtime")
READ = {
    "data/formats/cache.py": "the age of a left over folder, where there are no locks",
    "experiments/summary.py": "when a run was finished, to be read",
    "experiments/tensorboard.py": "names of TensorBoard's files, which a clock set back puts before the new one",
    "remote/audit.py": "when a message came, to be read",
    "remote/certificates.py": "from when to when a certificate holds",
    "remote/checkup.py": "whether a certificate holds",
}
SMALL = ["data=digits", "model=logreg", "clients=4", "cohort=2", "executor=serial", "method=ditto"]
SMALL += ["rounds=4", "checkpoint_every=1"]


def test_who_looks_at_the_clock_on_the_wall() -> None:
    found = {name for name, tree in trees().items() if any(called(node) in WALL for node in calls(tree))}
    assert found == set(READ)


class Jumping:
    """A clock that jumps by a day at every second look, back and forth."""

    def __init__(self) -> None:
        self._time, self.looks = time.time, 0

    def __call__(self) -> float:
        self.looks += 1
        return self._time() + (0, 86400, -86400)[self.looks % 3]


def test_a_run_goes_on_though_the_clock_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = runs.execute(RunConfig.from_pairs([*SMALL, f"out={tmp_path / 'a'}"]))
    monkeypatch.setattr(time, "time", Jumping())
    run = Run(Parts.build(RunConfig.from_pairs([*SMALL, f"out={tmp_path / 'b'}"])))
    for done in run:
        if done.round == 2:
            break
    folders = sorted((tmp_path / "b" / "checkpoints").glob("round-*"))
    for age, folder in enumerate(folders):  # the newest looks oldest
        for path in (folder, *folder.iterdir()):
            os.utime(path, (1e9 - 1e6 * age, 1e9 - 1e6 * age))
    again = runs.resume(tmp_path / "b")
    assert again["metrics"] == alone["metrics"] and again["per_client"] == alone["per_client"]
    states = []
    for name in ("a", "b"):
        found = checkpoint.load(tmp_path / name / "checkpoints", ClientMemory())
        assert found is not None
        states.append(found.state)
    assert states[0].round == states[1].round == 4
    assert all(torch.equal(t, states[1].broadcast[name]) for name, t in states[0].broadcast.items())
    assert all(value >= 0 for value in again["seconds"].values() if isinstance(value, float))
