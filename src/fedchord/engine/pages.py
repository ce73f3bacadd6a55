"""Rows that the processes of a machine share: one of them reads, all of them map the same file.

Under `ranks` any process may train or measure any client, so each needs all rows, but a machine needs them once. Its
first process makes the federation and writes the tensors of it to a file that all then map: pages come where they are
used, and are there once. Tensors that lie in a file already (the caches of large data sets) are mapped from there. The
file loses its name when all have it open, and its bytes go with the last of them.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

import torch
from torch import Tensor

from fedchord.check import Unwritten
from fedchord.data.federation import Federation
from fedchord.engine.group import OWNER, Group, attempted

SMALL = 1 << 12
"""Tensors of fewer bytes are told with the rest."""
ALIGNED = 64
"""Where a tensor may begin in the file: at multiples of so many bytes, as in torch's own memory."""
REST, ROWS = "rest", "rows"
_RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ \S+ *(.*)")


class Place(NamedTuple):
    """Where the numbers of a tensor lie; in the file of the rows if no other is named."""

    file: str
    start: int
    kind: torch.dtype
    shape: tuple[int, ...]


def read_once(group: Group, make: Callable[[], Federation]) -> Federation:
    """What `make` makes, made by one process of every machine for all that run there. All of them call this."""
    if group.size == 1:
        return make()
    machine = os.environ.get("GROUP_RANK", f"that of rank {group.rank}")  # torchrun's number of the machine
    machines = group.gather(machine)
    first, several = machines.index(machine), machines.count(machine) > 1
    folder: str | None = None
    made: Federation | None = None
    problem: Exception | None = None
    try:
        if first == group.rank and several:
            folder, problem = attempted(lambda: _written(make()))
        elif first == group.rank:
            made, problem = attempted(make)
        group.agree(problem)
        place = group.gather(folder)[first]
        if place is not None:
            made, problem = attempted(lambda: _mapped(Path(place)))
        group.agree(problem)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    assert made is not None
    return made


def _written(federation: Federation) -> str:
    """A new folder, which only this user may enter, with a federation in it: its rows, and the rest."""
    folder = None
    try:
        folder = tempfile.mkdtemp(prefix="fedchord-rows-")
        with (Path(folder) / ROWS).open("wb") as rows, (Path(folder) / REST).open("wb") as rest:
            _Writer(rest, rows).dump(federation)
    except BaseException as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        told = f"the rows cannot be written to {folder or 'a temporary folder'} ({error.strerror or error})"
        raise Unwritten(
            f"{OWNER}: {told}, where the processes of ranks share them; set TMPDIR to a folder with room"
        ) from None
    return folder


def _mapped(folder: Path) -> Federation:
    """The federation in a folder that a process of this job has written."""
    with (folder / REST).open("rb") as rest:
        found: Federation = _Reader(rest, str(folder / ROWS)).load()
    return found


class _Writer(pickle.Pickler):
    """Writes an object with its tensors apart."""

    def __init__(self, rest: IO[bytes], rows: IO[bytes]) -> None:
        super().__init__(rest, pickle.HIGHEST_PROTOCOL)
        self._rows, self._ranges = rows, _ranges()
        self._known: dict[int, tuple[Tensor, Place]] = {}  # with the tensors, so that no other gets the same id

    def persistent_id(self, part: object) -> Place | None:
        if not isinstance(part, Tensor) or part.numel() * part.element_size() < SMALL:
            return None
        if id(part) not in self._known:
            self._known[id(part)] = part, self._in_a_file(part) or self._put(part)
        return self._known[id(part)][1]

    def _put(self, tensor: Tensor) -> Place:
        self._rows.write(bytes(-self._rows.tell() % ALIGNED))
        start = self._rows.tell()
        self._rows.write(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)
        return Place("", start, tensor.dtype, tuple(tensor.shape))

    def _in_a_file(self, tensor: Tensor) -> Place | None:
        """Where a tensor is mapped from, if it is and nothing was written to it."""
        first, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        for low, high, offset, file in self._ranges if tensor.is_contiguous() else ():
            start = offset + first - low
            if low <= first and first + size <= high and not start % ALIGNED:
                return Place(file, start, tensor.dtype, tuple(tensor.shape))
        return None


class _Reader(pickle.Unpickler):
    """Reads an object, its tensors mapped."""

    def __init__(self, rest: IO[bytes], rows: str) -> None:
        super().__init__(rest)
        self._own, self._files = rows, cache(_bytes)

    def persistent_load(self, place: Place) -> Tensor:
        file, start, kind, shape = place
        size = kind.itemsize * torch.Size(shape).numel()
        return self._files(file or self._own)[start : start + size].view(kind).reshape(shape)


def _bytes(file: str) -> Tensor:
    """A file in memory; what is written to it there never reaches the file."""
    return torch.from_file(file, shared=False, size=Path(file).stat().st_size, dtype=torch.uint8)


def _ranges() -> list[tuple[int, int, int, str]]:
    """Where files are mapped that still are what this process sees: from, to, offset, file; Linux tells that."""
    found: list[tuple[int, int, int, str]] = []
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        if (range_ := _RANGE.fullmatch(line)) is not None:
            low, high, how, offset, file = range_.groups()
            known = how.startswith("r") and file.startswith("/") and not file.endswith(" (deleted)")
            found += [(int(low, 16), int(high, 16), int(offset, 16), file)] if known else []
        elif line.startswith("Anonymous:") and line.split()[1] != "0" and known:
            found.pop()  # some of it was written to
    return found
