"""State is on the disk before it is named: what every writer asks of the system, in its order; and no other way."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.source import called, calls, trees

from fedchord.core.per_client import PerClient
from fedchord.core.rules import ServerState
from fedchord.data.formats import cache
from fedchord.data.official.fetch import place_file
from fedchord.engine.checkpoint import Checkpoints
from fedchord.engine.memory import ClientMemory
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.files import made_folder, written
from fedchord.remote.memory import Versions


class Disk:
    """A disk that loses what was not flushed: what a power cut now would leave.

    A file keeps the content that it had when it was last flushed, under the names that its folder had when that was.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.content, self.names = root, {}, {}
        self.moments: list[tuple[str, dict[str, bytes]]] = []  # what was on the disk when a name was given
        self._sync, self._replace = os.fsync, os.replace
        patch.setattr(os, "fsync", self.fsync)
        patch.setattr(os, "replace", self.replace)
        self.names[root.stat().st_ino] = {}

    def fsync(self, handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_dir():
            self.names[path.stat().st_ino] = {part.name: part.stat().st_ino for part in path.iterdir()}
        else:
            self.content[path.stat().st_ino] = path.read_bytes()
        self._sync(handle)

    def replace(self, old: Path, new: Path) -> None:
        """Whatever gets a name is whole on the disk already; but for what a checkpoint names later, and what is within
        a folder that has no name yet."""
        place = Path(new)
        if not place.name.startswith("client-") and ".partial" not in str(place.parent):
            for part in [Path(old), *Path(old).rglob("*")]:
                whole = part.is_dir() or self.content.get(part.stat().st_ino) == part.read_bytes()
                assert whole, f"{part} was not flushed"
        self.moments.append((place.name, self.kept()))
        self._replace(old, new)

    def kept(self, folder: Path | None = None) -> dict[str, bytes]:
        """The files that a power cut would leave."""
        here = folder or self.root
        found: dict[str, bytes] = {}
        for name, inode in self.names.get(here.stat().st_ino, {}).items():
            path = here / name
            if not path.exists() or path.stat().st_ino != inode:
                continue
            if path.is_dir():
                found |= self.kept(path)
            else:
                found[str(path.relative_to(self.root))] = self.content.get(inode, b"")
        return found


def there(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def checkpointed(folder: Path) -> None:
    """Two rounds with a client's memory, the second in place of the first."""
    memory = ClientMemory()
    for round in (1, 2):
        memory.put(round, {"w": torch.ones(2)}, round)
        state = ServerState(round, {"w": torch.zeros(3)}, {}, {}, PerClient.filled(2, 0, torch.int64))
        Checkpoints(folder / "checkpoints", 1, "f", "c").save(state, memory)


def settled(folder: Path) -> None:
    run = RunFolder(folder / "deep" / "run")
    run.occupy()
    run.begin(RunConfig())
    run.add_round({"round": 1})
    run.flush_rounds()
    run.write_summary({"a": 1})
    run.put_aside()
    run.write_summary({"a": 2})
    run.lock.give_back()


def remembered(folder: Path) -> None:
    kept = Versions(folder / "memory", "f" * 16)
    kept.put(0, {"w": torch.ones(2)}, -1, "ab")
    kept.keep_model({"w": torch.ones(3)}, 1, 0)


def prepared(folder: Path) -> None:
    def build(writer: cache.Writer) -> dict[str, str]:
        writer.add(x=np.zeros((2, 3), np.uint8))
        return {}

    cache.cached("t", folder, [], "", build)


def fetched(folder: Path) -> None:
    (folder / "download").write_bytes(b"rows")
    place_file("t", folder / "download", folder / "deep" / "rows.csv")


def replaced(folder: Path) -> None:
    for content in ("old", "new"):
        with written(folder / "e") as beside:
            beside.mkdir()
            (beside / "inner").mkdir()
            (beside / "inner" / "a").write_text(content)


WRITERS: dict[str, Callable[[Path], None]] = {
    "checkpoint": checkpointed,
    "run folder": settled,
    "node": remembered,
    "cache": prepared,
    "download": fetched,
    "folder": replaced,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_outlasts_a_power_cut(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)
    disk = Disk(tmp_path, monkeypatch)
    WRITERS[name](tmp_path)
    assert disk.moments and disk.kept() == there(tmp_path)


def test_a_checkpoint_names_nothing_that_a_power_cut_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the moment when a checkpoint gets its name, the clients' files that it names are on the disk."""
    disk = Disk(tmp_path, monkeypatch)
    checkpointed(tmp_path)
    seen = [{place.name for place in map(Path, kept)} for name, kept in disk.moments if name.startswith("round-")]
    first, second = "client-0000001-round-000001.safetensors", "client-0000002-round-000002.safetensors"
    assert first in seen[0] and second not in seen[0] and {first, second} <= seen[1]


def test_the_disk_of_these_tests_loses_what_was_not_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a name without a flush of its folder, and a file without one of its content."""
    disk = Disk(tmp_path, monkeypatch)
    made_folder(tmp_path / "f")
    (tmp_path / "f" / "a").write_text("x")
    assert disk.kept() == {}
    with pytest.raises(AssertionError, match="was not flushed"):
        os.replace(tmp_path / "f" / "a", tmp_path / "f" / "b")
    with pytest.raises(AssertionError, match="was not flushed"), written(tmp_path / "f" / "c", flush=False) as beside:
        beside.write_text("x")


def test_a_folder_that_went_aside_comes_back_when_the_process_was_killed(tmp_path: Path) -> None:
    """Between the two renamings of a folder's replacement."""
    (tmp_path / ".e.old").mkdir()
    (tmp_path / ".e.old" / "a").write_text("old")
    with pytest.raises(ValueError), written(tmp_path / "e") as beside:
        assert (tmp_path / "e" / "a").read_text() == "old"
        beside.mkdir()
        raise ValueError
    assert there(tmp_path) == {"e/a": b"old"}
    with written(tmp_path / "e") as beside:
        beside.mkdir()
    assert os.listdir(tmp_path) == ["e"] and os.listdir(tmp_path / "e") == []


# -- no other way ----------------------------------------------------------------------------------------------------

NAMING = {"os.replace", "os.rename", "os.renames", "shutil.move", "os.link"}
WRITING = {"write_text", "write_bytes", "savez", "savez_compressed", "save_file", "copyfile", "copytree", "copy2"}
ELSEWHERE = {
    "cli/index.py": "a file of the source, written by who changes the catalogue",
    "data/official/fetch.py": "unpacks beside its place",
    "data/formats/cache.py": "writes beside its place",
    "experiments/tensorboard.py": "files of TensorBoard, which are a copy of the rounds",
    "remote/init.py": "writes within the folder that `written` gives",
    "remote/joining.py": "a secret of two processes, new with each start",
    "remote/processes.py": "what child processes print",
    "engine/pages.py": "rows that processes share while they run, in a folder of their own that goes with them",
    "files.py": "the one way",
    "cli/root.py": "the standard output",
}


def outside(tree: ast.AST) -> list[str]:
    """Calls that write a file or give it a name outside the body of a `with written(...)`."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(called(item.context_expr) == "written" for item in node.items):
            inside |= {id(part) for part in ast.walk(node)}
    return [called(node) for node in calls(tree) if id(node) not in inside and writes(node)]


def writes(node: ast.Call) -> bool:
    last = called(node).rpartition(".")[2]
    if called(node) in NAMING or (last == "rename" and isinstance(node.func, ast.Attribute)):
        return True
    if last in WRITING and isinstance(node.func, ast.Attribute):
        return True
    mode = next((str(a.value) for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)), "")
    return last in ("open", "fdopen") and set(mode) <= set("rwabx+t") and bool(set(mode) & set("wax+"))


def test_no_file_gets_a_name_by_another_way() -> None:
    found = {name: outside(tree) for name, tree in trees().items()}
    assert {name: ways for name, ways in found.items() if ways and name not in ELSEWHERE} == {}
    assert [name for name in ELSEWHERE if not found[name]] == []


def test_the_search_finds_other_ways() -> None:
    """Negative control."""
    lines = ["os.replace(a, b)", "p.write_text('x')", "open(p, 'w')", "open(p)", "p.rename(q)"]
    lines += ["with written(p) as b:", "  b.write_text('')"]
    assert outside(ast.parse("\n".join(lines))) == ["os.replace", "p.write_text", "open", "p.rename"]
