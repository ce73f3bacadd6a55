"""Nobody works in a run folder where another one is at work, and a dead process leaves no lock."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedchord.check import FedchordError
from fedchord.experiments import lock as lock_module
from fedchord.experiments import run as runs
from fedchord.experiments import study
from fedchord.experiments.config import RunConfig
from fedchord.experiments.lock import LOCK, FolderLock
from fedchord.experiments.parts import Parts
from fedchord.experiments.session import Run

TINY = ["model=logreg", "clients=6", "cohort=4", "rounds=3", "executor=serial"]
BUSY = "another process is at work there"


def tiny(*pairs: str) -> RunConfig:
    return RunConfig.from_pairs([*TINY, *pairs])


def test_a_folder_has_one_holder(tmp_path):
    one, other = FolderLock(tmp_path), FolderLock(tmp_path)
    other.check()
    one.take()
    one.take()  # it has it already
    one.check()
    for refused in (other.take, other.check):
        with pytest.raises(FedchordError, match=f"^{tmp_path}: {BUSY}$"):
            refused()
    one.give_back()
    assert list(tmp_path.iterdir()) == []
    other.take()
    other.give_back()


def test_a_file_without_its_holder_locks_nobody_out(tmp_path):
    (tmp_path / LOCK).write_text("")
    FolderLock(tmp_path).check()
    lock = FolderLock(tmp_path)
    lock.take()
    lock.give_back()
    assert not (tmp_path / LOCK).exists()


def test_a_forked_child_holds_nothing(tmp_path):
    lock, (ours, theirs), (started, start) = FolderLock(tmp_path), os.pipe(), os.pipe()
    lock.take()
    child = os.fork()
    if child == 0:  # lives on until the pipe closes
        os.close(theirs)
        os.write(start, b"x")
        os.read(ours, 1)
        os._exit(0)
    os.read(started, 1)
    try:
        with pytest.raises(FedchordError, match=BUSY):
            FolderLock(tmp_path).take()  # the child closed its copy only
        os.close(lock._handle)  # as when the parent dies: the file stays
        lock_module._held.clear()
        other = FolderLock(tmp_path)
        other.take()
        other.give_back()
    finally:
        os.close(theirs)
        os.waitpid(child, 0)
        for end in (ours, started, start):
            os.close(end)


def test_a_second_run_object_is_refused(tmp_path):
    out = tmp_path / "a"
    config = tiny(f"out={out}")
    first = iter(Run(Parts.build(config)))
    next(first)
    for resume in (False, True):
        with pytest.raises(FedchordError, match=f"^{out}: {BUSY}$"):
            runs.execute(config, resume=resume)
    with pytest.raises(FedchordError, match=f"^{out}: {BUSY}$"):
        runs.resume(out)
    list(first)
    assert not (out / LOCK).exists()
    assert runs.resume(out)["rounds"] == 3


def test_two_that_were_free_to_begin_do_not_both(tmp_path):
    config = tiny(f"out={tmp_path / 'a'}")
    one, other = Run(Parts.build(config)), Run(Parts.build(config))
    one.finish()
    before = (tmp_path / "a/summary.json").read_bytes()
    with pytest.raises(FedchordError, match="already holds this run, finished"):
        other.finish()
    assert (tmp_path / "a/summary.json").read_bytes() == before
    assert not (tmp_path / "a" / LOCK).exists()


def test_a_run_that_cannot_start_leaves_no_folder_above(tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("a,label,client\n" + "".join(f"{i},{i % 2},{i % 3}\n" for i in range(30)))
    with pytest.raises(FedchordError, match="cohort must be at most"):
        runs.execute(RunConfig.from_pairs([f"data={own}", "model=logreg", "cohort=4", f"out={tmp_path / 'x/y/a'}"]))
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]


def test_a_study_leaves_alone_what_another_works_on(tmp_path):
    settings = {"data": "digits", "model": "logreg", "rounds": 1, "clients": 5, "cohort": 2, "executor": "serial"}
    both = [{"label": "A", "method": "fedavg"}, {"label": "B", "method": "uniform"}]
    plan = study.plan(study.parse("toy", {"title": "Two", "metric": "top1", "settings": settings, "method": both}))
    busy = tmp_path / plan.jobs[0].folder
    busy.mkdir()
    lock = FolderLock(busy)
    lock.take()
    outcome = study.run(plan, tmp_path, say=lambda line: None)
    assert (outcome.done, list(outcome.failed)) == (1, [f"{busy.name}: {BUSY}"])
    lock.give_back()
    assert study.run(plan, tmp_path, say=lambda line: None).done == 1


def fedchord(*arguments: str, **options) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "fedchord.cli", *arguments], **pipes, **options)


def wait_for_a_round(process: subprocess.Popen[str], folder: Path) -> None:
    log, deadline = folder / "rounds.jsonl", time.monotonic() + 50
    while not (log.is_file() and log.read_text().endswith("\n")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)


def test_two_processes_and_kill_9(tmp_path, monkeypatch):
    """The second process is refused; when the first is killed its workers live on, and the run goes on at once."""
    monkeypatch.chdir(tmp_path)
    slow = ["model=logreg", "clients=6", "cohort=4", "workers=3", "executor=processes", "epochs=40"]
    slow += ["rounds=1000", "eval_every=0", "checkpoint_every=1"]
    process = fedchord("run", *slow, "out=a", start_new_session=True)
    try:
        wait_for_a_round(process, tmp_path / "a")
        with pytest.raises(FedchordError, match=f"^a: {BUSY}$"):
            runs.resume("a")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGSTOP)  # alive, and unable to notice that the parent is gone
        process.kill()
        process.wait(timeout=10)
        assert len(children) == 2 and all(Path(f"/proc/{child}").exists() for child in children)
        assert (tmp_path / "a" / LOCK).exists()
        going_on = iter(Run(Parts.build(RunConfig.from_toml("a/config.toml")), resume=True))
        assert next(going_on).round >= 2
        going_on.close()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_disk_that_takes_no_more_is_one_line(tmp_path, monkeypatch):
    """The checkpoint does not fit: the run stops in one line, leaves nothing half written, and can go on."""
    monkeypatch.chdir(tmp_path)
    few = ["run", "rounds=2", "executor=serial", "eval_every=0", "checkpoint_every=1", "out=a"]
    bounded = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # noqa: E731
    process = fedchord(*few, preexec_fn=bounded)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "Traceback" not in err
    assert err.splitlines()[-1].startswith("error: a/checkpoints/") and "cannot be written" in err.splitlines()[-1]
    assert [path for path in tmp_path.rglob("*") if "partial" in path.name or path.name == LOCK] == []
    assert runs.resume("a")["rounds"] == 2
