"""The pickled batches of CIFAR, read without running anything that is in them.

A pickle can name any function and have it called. This reader knows the few names that arrays of numbers need and
refuses all others, so a file from an unknown place cannot do more than fail to load.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedchord.check import FedchordError, fail, require

# NumPy's own rebuilding function: it moved between modules, so it is taken from an array instead of imported.
_rebuild: Any = np.empty(0).__reduce__()[0]
# What stands for numpy.ndarray in a pickle. The class itself could be called with a buffer of false pointers.
_ARRAY = object()


def _array(kind: object, shape: tuple[int, ...], code: bytes | str) -> Any:
    if kind is not _ARRAY:
        raise pickle.UnpicklingError("an array of an unknown kind")
    return _rebuild(np.ndarray, (0,), b"b")


def _dtype(code: bytes | str, *rest: object) -> np.dtype[Any]:
    text = code.decode("latin1") if isinstance(code, bytes) else str(code)
    if not re.fullmatch(r"[<>|=]?[biuf][1248]", text):
        raise pickle.UnpicklingError(f"an array of {text!r}")
    return np.dtype(text)


def _buffer(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> Any:
    if not isinstance(dtype, np.dtype):
        raise pickle.UnpicklingError("an array of an unknown type")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if order == "F" else "C")


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    return b""


_ALLOWED: dict[str, Any] = {
    "numpy.core.multiarray._reconstruct": _array,
    "numpy._core.multiarray._reconstruct": _array,
    "numpy.core.numeric._frombuffer": _buffer,
    "numpy._core.numeric._frombuffer": _buffer,
    "numpy.ndarray": _ARRAY,
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,
    "__builtin__.bytes": _empty_bytes,
    "builtins.bytes": _empty_bytes,
}


class _Reader(pickle.Unpickler):
    """An unpickler that knows numbers, texts, lists, dicts and plain arrays."""

    def __init__(self, owner: str, path: Path, stream: IO[bytes]) -> None:
        super().__init__(stream, encoding="bytes")
        self._owner, self._path = owner, path

    def find_class(self, module: str, name: str) -> Any:
        known = _ALLOWED.get(f"{module}.{name}")
        if known is None:
            raise fail(
                self._owner, f"{self._path} is refused: it asks for {module}.{name}, which image data never need"
            )
        return known


def read_batch(owner: str, path: Path) -> dict[str, Any]:
    """The dict in a batch file, its keys as text whether they were stored as bytes or not."""
    try:
        with path.open("rb") as stream:
            batch = _Reader(owner, path, stream).load()
    except FedchordError:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise fail(owner, f"{path} is damaged: expected a pickled batch, got {reason}") from None
    require(isinstance(batch, dict), owner, f"{path} holds a {type(batch).__name__}, expected a dict")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in batch.items()}


def read_images(owner: str, path: Path, label: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The images (n, 3, 32, 32) and the labels of a batch file."""
    batch = read_batch(owner, path)
    for key in ("data", label):
        require(key in batch, owner, f"{path} has no entry {key!r} (entries: {', '.join(sorted(batch))})")
    data = batch["data"]
    fits = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] == 3072
    got = f"{data.dtype} of {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
    require(fits, owner, f"{path}: data must be bytes of (n, 3072), got {got}")
    whole = isinstance(batch[label], list) and all(isinstance(value, int) for value in batch[label])
    require(whole, owner, f"{path}: {label} must be a list of whole numbers")
    try:
        labels = np.array(batch[label], dtype=np.int64)
    except OverflowError:
        raise fail(owner, f"{path}: {label} must be whole numbers of at most 64 bits") from None
    require(len(labels) == len(data), owner, f"{path} holds {len(labels)} labels for {len(data)} images")
    return data.reshape(-1, 3, 32, 32), labels
