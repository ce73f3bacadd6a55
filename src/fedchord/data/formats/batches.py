"""The pickled batches of CIFAR, read without running anything that is in them.

A pickle can name any function and have it called. This reader knows the few names that arrays of numbers need and
refuses all others, so a file from an unknown place cannot do more than fail to load.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedchord.check import FedchordError, fail, require

_ORDERS = {"<": "<", ">": ">", "|": "=", "=": "="}


class _Type:
    """What stands for a dtype in a pickle: NumPy's own takes a state by which numbers become pointers."""

    __slots__ = ("code", "order")

    def __init__(self, code: bytes | str, *rest: object) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else str(code)
        if not re.fullmatch(r"[<>|=]?[biuf][1248]", text):
            raise pickle.UnpicklingError(f"an array of {text!r}")
        self.code, self.order = text.lstrip("<>|="), _ORDERS.get(text[0], "=")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1].decode("latin1") if isinstance(state[1], bytes) else str(state[1])
        self.order = _ORDERS[order]


class _Array:
    """What stands for an array in a pickle; the array is made of its bytes, as far as they are there."""

    __slots__ = ("found",)

    def __init__(self, *rest: object) -> None:
        self.found: NDArray[Any] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, turned, data = state
        self.fill(data, kind, shape, "F" if turned else "C")

    def fill(self, data: bytes | str, kind: _Type, shape: tuple[int, ...], order: Any) -> _Array:
        if not isinstance(kind, _Type):
            raise pickle.UnpicklingError("an array of an unknown type")
        held = data.encode("latin1") if isinstance(data, str) else data
        flat = np.frombuffer(held, dtype=np.dtype(kind.order + kind.code))
        self.found = flat.reshape(shape, order="F" if order == "F" else "C")
        return self


def _buffer(data: bytes, kind: _Type, shape: tuple[int, ...], order: str) -> _Array:
    return _Array().fill(data, kind, shape, order)


def _direct(*given: object) -> _Array:
    raise pickle.UnpicklingError("an array over a buffer of its own")


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    return b""


class _Made:
    """A function that a pickle may call and cannot change."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *given: Any) -> Any:
        return self._make(*given)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("a change of code")


_ALLOWED = {
    "numpy.core.multiarray._reconstruct": _Made(_Array),
    "numpy._core.multiarray._reconstruct": _Made(_Array),
    "numpy.core.numeric._frombuffer": _Made(_buffer),
    "numpy._core.numeric._frombuffer": _Made(_buffer),
    "numpy.ndarray": _Made(_direct),  # named by every array, called by none
    "numpy.dtype": _Made(_Type),
    "_codecs.encode": _Made(_encode),
    "__builtin__.bytes": _Made(_empty_bytes),
    "builtins.bytes": _Made(_empty_bytes),
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


def _check_places(data: bytes) -> None:
    """Refuse a pickle that numbers what it remembers beyond its own length: memory is taken for all numbers below."""
    for operation, place, _ in pickletools.genops(data):
        if "PUT" in operation.name and isinstance(place, int) and place > len(data):
            raise pickle.UnpicklingError(f"place {place} in a file of {len(data)} bytes")


def read_batch(owner: str, path: Path) -> dict[str, Any]:
    """The dict in a batch file, its keys as text whether they were stored as bytes or not."""
    try:
        data = path.read_bytes()
        _check_places(data)
        batch = _Reader(owner, path, io.BytesIO(data)).load()
    except FedchordError:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise fail(owner, f"{path} is damaged: expected a pickled batch, got {reason}") from None
    require(isinstance(batch, dict), owner, f"{path} holds a {type(batch).__name__}, expected a dict")
    plain = {key: value.found if isinstance(value, _Array) else value for key, value in batch.items()}
    odd = [key for key in plain if not isinstance(key, bytes | str)]
    require(not odd, owner, f"{path} is damaged: its entries must have names")
    return {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in plain.items()}


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
