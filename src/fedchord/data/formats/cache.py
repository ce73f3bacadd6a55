"""Columns on disk: made once from a data set's many files, then mapped into memory and read as they are needed.

A cache is a folder `NAME-DIGEST` under FEDCHORD_CACHE, or else under `cache/` in the data root, with one raw file per
column and `meta.json`. The digest covers the names, sizes and times of the files it was made from and the options, so
changed files make another cache; `inputs.json` remembers them, so that a stale cache can be told (`caches`). A cache is
written beside its place and renamed, so it is whole or not there; a damaged one is made again. Mappings are private:
what is written to such a tensor never reaches the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray

from fedchord.check import FedchordError, Unwritten, fail, require
from fedchord.files import made_folder, placed
from fedchord.paths import expanded
from fedchord.safe import json_of
from fedchord.tensors import Tensors

try:
    import fcntl
except ImportError:  # Windows has no flock; there a left over folder is told by its age
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
CHUNK = 256
_LENGTH = 16
_NAME = re.compile(r"[\w-]+-[0-9a-f]{16}|\.[\w-]+-[0-9a-f]{16}\..+")
_PATIENCE = 86400.0  # without locks: after a day without a change nobody is making a cache any more
_HINT = "set FEDCHORD_CACHE to a folder with room that you can write"
_TYPES = {
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
Item = TypeVar("Item")


class Writer:
    """Appends rows to the columns of a new cache."""

    def __init__(self, owner: str, folder: Path) -> None:
        self._owner, self._folder = owner, folder
        self._files: dict[str, Any] = {}
        self.columns: dict[str, dict[str, Any]] = {}
        self.rows = 0

    def add(self, **columns: NDArray[Any]) -> None:
        """Some rows of every column; types and shapes of a row stay what they were in the first call."""
        count = len(next(iter(columns.values())))
        for name, values in columns.items():
            if name not in self.columns:
                self.columns[name] = {"dtype": str(values.dtype), "shape": list(values.shape[1:])}
                self._files[name] = (self._folder / f"{name}.bin").open("wb")
            kind = self.columns[name]
            same = kind["dtype"] == str(values.dtype) and kind["shape"] == list(values.shape[1:])
            require(same and len(values) == count, self._owner, f"column {name} changed its type, shape or length")
            self._files[name].write(np.ascontiguousarray(values).tobytes())
        require(set(columns) == set(self.columns), self._owner, "every call must add to the same columns")
        self.rows += count

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def cached(
    owner: str, root: Path, inputs: Sequence[Path], options: str, build: Callable[[Writer], dict[str, Any]]
) -> tuple[Tensors, dict[str, Any]]:
    """The columns and facts of a cache; `build` fills it from the inputs and returns the facts if it is not there."""
    folder = _home(root) / f"{owner}-{_digest(root, inputs, options)}"
    found = _open(folder)
    if found is not None:
        return found
    try:
        names = [str(_relative(root, path)) for path in inputs]
        _make(owner, folder, build, {"root": str(root.absolute()), "options": options, "inputs": names})
    except OSError as error:
        raise fail(owner, f"the cache {folder} cannot be written ({error.strerror or error}); {_HINT}") from None
    except Unwritten as error:
        raise fail(owner, f"{error}; {_HINT}") from None
    found = _open(folder)
    if found is None:
        raise fail(owner, f"the cache {folder} is damaged; delete it and try again")
    return found


def progress(owner: str, items: Iterable[Item], total: int) -> Iterator[Item]:
    """The items, with a bar on the terminal, if there is one, that tells how far the cache is."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console  # here, since most runs need no bar
    from rich.progress import track

    label = f"{owner}: preparing the files, once"
    yield from track(items, label, total=total, console=Console(stderr=True), transient=True)


def _home(root: Path) -> Path:
    chosen = os.environ.get("FEDCHORD_CACHE")
    return expanded(chosen) if chosen else root / "cache"


