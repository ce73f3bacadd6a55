"""A disk that is full or read-only, at every write of every command that writes: one line, exit code 2, and what was
there before is there still."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.small_disk import PAGE, free, leave, on_small_disk, read_only

from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig

DATA = ["model=logreg", "clients=4", "cohort=2", "executor=serial"]
SAMPLES = ["method=fedevg", "method.spc=2", "method.iterations=1", "judge.steps=2", "model=smallconv"]
SAMPLES += ["clients=4", "cohort=2", "rounds=1", "executor=serial"]
STUDY = """title = "Toy"
seeds = [1, 2]
[settings]
data = "digits"
model = "logreg"
split = "iid"
clients = 4
cohort = 2
rounds = 1
executor = "serial"
[[method]]
label = "FedAvg"
method = "fedavg"
[[setting]]
label = "few"
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read: a finished run, one with a synthetic set, rows, a study."""
    folder = tmp_path_factory.mktemp("kept")
    runs.execute(RunConfig.from_pairs([*DATA, "rounds=2", "eval_every=1", f"out={folder / 'r'}"]))
    runs.execute(RunConfig.from_pairs([*SAMPLES, f"out={folder / 's'}"]))
    np.savez(folder / "rows.npz", x=np.zeros((3, 1, 8, 8), np.float32))
    (folder / "toy.toml").write_text(STUDY)
    return folder


def command(*words: str) -> tuple[int, list[str], list[str]]:
    """The exit code of a command in this process, what it printed and what it complained of."""
    from fedchord.cli import main

    out, err = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        warnings.simplefilter("ignore")  # what typer itself warns of
        try:
            main(list(words))
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, out.getvalue().splitlines(), err.getvalue().splitlines()


def holds(place: Path) -> dict[str, bytes]:
    """Every file below a folder but the filler."""
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.name != ".filler"
    }


COMMANDS = {
    "run": ["run", *DATA, "method=ditto", "rounds=2", "checkpoint_every=1", "eval_every=1", "out=a"],
    "samples": ["run", *SAMPLES, "out=a"],
    "longer": ["resume", "r", "rounds=3"],
    "study": ["study", "run", "{kept}/toy.toml", "--out", "a"],
    "sweep": ["sweep", *DATA, "lr=0.1,0.2", "rounds=1", "--out", "a"],
    "export": ["export", "{kept}/r", "--to", "a"],
    "weights": ["export", "{kept}/r", "--to", "a.safetensors"],
    "state dict": ["export", "{kept}/r", "--to", "a.pt"],
    "predict": ["predict", "{kept}/r", "{kept}/rows.npz", "--to", "a.csv"],
    "plot": ["plot", "{kept}/r", "--to", "a.png"],
    "plot pdf": ["plot", "{kept}/r", "--to", "deep/a.pdf"],
    "new": ["new", "method", "my-rule"],
    "data show": ["data", "show", "digits", "--picture", "a.png", "--samples", "b.png"],
    "synth export": ["synth", "export", "{kept}/s", "--to", "a.npz"],
    "synth pictures": ["synth", "export", "{kept}/s", "--to", "a"],
    "synth tensors": ["synth", "export", "{kept}/s", "--to", "a.pt"],
    "synth show": ["synth", "show", "{kept}/s", "--to", "a.png"],
    "synth train": ["synth", "train", "{kept}/s", "--steps", "2", "--to", "a.pt"],
}


def complained(errors: list[str]) -> str:
    """The one line of the error, which is the last; before it stand the lines of a run on its way."""
    assert [line.startswith("error: ") for line in errors].count(True) == 1 and errors[-1].startswith("error: ")
    assert "Traceback" not in " ".join(errors)
    return errors[-1]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk(tmp_path: Path, kept: Path, name: str) -> None:
    """With 0, 1, 2, ... pages left the command fails at one write after the other, until it has room."""
    words = [word.format(kept=kept) for word in COMMANDS[name]]
    resumes = name in ("run", "samples", "longer")

    def every_write() -> None:
        disk, pages, failures, seen = Path.cwd(), 0, 0, set()
        while True:
            for path in disk.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            (disk / "mine.txt").write_text("mine")
            if name == "longer":
                shutil.copytree(kept / "r", disk / "r")
            before = holds(disk)
            leave(disk, pages)
            code, _, errors = command(*words)
            left = [str(path) for path in disk.rglob("*") if "partial" in path.name or path.name == ".lock"]
            assert left == [], f"with {pages} pages: {left}"
            if code == 0:
                break
            told = complained(errors)
            assert code == 2 and "cannot be written (No space left on device)" in told, (pages, told)
            seen.add(told.partition(" cannot")[0])
            now = holds(disk)
            assert resumes or now.items() >= before.items(), f"with {pages} pages"
            free(disk)
            folder = "r" if name == "longer" else "a"
            if resumes and pages % 3 == 0:  # the last good state is kept: it goes on from there
                again = ["resume", folder] if Path(folder, "config.toml").exists() else words
                assert command(*again)[0] == 0, f"with {pages} pages"
            if not resumes and name not in ("study", "sweep", "data show"):
                assert now.keys() == before.keys(), f"with {pages} pages"
            failures += 1
            pages += 1 if pages < 6 or name in ("run", "longer") else 13
        assert failures and (not resumes or len(seen) >= 3), seen

    on_small_disk(tmp_path / "disk", every_write)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_only_disk(tmp_path: Path, kept: Path, name: str) -> None:
    words = [word.format(kept=kept) for word in COMMANDS[name]]

    def once() -> None:
        disk = Path.cwd()
        shutil.copytree(kept / "r", disk / "r")
        before = holds(disk)
        read_only(disk)
        code, _, errors = command(*words)
        assert code == 2 and "Read-only file system" in complained(errors)
        assert holds(disk) == before

    on_small_disk(tmp_path / "disk", once)


def test_what_was_there_stays_when_it_cannot_be_replaced(tmp_path: Path, kept: Path) -> None:
    """An earlier export, an earlier table of predictions, an earlier picture."""
    asked: dict[str, list[str]] = {
        "e": ["export", f"{kept}/r", "--to", "e", "--replace"],
        "p.csv": ["predict", f"{kept}/r", f"{kept}/rows.npz", "--to", "p.csv"],
        "f.png": ["plot", f"{kept}/r", "--to", "f.png"],
        "w.pt": ["export", f"{kept}/r", "--to", "w.pt"],
    }

    def twice() -> None:
        disk = Path.cwd()
        for words in asked.values():
            assert command(*words)[0] == 0
        before = holds(disk)
        leave(disk, 0)
        for words in asked.values():
            code, _, errors = command(*words)
            assert code == 2 and "No space left on device" in complained(errors) and holds(disk) == before

    on_small_disk(tmp_path / "disk", twice)


def test_output_that_nobody_can_keep() -> None:
    """A table into a full disk; and one that head has read enough of."""
    asked = [sys.executable, "-m", "fedchord", "list"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (2, "error: output: No space left on device\n")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(asked, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(writing)
    assert done.stderr == ""


def test_the_small_disk_is_small(tmp_path: Path) -> None:
    """Negative control: a write that takes one page more than there is fails, and one that fits does not."""

    def filled() -> None:
        leave(Path.cwd(), 2)
        Path("a").write_bytes(b"x" * PAGE)
        with pytest.raises(OSError, match="No space left"):
            Path("b").write_bytes(b"x" * 2 * PAGE)

    on_small_disk(tmp_path / "disk", filled)
