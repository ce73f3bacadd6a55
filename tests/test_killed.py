"""Killed at some moment (kill -9), or out of room: work goes on, and ends with the bits of work left alone.

These are a few moments of each; `python tests/soak.py` has the others.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from helpers.killed import (
    TASKS,
    Alone,
    Task,
    ended,
    full_at,
    imported,
    kill_after,
    kill_at_operation,
    left_alone,
    prepared,
)

SHORT = ("run", "export", "preparation", "federation, one process")
if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)


@pytest.fixture(scope="module", params=SHORT)
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, Alone]:
    imported()
    task = TASKS[request.param]
    return task, left_alone(task, tmp_path_factory.mktemp("alone") / "a")


def test_killed_at_two_moments(known: tuple[Task, Alone], tmp_path: Path) -> None:
    """Once before a file operation in the middle, and once more while it goes on."""
    task, alone = known
    draw = random.Random(task.name)
    prepared(task, tmp_path / "a")
    assert kill_at_operation(task.do, tmp_path / "a", draw.randint(2, alone.operations))
    kill_after(task.again, tmp_path / "a", draw.uniform(0, alone.seconds / 2))
    assert ended(task, alone, tmp_path / "a") == ""


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_disk_that_is_full_from_some_operation_on(known: tuple[Task, Alone], tmp_path: Path, share: float) -> None:
    task, alone = known
    if "federation" in task.name:
        pytest.skip("it is no command")
    assert full_at(task, alone, tmp_path / "a", max(1, int(share * alone.taking))) == ""


def test_a_lost_file_is_seen(tmp_path: Path) -> None:
    """Negative control: what is compared notices a byte, a file too much and one too few."""
    task = TASKS["preparation"]
    alone = left_alone(task, tmp_path / "a")
    again = left_alone(task, tmp_path / "b")
    assert ended(task, again, tmp_path / "b") == ""
    (tmp_path / "b" / "left").write_text("")
    assert ended(task, alone, tmp_path / "b") == "left is left"
    (tmp_path / "b" / "left").unlink()
    clip = tmp_path / "b" / "data" / "speech_commands" / "testing_list.txt"
    clip.write_text("bed/b_nohash_0.wav\n")
    assert "differs" in ended(task, alone, tmp_path / "b")