def _digest(root: Path, inputs: Sequence[Path], options: str) -> str:
    digest = hashlib.sha256(f"{FORMAT} {options}\n".encode())
    for path in inputs:
        facts = path.stat()
        digest.update(f"{_relative(root, path)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:_LENGTH]


def _relative(root: Path, path: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path


def _make(owner: str, folder: Path, build: Callable[[Writer], dict[str, Any]], made_from: dict[str, Any]) -> None:
    made_folder(folder.parent)
    with _locked(folder.parent):  # so that nobody takes the new folder for a left over one
        for other in folder.parent.glob(f".{folder.name}.*"):
            if _nobody(other):  # whoever made it was killed
                shutil.rmtree(other, ignore_errors=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        held = _lock(beside, wait=True)
    try:
        writer = Writer(owner, beside)
        try:
            facts = build(writer)
        finally:
            writer.close()
        require(writer.rows > 0, owner, "the files hold no rows")
        meta = {"rows": writer.rows, "columns": writer.columns, "facts": facts}
        (beside / "inputs.json").write_text(json.dumps(made_from))
        (beside / "meta.json").write_text(json.dumps(meta))
        if _open(folder) is None:  # else another process was first, and its cache is as good
            placed(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        if held is not None:
            os.close(held)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A folder that is locked by the system, as soon as nobody else has it; the lock goes with the process."""
    handle = _lock(folder, wait=True)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(folder: Path, wait: bool) -> int | None:
    """The open handle of a lock, None where there are no locks; without `wait` a BlockingIOError if it is taken."""
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    return handle


def _nobody(folder: Path) -> bool:
    """Whether nobody is making this cache any more."""
    try:
        handle = _lock(folder, wait=False)
        if handle is None:
            return time.time() - folder.stat().st_mtime > _PATIENCE
        os.close(handle)
        return True
    except OSError:  # somebody has it, or it is gone meanwhile
        return False


def _open(folder: Path) -> tuple[Tensors, dict[str, Any]] | None:
    """A whole cache, or None."""
    try:
        meta = json_of((folder / "meta.json").read_text())
        rows, columns, facts = meta["rows"], meta["columns"], meta["facts"]
        tensors: Tensors = {}
        for name, kind in columns.items():
            file, shape = folder / f"{name}.bin", (rows, *kind["shape"])
            size = int(np.prod(shape, dtype=np.int64))
            if file.stat().st_size != size * np.dtype(kind["dtype"]).itemsize:
                return None
            tensors[name] = torch.from_file(str(file), shared=False, size=size, dtype=_TYPES[kind["dtype"]]).reshape(
                shape
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RuntimeError):
        return None
    return tensors, facts


@final
@dataclass(frozen=True)
class Cache:
    """A cache on disk: in use, stale (its files are gone or were changed), damaged, left over (an interrupted making)
    or unknown (made by an older version, which did not note its files, or from a data root that is not there)."""

    folder: Path
    size: int
    state: str


USELESS = ("stale", "damaged", "left over")
"""The states in which nothing can use a cache any more."""


def caches(root: Path) -> list[Cache]:
    """All caches of a data root, sorted by name."""
    home = _home(root)
    found = sorted(folder for folder in home.iterdir() if _NAME.fullmatch(folder.name)) if home.is_dir() else []
    return [Cache(folder, _size(folder), _cache_state(root, folder)) for folder in found if folder.is_dir()]


def clean(root: Path) -> list[Cache]:
    """Delete the caches that nothing can use any more, and return them."""
    gone = [cache for cache in caches(root) if cache.state in USELESS]
    for cache in gone:
        shutil.rmtree(cache.folder)
    return gone


def _cache_state(root: Path, folder: Path) -> str:
    if folder.name.startswith("."):
        return "left over" if _nobody(folder) else "being made"
    if _open(folder) is None:
        return "damaged"
    try:
        made_from = json_of((folder / "inputs.json").read_text())
        roots = {root, Path(made_from["root"])}
        digests = {_found_digest(base, made_from["inputs"], made_from["options"]) for base in roots}
    except FileNotFoundError:
        return "unknown"
    except (OSError, ValueError, KeyError, TypeError):
        return "damaged"
    if folder.name[-_LENGTH:] in digests:
        return "in use"
    return "stale" if Path(made_from["root"]).is_dir() else "unknown"


def _found_digest(root: Path, names: list[str], options: str) -> str:
    """The digest of files that may be gone."""
    try:
        return _digest(root, [root / name for name in names], options)
    except OSError:
        return ""


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def fill_files(
    owner: str,
    writer: Writer,
    items: Sequence[tuple[Path, dict[str, int]]],
    read: Callable[[Path], NDArray[Any]],
    skip_damaged: bool,
) -> list[str]:
    """One row per file: x from `read`, the other columns given; returns the damaged files that were skipped.

    Without `skip_damaged` the first damaged file ends it.
    """
    skipped: list[str] = []
    chunk: list[tuple[NDArray[Any], dict[str, int]]] = []
    for path, values in progress(owner, items, len(items)):
        try:
            chunk.append((read(path), values))
        except FedchordError:
            if not skip_damaged:
                raise
            skipped.append(str(path))
        if len(chunk) == CHUNK:
            _flush(writer, chunk)
    _flush(writer, chunk)
    return skipped


def skipped_note(skipped: Sequence[str]) -> str:
    """What `origin` tells about skipped files."""
    first = f", the first is {skipped[0]}" if skipped else ""
    return f" Damaged files that were skipped: {len(skipped)}{first}." if skipped else ""


def _flush(writer: Writer, chunk: list[tuple[NDArray[Any], dict[str, int]]]) -> None:
    if chunk:
        given = {name: np.array([values[name] for _, values in chunk], np.int64) for name in chunk[0][1]}
        writer.add(x=np.stack([x for x, _ in chunk]), **given)
        chunk.clear()
