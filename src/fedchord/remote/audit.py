"""A node's own record of every message: what came and what left, by name, size and hash. No content is written."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedchord.check import fail
from fedchord.remote.marks import digest, size
from fedchord.remote.parcel import Parcel

IN, OUT, REFUSED = "in", "out", "refused"


class Audit:
    """Adds a line of JSON per message to a file that only its owner can read; without a file it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def message(self, way: str, kind: str, parcel: Parcel) -> None:
        """Write down a message that came or that leaves."""
        if self.path is None:
            return
        names = {name: [str(t.dtype).removeprefix("torch."), *t.shape] for name, t in sorted(parcel.tensors.items())}
        mark = digest(parcel.tensors, parcel.facts)
        told = {"names": names, "facts": sorted(parcel.facts), "bytes": size(parcel), "hash": mark}
        self._add({"round": parcel.facts.get("round"), "way": way, "kind": kind} | told)

    def refusal(self, kind: str, parcel: Parcel, why: str) -> None:
        """Write down that a message was refused, and why."""
        self._add({"round": parcel.facts.get("round"), "way": REFUSED, "kind": kind, "why": why})

    def _add(self, line: dict[str, Any]) -> None:
        if self.path is None:
            return
        when = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        try:
            _append(self.path, (json.dumps(when | line) + "\n").encode())
        except OSError as error:  # what cannot be written down does not happen
            raise fail("audit", f"{self.path} cannot be written ({error.strerror})") from None


def _append(path: Path, line: bytes) -> None:
    """Add a line, whole or not at all."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        before = os.fstat(handle).st_size
        try:
            if os.write(handle, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(handle, before)
            raise
    finally:
        os.close(handle)
