"""Files and folders written whole or not at all: beside their place first, then renamed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written(path: Path, flush: bool = True) -> Iterator[Path]:
    """A path beside `path` to write a file or a folder to; it takes the place of `path` when the body ends.

    If the body fails, what it wrote is removed and `path` stays as it was. `flush` brings file and name to the disk
    before going on, so that they outlast a power cut; leave it out (some 10 ms) where a digest tells of lost files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial")
    _remove(beside)  # of a run that was killed
    try:
        yield beside
        if flush:
            for part in [*beside.rglob("*"), beside]:
                _flush(part)
        if beside.is_dir():
            _remove(path)  # a folder with something in it cannot be replaced in one step
        os.replace(beside, path)
        if flush:
            _flush(path.parent)
    except BaseException:
        _remove(beside)
        raise


def blocked(path: Path) -> str:
    """Why nothing can be written at a path, "" if nothing is known to be in the way; it writes nothing itself."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if place != path and not place.is_dir():
        return f"{place} is a file"
    return "" if os.access(place, os.W_OK) else os.strerror(errno.EACCES)


def renamed(path: Path, other: Path) -> None:
    """Give a file another name, in one step that outlasts a power cut; what had that name is gone."""
    os.replace(path, other)
    _flush(other.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with written(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
