"""Who is at work in a run folder: a lock of the operating system, which goes with the process that holds it.

A forked worker shares the open file, and with it the lock. So it closes its copy at once: else a worker that outlives
its parent would keep the folder locked.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fedchord.check import FedchordError, fail

try:
    import fcntl
except ImportError:  # Windows has no flock; there folders are not locked
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_held: set[int] = set()


def _forget() -> None:
    """In a forked process: close the copies of the locks. The parent's stay."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class FolderLock:
    """The lock of one folder; it is taken for the length of a run."""

    def __init__(self, folder: Path) -> None:
        self.path, self._handle = folder / LOCK, -1

    def take(self) -> None:
        """Take it, or refuse: somebody else has it."""
        while self._handle < 0 and fcntl is not None:
            handle = self._open(os.O_RDWR | os.O_CREAT)
            if not _locked(handle):
                os.close(handle)
                raise self._busy()
            if self._is_there(handle):
                self._handle = handle
                _held.add(handle)
            else:  # whoever had it took the file away in between
                os.close(handle)

    def check(self) -> None:
        """Refuse if somebody else has it; nothing is written."""
        if fcntl is None or self._handle >= 0 or not self.path.is_file():
            return
        handle = self._open(os.O_RDONLY)
        try:
            if not _locked(handle):
                raise self._busy()
        finally:
            os.close(handle)

    def give_back(self) -> None:
        """Take the file away and let the folder go; the file goes first, while nobody else can have it."""
        if self._handle < 0:
            return
        with suppress(OSError):  # a folder that became read-only, or is gone; the lock does not need the file
            self.path.unlink()
        _held.discard(self._handle)
        os.close(self._handle)
        self._handle = -1

    def _open(self, flags: int) -> int:
        try:
            return os.open(self.path, flags, 0o644)
        except OSError as error:
            raise fail("out", f"{self.path.parent} cannot be written ({error.strerror})") from None

    def _is_there(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self.path.stat())
        except FileNotFoundError:
            return False

    def _busy(self) -> FedchordError:
        return fail(str(self.path.parent), "another process is at work there")


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
