"""Work that is killed (kill -9) at some moment, gone on with, and compared with the same work left alone.

A task is done in a forked child of this process, which has imported all of it before. Moments are drawn: a share of the
time that the task takes alone, or the n-th time that it opens a file for writing, flushes, renames, makes or removes.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import pkgutil
import random
import re
import shutil
import signal
import sys
import time
import traceback
import warnings
import wave
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedchord
from fedchord.remote.asking import Service
from fedchord.remote.serve import serve
from helpers.remote import direct, plan_of

OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate")
FREEING = ("os.remove", "os.rmdir")
"""Operations that a full disk does not refuse."""
VOLATILE = ("seconds", "elapsed", "finished", "time", "git")
"""What is not the same twice: times, and what the clone looks like."""
ASIDE = (".lock",)
"""The file of a lock that went with its process."""
_AUDIT = re.compile(r"client-\d+\.jsonl")
"""What a node writes down of every message; one that is asked again is written down again."""
DATA = ["data=digits", "model=logreg", "clients=4", "cohort=2", "executor=serial"]
STUDY = """title = "Toy"
seeds = [1, 2]
[settings]
data = "digits"
model = "logreg"
split = "iid"
clients = 4
cohort = 2
rounds = 2
checkpoint_every = 1
executor = "serial"
[[method]]
label = "FedAvg"
method = "fedavg"
[[method]]
label = "Ditto"
method = "ditto"
[[setting]]
label = "few"
"""


@dataclass(frozen=True)
class Task:
    """What is done in a folder, and how it is gone on with; `prepare` is done before and never killed."""

    name: str
    do: Callable[[], int]
    again: Callable[[], int]
    prepare: Callable[[], Any] = lambda: None


def command(*words: str) -> int:
    """The exit code of a command in this process."""
    from fedchord.cli import main

    try:
        main(list(words))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _resume(folder: str, words: list[str]) -> Callable[[], int]:
    """Go on with a run; begin anew where nothing of it was there."""
    return lambda: command("resume", folder) if Path(folder, "config.toml").is_file() else command(*words)


def _task(name: str, words: list[str], again: Callable[[], int] | None = None, prepare: Any = lambda: None) -> Task:
    return Task(name, lambda: command(*words), again or (lambda: command(*words)), prepare)


def _served() -> int:
    """A federation whose server and nodes are in this process, with all that both keep on disk."""
    plan = plan_of("scaffold", rounds=4, seed=5)
    resume = Path("out/config.toml").is_file()
    serve(plan, direct(plan, Path("nodes")), "out", service=Service(5.0, 0.0), resume=resume).finish()
    return 0


def _finished() -> None:
    assert command("run", *DATA, "method=fedavg", "rounds=2", "checkpoint_every=1", "out=r") == 0


def _clips() -> None:
    """A few clips as Speech Commands has them; preparing them makes a cache."""
    home = Path("data/speech_commands")
    for number, name in enumerate(
        f"{word}/{who}_nohash_{n}.wav" for word in ("bed", "zero") for who in "abc" for n in "01"
    ):
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        held = io.BytesIO()
        with wave.open(held, "wb") as clip:
            clip.setparams((1, 2, 16000, 0, "NONE", ""))
            clip.writeframes(np.random.default_rng(number).integers(-99, 99, 16000).astype("<i2").tobytes())
        file.write_bytes(held.getvalue())
        os.utime(file, (1e9, 1e9))  # the name of a cache is made of times
    for name in ("testing_list.txt", "validation_list.txt"):
        (home / name).write_text("bed/c_nohash_0.wav\n" if name.startswith("t") else "")
        os.utime(home / name, (1e9, 1e9))


RUN = ["run", *DATA, "method=ditto", "rounds=6", "checkpoint_every=2", "eval_every=2", "out=a"]
WORKERS = [
    "run",
    *DATA[:-1],
    "executor=processes",
    "workers=2",
    "method=scaffold",
    "rounds=4",
    "checkpoint_every=1",
    "out=a",
]
SAMPLES = ["run", "data=digits", "model=smallconv", "clients=4", "cohort=2", "executor=serial", "method=fedevg"]
SAMPLES += [
    "method.spc=2",
    "method.iterations=1",
    "judge.steps=2",
    "rounds=3",
    "checkpoint_every=1",
    "eval_every=1",
    "out=a",
]
PREPARE = ["data", "show", "speechcommands", "data.root=data", "split=natural"]
TASKS = {
    task.name: task
    for task in (
        _task("run", RUN, _resume("a", RUN)),
        _task("run, workers", WORKERS, _resume("a", WORKERS)),
        _task("run, samples", SAMPLES, _resume("a", SAMPLES)),
        _task("run, longer", ["resume", "r", "rounds=5"], None, _finished),
        _task("study", ["study", "run", "toy.toml", "--out", "s"], None, lambda: Path("toy.toml").write_text(STUDY)),
        _task("sweep", ["sweep", *DATA, "lr=0.1,0.2", "method=fedavg,ditto", "rounds=2", "--out", "w"]),
        _task("export", ["export", "r", "--to", "e", "--replace"], None, _finished),
        _task("preparation", PREPARE, None, _clips),
        Task("federation, one process", _served, _served),
    )
}


def imported() -> None:
    """Import all of the library here, so that no child does it again."""
    for found in pkgutil.walk_packages(fedchord.__path__, "fedchord."):
        if not found.name.endswith(("__main__", "plugin")) and ".remote.app" not in found.name:
            with suppress(ImportError):  # what needs an extra
                importlib.import_module(found.name)
    for name in ("matplotlib.pyplot", "sklearn.datasets", "torch._dynamo"):
        importlib.import_module(name)


# -- a child, and its end ------------------------------------------------------------------------------------------


def _child(folder: Path, work: Callable[[], int], hook: Callable[[str], None] | None = None) -> int:
    """The process that does a piece of work in a folder; `hook` is told of every operation on files."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        handle = os.open(folder.with_name(f"{folder.name}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(handle, stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        os.chdir(folder)
        warnings.simplefilter("ignore")
        if hook is not None:
            _listen(hook)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _listen(hook: Callable[[str], None]) -> None:
    flush = os.fsync

    def told(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes and not str(arguments[0]).startswith("/dev/")) or event in OPERATIONS:
            hook(event)

    def flushed(handle: int) -> None:
        hook("fsync")
        flush(handle)

    os.fsync = flushed
    sys.addaudithook(told)


def _ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@dataclass
class Alone:
    """The work left alone: what it leaves, how long it takes, how many operations on files it makes, and which of them
    is the last that takes room."""

    holds: dict[str, Any]
    seconds: float
    operations: int
    taking: int


def left_alone(task: Task, folder: Path) -> Alone:
    """Do a task to its end."""
    prepared(task, folder)
    made, (reading, writing) = b"", os.pipe()

    def hook(event: str) -> None:
        os.write(writing, b"-" if event in FREEING else b"+")

    start = time.monotonic()
    code = _ended(_child(folder, task.do, hook))
    seconds = time.monotonic() - start
    os.close(writing)
    while part := os.read(reading, 1 << 16):
        made += part
    os.close(reading)
    assert code == 0, _log(folder)
    return Alone(holds(folder), seconds, len(made), made.rfind(b"+") + 1)


def prepared(task: Task, folder: Path) -> None:
    """A fresh folder in which the task can begin."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.with_name(f"{folder.name}.log").unlink(missing_ok=True)
    assert _ended(_child(folder, lambda: (task.prepare() and 0) or 0)) == 0, _log(folder)


def kill_at_operation(work: Callable[[], int], folder: Path, number: int) -> bool:
    """Whether the work was killed before its `number`-th operation on files (from 1), and not at its end already."""
    seen = 0

    def hook(event: str) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.killpg(0, signal.SIGKILL)

    return _ended(_child(folder, work, hook)) == -signal.SIGKILL


def kill_after(work: Callable[[], int], folder: Path, seconds: float) -> bool:
    """Whether the work was killed after so many seconds, and had not ended before."""
    pid, end = _child(folder, work), time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, _log(folder)
            return False
        time.sleep(min(0.005, max(0.0, end - time.monotonic())))
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not called setsid yet
        os.kill(pid, signal.SIGKILL)
    return _ended(pid) == -signal.SIGKILL


def full_at(task: Task, alone: Alone, folder: Path, number: int) -> str:
    """Do a task on a disk that takes nothing from its `number`-th operation on; what is wrong then, or in the end after
    the disk had room again ("" if nothing is)."""
    prepared(task, folder)
    before, seen = holds(folder), 0

    def hook(event: str) -> None:
        nonlocal seen
        seen += 1
        if seen >= number and event not in FREEING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    code, told = _ended(_child(folder, task.do, hook)), _log(folder)
    errors = [line for line in told.splitlines() if line.startswith("error: ")]
    if code != 2 or len(errors) != 1 or "No space left" not in errors[0] or "Traceback" in told:
        return f"code {code}: {told}"
    left = [str(path) for path in folder.rglob(".*") if path.name != ".lock"]
    lost = [
        name for name, content in before.items() if holds(folder).get(name) != content and not name.startswith("r/")
    ]
    return f"left {left}, lost {lost}" if left or lost else ended(task, alone, folder)


@dataclass
class Outcome:
    """How a case went: kills, and what is different in the end ("" if nothing is)."""

    kills: int
    wrong: str
    moments: list[str]


def survive(task: Task, alone: Alone, folder: Path, draw: random.Random, most: int = 3) -> Outcome:
    """Kill a task one to `most` times, each time going on, then let it end, and compare."""
    prepared(task, folder)
    kills, moments = 0, []
    wanted = draw.randint(1, most)
    for attempt in range(wanted):
        work = task.do if attempt == 0 else task.again
        if draw.random() < 0.5:
            number = draw.randint(1, max(1, alone.operations >> (attempt > 0)))
            killed, moment = kill_at_operation(work, folder, number), f"operation {number}"
        else:
            seconds = draw.uniform(0, alone.seconds)
            killed, moment = kill_after(work, folder, seconds), f"{seconds:.2f} s"
        kills += killed
        moments.append(moment if killed else f"{moment} (ended before)")
    return Outcome(kills, ended(task, alone, folder), moments)


def ended(task: Task, alone: Alone, folder: Path) -> str:
    """Go on to the end; what differs from the work that was left alone, "" if nothing does."""
    code = _ended(_child(folder, task.again))
    if code:
        return f"going on ended with {code}: {_log(folder)[-1500:]}"
    return differences(alone.holds, holds(folder))


def _log(folder: Path) -> str:
    return folder.with_name(f"{folder.name}.log").read_text(errors="replace")[-3000:]


# -- what a folder holds -------------------------------------------------------------------------------------------


def holds(folder: Path) -> dict[str, Any]:
    """Every file below a folder, without times."""
    return {
        str(path.relative_to(folder)): _content(path, folder)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ASIDE and not _AUDIT.fullmatch(path.name)
    }


def _content(path: Path, folder: Path) -> Any:
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_text().replace(str(folder), "HERE")))
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".npz":
        with np.load(path) as found:
            return {name: found[name].tobytes() for name in found.files}
    return path.read_bytes()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(part) for key, part in value.items() if key not in VOLATILE}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def differences(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The files that are not in both, or differ; "" if there are none."""
    found = [f"{name} is {'missing' if name in one else 'left'}" for name in sorted(one.keys() ^ other.keys())]
    return "; ".join(
        found + [f"{name} differs" for name in sorted(one.keys() & other.keys()) if one[name] != other[name]]
    )
