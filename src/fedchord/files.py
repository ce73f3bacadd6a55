"""Files and folders written whole or not at all: beside their place first, then renamed.

A place that cannot be written (a full disk, a read-only folder, a file in the way) is told in one line, `Unwritten`,
and what was there before stays as it was.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from fedchord.check import Unwritten


@contextmanager
def written(path: Path, flush: bool = True) -> Iterator[Path]:
    """A path beside `path` to write a file or a folder to; it takes the place of `path` when the body ends.

    If the body fails, what it wrote is removed, with folders made for it, and `path` stays as it was. `flush` brings
    file and name to the disk before going on, so that they outlast a power cut; leave it out (some 10 ms) where a
    digest tells of lost files.
    """
    with _told(path), _above(path):
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
            with suppress(OSError):
                _remove(beside)
            raise


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system refuses, by the name of the place; writers rarely name it, and some not even the reason."""
    try:
        yield
    except OSError as error:
        raise Unwritten(f"{path} cannot be written ({error.strerror or error})") from None


@contextmanager
def _above(path: Path) -> Iterator[None]:
    """The folders above a path, made where they are missing; taken back if the body fails."""
    new = [part for part in path.parents if not part.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for part in new:
            with suppress(OSError):  # it holds something else, or was never made
                part.rmdir()
        raise


def blocked(path: Path) -> str:
    """Why nothing can be written at a path, "" if nothing is known to be in the way; it writes nothing itself."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if place != path and not place.is_dir():
        return f"{place} is a file"
    if os.access(place, os.W_OK):
        return ""
    return os.strerror(errno.EROFS if os.statvfs(place).f_flag & os.ST_RDONLY else errno.EACCES)


def made_folder(path: Path) -> Path:
    """A folder, made with those above it where it is missing."""
    with _told(path), _above(path):
        path.mkdir(exist_ok=True)
    return path


def renamed(path: Path, other: Path) -> None:
    """Give a file another name, in one step that outlasts a power cut; what had that name is gone."""
    with _told(other):
        os.replace(path, other)
        _flush(other.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with written(path) as beside:
        beside.write_text(text, encoding="utf-8")


def add_text(path: Path, text: str) -> None:
    """Add to a text file, all of it or nothing."""
    with _told(path), path.open("ab", buffering=0) as stream:
        before, content = stream.tell(), memoryview(text.encode())
        try:
            while content:
                content = content[stream.write(content) :]
        except OSError:
            stream.truncate(before)
            raise


def write_stream(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file whole or not at all by a function that takes a stream."""
    with written(path) as beside, beside.open("wb") as stream:
        write(stream)


def write_figure(figure: Any, path: Path, **options: Any) -> None:
    """Write a figure of matplotlib whole or not at all; the format is the suffix of the file."""
    drawn = io.BytesIO()  # written by us: on a full disk matplotlib fails in ways of its own
    figure.savefig(drawn, format=path.suffix[1:].lower(), **options)
    write_stream(path, lambda stream: stream.write(drawn.getbuffer()))


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
