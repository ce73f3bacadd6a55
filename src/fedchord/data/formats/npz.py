"""Arrays in .npz files, read within limits: memory is asked for only after a header was found to keep its promise.

Whatever is wrong with a file is a `ValueError` of one line, which a reader turns into its own error.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedchord.safe import check_growth


def array_names(path: Path) -> list[str]:
    """The names of the arrays in an .npz file."""
    with _archive(path) as held:
        return [name.removesuffix(".npy") for name in held.namelist()]


def read_arrays(path: Path, wanted: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Those of the wanted arrays that an .npz file has; arrays of numbers or of texts, never Python objects."""
    with _archive(path) as held:
        return {name: _array(held, f"{name}.npy") for name in wanted if f"{name}.npy" in held.namelist()}


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as held:
            infos = held.infolist()
            size = os.path.getsize(path)
            if sum(info.compress_size for info in infos) > size:
                raise ValueError("its parts overlap")
            check_growth(size, sum(info.file_size for info in infos))
            yield held
    except ValueError:
        raise
    except Exception as error:  # a damaged archive raises almost anything
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


def array_of(content: bytes) -> NDArray[Any]:
    """The array that the bytes of an .npy file hold."""
    stream = io.BytesIO(content)
    try:
        _check_promise("", stream, len(content))
        stream.seek(0)
        found: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
        return found
    except ValueError:
        raise
    except Exception as error:  # a damaged header raises almost anything
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


def _array(held: zipfile.ZipFile, name: str) -> NDArray[Any]:
    info = held.getinfo(name)
    with held.open(info) as stream:
        _check_promise(f"{name.removesuffix('.npy')} ", stream, info.file_size)
    with held.open(info) as stream:
        found: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
        stream.read(1)  # the end of the part, where its checksum is compared
        return found


def _check_promise(name: str, stream: IO[bytes], size: int) -> None:
    """Refuse an array whose header is not true of the bytes that follow it."""
    shape, kind = _header(stream)
    if kind.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    if kind.itemsize == 0:
        raise ValueError("it holds empty texts")
    promised, there = math.prod(shape) * kind.itemsize, size - stream.tell()
    if min(shape, default=0) < 0 or promised != there:
        raise ValueError(f"array {name}has {there} bytes, its header promises {promised}")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"an array is of format {version}, which is not known")
    shape, _, kind = read(stream)
    return shape, kind
