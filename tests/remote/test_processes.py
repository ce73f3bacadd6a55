"""Processes of ours: their lines, their end, and that none outlives its parent. No Flower is needed."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

from fedchord.remote.joining import write_secret
from fedchord.remote.live import Live, size_words
from fedchord.remote.processes import Child, end_all, wait_until

TALKS = """
import time
from fedchord.remote.processes import live_with_parent, tell
live_with_parent()
print("only for the log", flush=True)
tell("for\\n people")
time.sleep(60)
"""
PARENT = """
import sys, time
from pathlib import Path
from fedchord.remote.processes import Child
print(Child("talks", [], Path(sys.argv[1])).pid, flush=True)
time.sleep(60)
"""


def module(folder, monkeypatch):
    (folder / "talks.py").write_text(TALKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def alive(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_speaks_to_people_and_ends_when_told(tmp_path, monkeypatch):
    module(tmp_path, monkeypatch)
    child = Child("talks", [], tmp_path / "log")
    said: list[str] = []
    assert wait_until(lambda: said.extend(child.lines()) or said, 60)
    assert said == ["for people"] and child.lines() == [] and "only for the log" in child.printed()
    end_all([child, None])
    assert child.code == -signal.SIGTERM and not alive(child.pid)


def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path, monkeypatch):
    module(tmp_path, monkeypatch)
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert wait_until(lambda: "for people" in (tmp_path / "log").read_text(), 60) and alive(pid)
        parent.kill()
    assert wait_until(lambda: not alive(pid), 20)


def test_a_secret_is_for_its_owner_alone(tmp_path):
    write_secret(tmp_path / "secret")
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert len((tmp_path / "secret").read_bytes()) == 32


LINE = {
    "round": 2,
    "cohort": [0, 2],
    "shares": [0.25, 0.75],
    "losses": [0.5, 1.25],
    "seconds": 3.21,
    "bytes_up": 1500,
    "bytes_down": 3_000_000,
    "missing": {"1": "late"},
}


def test_a_round_in_a_line_where_there_is_no_terminal():
    stream = io.StringIO()
    live = Live(["north", "south", "west"], stream)
    live.begin("fedavg", 10)
    live.round(LINE)
    assert stream.getvalue().splitlines()[1] == (
        "round 2 of 10: 2 took part, worst west (loss 1.2500), south missing (late), 3.2 s, 1.5 kB up, 3.0 MB down"
    )


def test_the_table_says_who_is_there_and_who_is_worst():
    from rich.console import Console

    live = Live(["north", "south", "west"], io.StringIO())
    live.here = lambda: {0, 2}
    live.begin("fedavg", 10)
    live.round(LINE)
    console = Console(file=io.StringIO(), width=100)
    console.print(live.table())
    rows = [line for line in console.file.getvalue().splitlines() if "th " in line or "west" in line]  # type: ignore[attr-defined]
    assert "here" in rows[0] and "0.250" in rows[0] and "took part" in rows[0]
    assert "away" in rows[1] and "late" in rows[1]
    assert "1.2500 (worst)" in rows[2]


def test_bytes_in_words():
    assert [size_words(n) for n in (0, 999, 1000, 2_390_520)] == ["0 B", "999 B", "1.0 kB", "2.4 MB"]
