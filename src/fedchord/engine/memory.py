"""What clients keep between rounds: lazy (a client never sampled costs nothing), in memory or on disk.

On disk a client is one safetensors file per saved version, named by client and round. A version that a checkpoint
refers to is kept until no checkpoint does, so that a run can be resumed from exactly where the checkpoint stood.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from fedchord.check import FedchordError
from fedchord.files import flushed, made_folder, written
from fedchord.tensors import Tensors, clone


def save_tensors(path: Path, state: Tensors, flush: bool = False) -> str:
    """Write a state atomically, with `flush` so that it outlasts a power cut; returns the file's SHA-256."""
    with written(path, flush) as partial:
        # written by Python, which tells why a disk takes no more
        partial.write_bytes(save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}))
        return file_digest(partial)


def load_tensors(path: Path, device: torch.device | str = "cpu") -> Tensors:
    """Read a state written by `save_tensors`."""
    try:
        return {name: tensor.to(device) for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise FedchordError(f"checkpoint: {path} cannot be read ({error})") from error


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


class ClientMemory:
    """Private states by client number; `folder` makes them live on disk instead of in memory. Read ones are on
    `device`."""

    scattered = False
    """Whether other processes keep some; then a client's state can be had only where it is kept."""

    def __init__(self, folder: Path | None = None, device: torch.device | str = "cpu") -> None:
        self._folder, self._device = folder, device
        self._held: dict[int, Tensors] = {}
        self._files: dict[int, tuple[str, str]] = {}  # client -> (file name, digest) of the newest saved version
        self._unsaved: set[int] = set()
        self._loose: set[str] = set()  # files that a power cut may take
        self._pinned: set[str] = set()
        self._home: Path | None = folder
        self._round = -1  # the round of the newest states
        self._before: dict[int, Tensors | None] = {}  # what clients of that round kept before it
        self._behind: dict[int, tuple[str, str] | None] = {}  # the same on disk: the version before
        if folder is not None:
            made_folder(folder)

    def __len__(self) -> int:
        return len(self._held.keys() | self._files.keys())

    def clients(self) -> list[int]:
        """The clients that keep something, sorted."""
        return sorted(self._held.keys() | self._files.keys())

    def get(self, client: int) -> Tensors | None:
        """A client's state, or None if it keeps nothing."""
        if client in self._held:
            return self._held[client]
        if client in self._files and self._home is not None:
            return load_tensors(self._home / self._files[client][0], self._device)
        return None

    def put(self, client: int, own: Tensors, round: int) -> None:
        """Keep a client's state after a round; the tensors are copied."""
        if not own:
            return
        if round != self._round:
            self.settle()
            self._round = round
        if self._folder is None:
            self._before.setdefault(client, self._held.get(client))
            self._held[client] = clone(own)
            self._unsaved.add(client)
        else:
            self._behind.setdefault(client, self._files.get(client))
            self._write(client, own, round)

    def settle(self, without: Iterable[int] = ()) -> None:
        """The newest round is over: older states are forgotten, but clients that are no part of it are set back."""
        for client in without:
            if client in self._before:
                kept = self._before.pop(client)
                if kept is not None:
                    self._held[client] = kept
                else:
                    del self._held[client]
                    self._unsaved.discard(client)
            if client in self._behind:
                old, now = self._behind.pop(client), self._files.pop(client)
                self._files |= {} if old is None else {client: old}
                self._remove(client, now)
        for client, old in self._behind.items():
            self._remove(client, old)
        self._before, self._behind = {}, {}

    def _write(self, client: int, own: Tensors, round: int) -> None:
        assert self._home is not None
        name = f"client-{client:07d}-round-{round:06d}.safetensors"
        old = self._files.get(client)
        self._files[client] = (name, save_tensors(self._home / name, own))
        self._loose.add(name)
        if client not in self._behind:
            self._remove(client, old)

    def _remove(self, client: int, version: tuple[str, str] | None) -> None:
        """Delete a client's file, unless it is its newest or a checkpoint refers to it."""
        newest = self._files.get(client, ("", ""))[0]
        if version is not None and self._home is not None and version[0] not in (newest, *self._pinned):
            (self._home / version[0]).unlink(missing_ok=True)
            self._loose.discard(version[0])

    def collect(self) -> None:
        """Bring here what other processes keep and no checkpoint has; before `save`."""

    def save(self, home: Path, round: int) -> dict[str, tuple[str, str]]:
        """Write every state not yet on disk; returns client -> (file name, digest) for a checkpoint's manifest.

        What the manifest will name outlasts a power cut when this returns.
        """
        self._home = made_folder(self._folder or home)
        for client in sorted(self._unsaved):
            self._write(client, self._held[client], round)
        self._unsaved.clear()
        named = {name for name, _ in self._files.values()} & self._loose
        flushed(self._home / name for name in named)
        self._loose -= named
        return {str(client): entry for client, entry in self._files.items()}

    def keep(self, names: Iterable[str]) -> None:
        """Keep the files of these names too, when their clients are written anew: a checkpoint refers to them."""
        self._pinned |= set(names)

    def pin(self, names: Iterable[str]) -> None:
        """Keep the files of these names and remove all others that are not a newest version."""
        self._pinned = set(names)
        if self._home is None or not self._home.is_dir():
            return
        wanted = self._pinned | {name for name, _ in self._files.values()}
        for path in self._home.glob("client-*"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)

    def restore(self, home: Path, manifest: dict[str, tuple[str, str]]) -> None:
        """Take over the states a checkpoint names; each file's digest is checked."""
        home = self._folder or home
        self._home, self._files, self._held, self._unsaved = home, {}, {}, set()
        for client, (name, digest) in manifest.items():
            path = home / name
            if not path.is_file() or file_digest(path) != digest:
                raise FedchordError(f"checkpoint: {path} is missing or damaged")
            self._files[int(client)] = (name, digest)
            if self._folder is None:
                self._held[int(client)] = load_tensors(path, self._device)
