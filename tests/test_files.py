"""Files are whole or not there, whoever writes them and whatever goes wrong."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from fedchord.check import FedchordError
from fedchord.core.per_client import PerClient
from fedchord.core.rules import ServerState
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory, save_tensors
from fedchord.files import blocked, write_text, written
from fedchord.synthetic import look
from fedchord.synthetic.set import SyntheticSet, save


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    file = tmp_path / "deep" / "a.txt"
    with written(file) as beside:
        beside.write_text("new")
        assert not file.exists() and beside.parent == file.parent
    assert file.read_text() == "new" and os.listdir(file.parent) == ["a.txt"]
    write_text(file, "näher")
    assert file.read_text(encoding="utf-8") == "näher"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_where_the_writer_fails_the_old_file_stays(tmp_path, error):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(error), written(file) as beside:
        beside.write_text("half")
        raise error
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_takes_the_place_of_another_and_of_what_a_killed_run_left(tmp_path):
    place, left = tmp_path / "f", tmp_path / ".f.partial"
    for folder in (place, left):
        folder.mkdir()
        (folder / "stale").write_text("")
    with written(place) as beside:
        beside.mkdir()
        (beside / "new").write_text("")
    assert os.listdir(place) == ["new"] and os.listdir(tmp_path) == ["f"]


def test_several_processes_may_write_one_file_at_a_time(tmp_path):
    file, context = tmp_path / "a.txt", multiprocessing.get_context("fork")

    def write(word: str) -> None:
        for _ in range(200):
            write_text(file, word, several=True)

    writers = [context.Process(target=write, args=(word,)) for word in ("one", "two")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert file.read_text() in ("one", "two") and os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("flush", [True, False])
def test_everything_is_on_the_disk_before_the_name_and_then_the_name(tmp_path, monkeypatch, flush):
    order: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        sync(handle)

    def replaced(old: Path, new: Path) -> None:
        order.append("renamed")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with written(tmp_path / "f", flush) as beside:
        beside.mkdir()
        (beside / "inner").write_text("")
    assert order == (["inner", ".f.partial", "renamed", tmp_path.name] if flush else ["renamed"])


def sample() -> SyntheticSet:
    return SyntheticSet(torch.rand(4, 1, 2, 2), torch.tensor([0, 0, 1, 1]), 0.0, 1.0, 2, "test")


def checkpointed(folder: Path) -> None:
    state = ServerState(1, {"theta": torch.ones(2)}, {}, {}, PerClient.filled(1, 0, torch.int32))
    checkpoint.save(folder, state, ClientMemory(), "mark")


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: save(sample(), folder / "a.npz"),
        lambda folder: look.write(look.grid(sample()), folder / "a.png"),
        lambda folder: save_tensors(folder / "a", {"x": torch.ones(2)}),
        lambda folder: write_text(folder / "a", "x"),
        checkpointed,
    ],
    ids=["set", "picture", "tensors", "text", "checkpoint"],
)
def test_no_writer_leaves_half_a_file(tmp_path, monkeypatch, write):
    def full(old: object, new: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises((OSError, FedchordError), match="No space left on device"):
            write(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    write(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]
    assert any(path.is_file() for path in tmp_path.rglob("*"))


def test_what_is_in_the_way_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    assert blocked(tmp_path) == blocked(tmp_path / "a" / "b.pt") == blocked(tmp_path / "file") == ""
    assert blocked(tmp_path / "file" / "b.pt") == f"{tmp_path / 'file'} is a file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
