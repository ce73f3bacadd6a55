"""Checkpoints: the server's state and the clients' private states after a round, written whole or not at all.

    FOLDER/round-000010/{state.safetensors, manifest.json}    FOLDER/memory/client-*.safetensors

A checkpoint is written to a temporary folder and renamed. The newest two are kept: if the newest is damaged, the one
before it is used, and that is said. The manifest says whose it is, by two marks: the run's `fingerprint`, and its
`course`, which runs share that differ only in their number of rounds. Either will do.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedchord.check import FedchordError, require, whole
from fedchord.core.per_client import PerClient
from fedchord.core.rules import ServerState
from fedchord.engine.layout import LAYOUT
from fedchord.engine.memory import ClientMemory, file_digest, load_tensors, save_tensors
from fedchord.files import write_text, written
from fedchord.safe import json_of

KEEP = 2
_FILE = re.compile(r"client-[0-9]{7,19}-round-[0-9]{6,19}\.safetensors")


@dataclass(frozen=True)
class Found:
    """A checkpoint that was read, and what was wrong with newer ones."""

    state: ServerState
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints, for those who run the loop: when one is due, writing it, and going on from the newest.

    `every` rounds and after the last one (0: only the last). `fingerprint` tells runs apart: checkpoints of another
    are refused. `course` is that of runs which a longer one may go on from ("": none).
    """

    folder: Path
    every: int = 0
    fingerprint: str = ""
    course: str = ""

    def due(self, round: int, rounds: int) -> bool:
        """Whether one is to be written after a round, counted from 1."""
        return round == rounds or (self.every > 0 and round % self.every == 0)

    def save(self, state: ServerState, memory: ClientMemory) -> None:
        """Write a checkpoint."""
        save(self.folder, state, memory, self.fingerprint, self.course)

    def load(self, memory: ClientMemory, latest: int | None = None) -> Found | None:
        """The newest one that is whole, of a round up to `latest`, with the clients' states put into `memory`; None if
        there is none."""
        return load(self.folder, memory, self.fingerprint, self.course, latest)


def save(folder: Path, state: ServerState, memory: ClientMemory, fingerprint: str, course: str = "") -> None:
    """Write a checkpoint and drop those that are no longer needed."""
    name = f"round-{state.round:06d}"
    groups = {"broadcast": state.broadcast, "mixing": state.mixing, "server": state.server, "sums": state.sums}
    flat = {f"{group}/{key}": tensor for group, part in groups.items() for key, tensor in part.items()}
    with written(folder / name) as partial:
        partial.mkdir()
        clients = {"visits": state.visits.tensor(), "counted": state.counted.tensor()}
        digest = save_tensors(partial / "state.safetensors", flat | clients)
        manifest = {
            "layout": LAYOUT,
            "round": state.round,
            "fingerprint": fingerprint,
            "course": course,
            "state": digest,
            "memory": memory.save(folder / "memory", state.round),
        }
        (partial / "manifest.json").write_text(json.dumps(manifest))
    kept = _rounds(folder)[-KEEP:]
    for path in _rounds(folder)[:-KEEP]:
        shutil.rmtree(path, ignore_errors=True)
    memory.pin(_referred(kept))


def load(
    folder: Path, memory: ClientMemory, fingerprint: str | None = None, course: str = "", latest: int | None = None
) -> Found | None:
    """The newest checkpoint that is whole, of a round up to `latest` (None: of any), with the clients' states put into
    `memory`; None if there is none."""
    problems: list[str] = []
    for path in reversed(_rounds(folder)):
        if latest is not None and path.name > f"round-{latest:06d}":
            continue
        try:
            return Found(_load(path, memory, fingerprint, course), tuple(problems))
        except _OtherRun:
            raise
        except FedchordError as error:
            problems.append(str(error))
    if problems:
        raise FedchordError(f"checkpoint: none in {folder} can be used ({'; '.join(problems)})")
    return None


def add_course(folder: Path, fingerprint: str, course: str) -> None:
    """Give the checkpoints of a run its course, where an earlier version wrote them without one."""
    for path in _rounds(folder):
        try:
            manifest = json_of((path / "manifest.json").read_text())
        except (OSError, ValueError):
            continue  # whoever reads it next says what is wrong
        if isinstance(manifest, dict) and manifest.get("fingerprint") == fingerprint and "course" not in manifest:
            write_text(path / "manifest.json", json.dumps(manifest | {"course": course}))


class _OtherRun(FedchordError):
    pass


def _rounds(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("round-*") if path.is_dir())


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json_of((path / "manifest.json").read_text())
        known = {name: manifest[name] for name in ("round", "fingerprint", "state", "memory")}
        whole("checkpoint", "round", known["round"])
        known["memory"] = {str(int(client)): _named(*entry) for client, entry in known["memory"].items()}
        return known | {"course": manifest.get("course", "")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FedchordError(f"checkpoint: {path / 'manifest.json'} is missing or damaged") from error


def _named(name: str, digest: str) -> tuple[str, str]:
    """The file of a client, which lies in the folder of the others."""
    if not _FILE.fullmatch(name):
        raise ValueError(f"{name} is no client's file")
    return name, digest


def _referred(paths: list[Path]) -> set[str]:
    """The files of clients that checkpoints refer to; a damaged one refers to none."""
    found: set[str] = set()
    for path in paths:
        with suppress(FedchordError):
            found |= {file for file, _ in _read_manifest(path)["memory"].values()}
    return found


def _load(path: Path, memory: ClientMemory, fingerprint: str | None, course: str) -> ServerState:
    manifest = _read_manifest(path)
    known = fingerprint in (None, manifest["fingerprint"]) or (bool(course) and manifest["course"] == course)
    if not known:
        raise _OtherRun(f"checkpoint: {path.parent} holds another run's checkpoints; settings differ")
    file = path / "state.safetensors"
    if not file.is_file() or file_digest(file) != manifest["state"]:
        raise FedchordError(f"checkpoint: {file} is missing or damaged")
    flat = load_tensors(file)
    groups: dict[str, dict[str, torch.Tensor]] = {"broadcast": {}, "mixing": {}, "server": {}, "sums": {}}
    for name, tensor in flat.items():
        group, _, key = name.partition("/")
        if key and group in groups:
            groups[group][key] = tensor
    require("visits" in flat and flat["visits"].ndim == 1, "checkpoint", f"{file} is damaged")
    memory.restore(path.parent / "memory", manifest["memory"])
    memory.keep(_referred(_rounds(path.parent)))  # until the next one is whole, these are what there is to go on from
    parts = groups["broadcast"], groups["mixing"], groups["server"]
    counted = flat.get("counted", flat["visits"][:0])  # not there in earlier checkpoints
    clients = PerClient.of(flat["visits"]), PerClient.of(counted)
    return ServerState(manifest["round"], *parts, *clients, groups["sums"])
