"""Files and folders written whole or not at all: beside their place first, then renamed.

A place that cannot be written (a full disk, a read-only folder, a file in the way) is told in one line, `Unwritten`,
and what was there before stays as it was.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from fedchord.check import Unwritten


@contextmanager
def written(path: Path, flush: bool = True, several: bool = False) -> Iterator[Path]:
    """A path beside `path` to write a file or a folder to; it takes the place of `path` when the body ends (`placed`).

    If the body fails, what it wrote is removed, with folders made for it, and `path` stays as it was. Leave `flush` out
    where somebody flushes it later (`flushed`), before it is named in a state. Where `several` processes may write one
    file at a time, each has a place of its own, and the last one stays.
    """
    with _told(path), _above(path) as new:
        if flush:
            _flush_names(new)
        beside = path.with_name(f".{path.name}.{os.getpid()}.partial" if several else f".{path.name}.partial")
        _restored(path)
        _remove(beside)  # of a run that was killed
        try:
            yield beside
            placed(beside, path, flush)
        except BaseException:
            with suppress(OSError):
                _remove(beside)
            raise


def placed(beside: Path, path: Path, flush: bool = True) -> None:
    """Give a file or a folder its name: the only place where state gets one.

    Its bytes are on the disk before it has the name, and the name when this returns, so that both outlast a power cut.
    A folder that had the name goes aside first, since one with something in it cannot be replaced in one step; if this
    process is killed between the two steps, the next one puts it back.
    """
    with _told(path):
        if flush:
            for part in [*beside.rglob("*"), beside]:
                _flush(part)
        aside = _restored(path)
        _remove(aside)
        if beside.is_dir() and path.exists():
            os.replace(path, aside)
        try:
            os.replace(beside, path)
        except BaseException:
            if aside.exists():
                os.replace(aside, path)
            raise
        if flush:
            _flush(path.parent)
        _remove(aside)


def _restored(path: Path) -> Path:
    """Where a folder goes aside; one that was left there by a killed process gets its name back."""
    aside = path.with_name(f".{path.name}.old")
    if aside.exists() and not path.exists():
        os.replace(aside, path)
    return aside


def flushed(paths: Iterable[Path]) -> None:
    """Bring files and their names to the disk, which were written without."""
    for path in (found := sorted(paths)):
        with _told(path):
            _flush(path)
    for folder in sorted({path.parent for path in found}):
        with _told(folder):
            _flush(folder)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system refuses, by the name of the place; writers rarely name it, and some not even the reason."""
    try:
        yield
    except OSError as error:
        raise Unwritten(f"{path} cannot be written ({error.strerror or error})") from None


@contextmanager
def _above(path: Path) -> Iterator[list[Path]]:
    """The folders above a path, made where they are missing (these are given); taken back if the body fails."""
    new = [part for part in path.parents if not part.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield new
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
    """A folder, made with those above it where it is missing; it is on the disk when this returns."""
    if path.is_dir():
        return path
    with _told(path), _above(path) as new:
        path.mkdir(exist_ok=True)
        _flush_names([path, *new])
    return path


def renamed(path: Path, other: Path) -> None:
    """Give a file another name, in one step that outlasts a power cut; what had that name is gone."""
    placed(path, other)


def write_text(path: Path, text: str, several: bool = False) -> None:
    """Write a text file whole or not at all."""
    with written(path, several=several) as beside:
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


def _flush_names(new: Iterable[Path]) -> None:
    """Bring the names of new folders to the disk."""
    for folder in new:
        _flush(folder.parent)


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
