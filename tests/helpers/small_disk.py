"""A real small file system, for tests of disks that are full or read-only: a tmpfs that only a forked child sees."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = 4096
"""What a file on a tmpfs takes at least, and the least that can be left free."""
NEWNS, NEWUSER = 0x00020000, 0x10000000
RDONLY, REMOUNT, REC, PRIVATE = 1, 32, 16384, 1 << 18
UNAVAILABLE = 77

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def _mount(kind: bytes, place: Path, flags: int, options: bytes = b"") -> None:
    _call("mount", kind, os.fsencode(place), kind, ctypes.c_ulong(flags), options)


def _alone() -> None:
    """Mounts of this process are its own from here on."""
    user = os.getuid()
    _call("unshare", NEWNS | (0 if user == 0 else NEWUSER))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    _mount(b"none", Path("/"), REC | PRIVATE)


def read_only(disk: Path) -> None:
    """From now on nothing can be written there."""
    _mount(b"tmpfs", disk, REMOUNT | RDONLY)


def leave(disk: Path, pages: int) -> None:
    """Fill the disk, all but so many pages; what was filled before is freed first."""
    filler = disk / ".filler"
    filler.unlink(missing_ok=True)
    gc.collect()  # a removed file takes its pages as long as something here still maps it, and would free them later
    space = os.statvfs(disk)
    size = (space.f_bavail - pages) * space.f_bsize
    if size > 0:
        with filler.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, size)


def free(disk: Path) -> None:
    """Free what `leave` filled."""
    (disk / ".filler").unlink()


def on_small_disk(disk: Path, task: Callable[[], None], megabytes: int = 16) -> None:
    """Do a task in a child, in the folder `disk`, which is a file system of its own; skips where none can be had."""
    disk.mkdir()
    told = disk.with_name("told")
    child = os.fork()
    if child == 0:
        code = UNAVAILABLE
        try:
            _alone()
            _mount(b"tmpfs", disk, 0, f"size={megabytes}m".encode())
            os.chdir(disk)
            code = 1
            gc.freeze()  # what was there before is not looked through again by `leave`
            task()
            code = 0
        except BaseException:
            told.write_text(traceback.format_exc())
        finally:
            sys.stdout.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == UNAVAILABLE:
        pytest.skip(f"no file system can be mounted here ({told.read_text().splitlines()[-1]})")
    assert code == 0, told.read_text() if told.exists() else f"the child ended with {code}"
