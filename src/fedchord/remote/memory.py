"""What a node keeps between rounds: its client's private memory in versions, on its own disk.

    FOLDER/FINGERPRINT/after-000005.safetensors   the memory after a round of this client, one file a version
    FOLDER/FINGERPRINT/taken.json                 the rounds it took part in, by the hash of what it received
    FOLDER/FINGERPRINT/told.json                  what it was asked to measure, by the hash of the question
    FOLDER/FINGERPRINT/model.safetensors          the last model it was sent to be measured with

The server says which version counts: the client's last round that entered the model. So a lost reply, a server that was
restarted and one that was set back all go on from the right one. At least three versions are kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from fedchord.check import fail, require
from fedchord.engine.memory import load_tensors, save_tensors
from fedchord.files import made_folder, write_text
from fedchord.safe import json_of
from fedchord.tensors import Tensors

VERSIONS = 3
NEVER = -1
"""The version of a client that no round has counted yet."""
OWNER, LEDGER, TOLD, MODEL = "memory", "taken.json", "told.json", "model.safetensors"


class Versions:
    """The versions of one client's memory in one plan."""

    def __init__(self, folder: Path, fingerprint: str, keep: int = VERSIONS) -> None:
        require(keep >= VERSIONS, OWNER, f"at least {VERSIONS} versions are needed, got {keep}")
        self.folder, self._keep = folder / fingerprint[:16], keep
        for part in (folder, self.folder):
            os.chmod(made_folder(part), 0o700)

    # -- rounds taken part in --------------------------------------------------------------------------------------

    def taken(self) -> dict[int, list[str]]:
        """The rounds the client took part in, and the hashes of what it received."""
        return self._ledger()[0]

    def _ledger(self) -> tuple[dict[int, list[str]], bool]:
        """The rounds taken part in, and whether a version that once counted was dropped."""
        path = self.folder / LEDGER
        if not path.is_file():
            return {}, False
        try:
            found = json_of(path.read_text(encoding="utf-8"))
            return {int(round): list(marks) for round, marks in found["taken"].items()}, bool(found["dropped"])
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            raise fail(OWNER, f"{path} is damaged") from None

    def note(self, round: int, received: str, dropped: bool = False) -> None:
        """Write down that the client took part in a round, by the hash of what it received."""
        taken, before = self._ledger()
        marks = taken.setdefault(round, [])
        if received in marks and dropped <= before:
            return
        marks += [] if received in marks else [received]
        write_text(self.folder / LEDGER, json.dumps({"taken": taken, "dropped": dropped or before}))

    # -- measurements ----------------------------------------------------------------------------------------------

    def told(self) -> list[str]:
        """The hashes of the questions to which numbers were told."""
        path = self.folder / TOLD
        if not path.is_file():
            return []
        try:
            return [str(mark) for mark in json_of(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError):
            raise fail(OWNER, f"{path} is damaged") from None

    def note_told(self, question: str) -> None:
        """Write down that a question was answered with numbers."""
        if question not in (known := self.told()):
            write_text(self.folder / TOLD, json.dumps([*known, question]))

    # -- versions --------------------------------------------------------------------------------------------------

    def rounds(self) -> list[int]:
        """The rounds whose memory is kept."""
        return sorted(int(path.stem.removeprefix("after-")) for path in self.folder.glob("after-*.safetensors"))

    def get(self, counted: int) -> Tensors | None:
        """The memory after a round that the server counted; None before the first."""
        if counted == NEVER and not self._ledger()[1]:
            return None
        kept = self.rounds()
        told = ", ".join(str(round + 1) for round in kept) or "none"
        which = "before its first round" if counted == NEVER else f"after round {counted + 1}"
        require(counted in kept, OWNER, f"the client's memory {which} is gone (kept: after rounds {told})")
        return load_tensors(self._file(counted))

    def put(self, round: int, own: Tensors, counted: int, received: str) -> None:
        """Keep the memory after a round that began with a version; it is on the disk when this returns.

        Rounds between the two were not counted, so that their versions are of no use. Of the others the oldest go.
        """
        dropped = self._ledger()[1]
        kept = [known for known in self.rounds() if not counted < known < round]
        spare = [known for known in kept if known not in (counted, round)]
        old = spare[: max(0, len({*kept, round}) - self._keep)]
        save_tensors(self._file(round), own, flush=True)
        self.note(round, received, dropped or bool(old))
        for known in self.rounds():
            if known in old or counted < known < round:
                self._file(known).unlink(missing_ok=True)

    def _file(self, round: int) -> Path:
        return self.folder / f"after-{round:06d}.safetensors"

    # -- the model it was measured with ----------------------------------------------------------------------------

    def keep_model(self, shared: Tensors, round: int, counted: int) -> None:
        """Keep the last broadcast, with which this client's model is used, and what it goes with: in one file."""
        named = {f"model/{name}": tensor for name, tensor in shared.items()}
        save_tensors(self.folder / MODEL, {**named, "when": torch.tensor([round, counted])}, flush=True)

    def model(self) -> tuple[Tensors, int, int]:
        """The last broadcast, the round after which it was sent, and the client's round that had been counted."""
        path = self.folder / MODEL
        require(path.is_file(), OWNER, f"{self.folder} holds no model yet; it comes with the first evaluation")
        found = load_tensors(path)
        when = found.pop("when", torch.zeros(0))
        require(when.shape == (2,) and when.dtype == torch.int64, OWNER, f"{path} is damaged")
        return {name.removeprefix("model/"): tensor for name, tensor in found.items()}, int(when[0]), int(when[1])
