"""Your own data: arrays, torch data sets, .npz and .csv files, each read into a `DataSet` for `federate`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from fedchord.check import fail, require, unknown
from fedchord.data.federation import DataSet
from fedchord.data.sources.medmnist import read_medmnist
from fedchord.data.validate import check_data

Array = Tensor | NDArray[Any] | Sequence[Any]
Pair = tuple[Array, Array]
NOBODY = ("", "nan", "none", "<na>", "nat")
"""What a client key that is missing looks like as text."""


def from_arrays(
    x: Array | None = None,
    y: Array | None = None,
    clients: Sequence[Any] | NDArray[Any] | Tensor | Mapping[str, Pair] | None = None,
    *,
    classes: int | None = None,
    holdout: Pair | None = None,
    name: str = "arrays",
    origin: str = "",
) -> DataSet:
    """A data set from NumPy or torch arrays: features x (one row per example) and whole-number labels y.

    `clients` is the client key of each row, if the data have natural clients; or, with x and y left out, the clients'
    own data as a list of (x, y) or as a dict from client names to (x, y). The number of classes is the largest label
    plus one unless given. Bytes stay bytes (and are batched as numbers in [0, 1]); other floats become float32.
    """
    keys: Any = clients
    if x is None and y is None and clients is not None:
        x, y, keys = _join(name, clients)
    if x is None or y is None:
        raise fail(name, "needs x and y, or a list of (x, y) pairs as clients")
    features, labels = _features(name, x), _labels(name, y)
    groups, names = (None, ()) if keys is None else _encode(_keys(name, keys))
    held = None if holdout is None else {"x": _features(name, holdout[0]), "y": _labels(name, holdout[1])}
    count = classes if classes is not None else int(labels.max()) + 1 if labels.numel() else 1
    dataset = DataSet(name, {"x": features, "y": labels}, count, groups, names, held, origin)
    check_data(dataset)
    return dataset


def from_torch(
    dataset: Any, clients: Sequence[Any] | None = None, *, classes: int | None = None, name: str = "torch"
) -> DataSet:
    """A data set from a map-style `torch.utils.data.Dataset` whose items are (x, y), read once into memory."""
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return from_arrays(*dataset.tensors, clients=clients, classes=classes, name=name)
    require(hasattr(dataset, "__len__"), name, "the data set has no length; only map-style data sets can be read")
    items = [_item(name, row, dataset[row]) for row in range(len(dataset))]
    require(bool(items), name, "data have no rows")
    for row, (features, label) in enumerate(items):
        shapes = (features.shape, label.shape), (items[0][0].shape, items[0][1].shape)
        for column, got, expected in zip("xy", *shapes, strict=True):
            require(got == expected, name, f"{column} has shape {tuple(got)} at row {row}, {tuple(expected)} at row 0")
    x, y = (torch.stack(part) for part in zip(*items, strict=True))
    return from_arrays(x, y, clients, classes=classes, name=name)


def from_npz(path: str | Path, *, classes: int | None = None, name: str | None = None) -> DataSet:
    """A data set from an .npz file with the arrays x, y and, where there are natural clients, client.

    A file in MedMNIST's layout (train_images, train_labels, test_images, test_labels) is read as such.
    """
    file = _existing(path)
    owner = name or file.stem
    try:
        # opened here, because NumPy leaves a damaged file open
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in ("x", "y", "client") if key in stored}
            found = list(stored)
    except Exception as error:  # a damaged archive raises almost anything, and so does an absurd shape
        raise fail(file.name, f"is not a readable .npz file of plain arrays ({_reason(error)})") from None
    if "train_images" in found and not arrays:
        return read_medmnist(file, name)
    for needed in ("x", "y"):
        require(needed in arrays, file.name, f"array {needed} is missing (arrays: {', '.join(found)})")
    return from_arrays(**_renamed(arrays), classes=classes, name=owner, origin=f"Read from {file.name}.")


def from_csv(
    path: str | Path,
    label: str,
    client: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    name: str | None = None,
) -> DataSet:
    """A data set from a .csv file with a header line: a label column, maybe a client column, all others features.

    Labels may be words: class c is the c-th of them in sorted order (by value, if all are whole numbers), or the c-th
    of `classes` if that is given, which keeps several files consistent. The order is told in `origin`.
    """
    file = _existing(path)
    with file.open(newline="", encoding="utf-8-sig") as stream:
        lines = _lines(file.name, stream)
        _, header = next(lines, (0, []))
        places = _places(file.name, header, label, client)
        body = list(lines)
    require(bool(body), file.name, "data have no rows")
    features = [i for i in range(len(header)) if i not in places.values()]
    require(bool(features), file.name, "has no feature column")
    x = np.empty((len(body), len(features)), dtype=np.float32)
    for row, (line, cells) in enumerate(body):
        x[row] = [_cell(file.name, line, header[i], cells[i]) for i in features]
    labels = [(line, cells[places[label]].strip()) for line, cells in body]
    known = [str(c) for c in classes] if classes is not None else _sorted(text for _, text in labels)
    keys = None if client is None else [cells[places[client]].strip() for _, cells in body]
    y = _ranks(file.name, label, labels, known)
    origin = f"Read from {file.name}; classes in order: {', '.join(known[:20])}{' ...' if len(known) > 20 else ''}."
    return from_arrays(x, y, keys, classes=len(known), name=name or file.stem, origin=origin)


def _features(name: str, x: Array) -> Tensor:
    values = _tensor(name, "x", x)
    if values.dtype == torch.bool or (values.is_floating_point() and values.dtype != torch.float32):
        return values.to(torch.float32)
    return values.to(torch.int64) if values.dtype == torch.int16 else values  # int16 means sound


def _labels(name: str, y: Array) -> Tensor:
    values = _tensor(name, "y", y)
    whole = not values.is_floating_point() and not values.is_complex()
    return values.to(torch.int64) if whole else values


def _tensor(name: str, column: str, values: Array) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    try:
        array = np.asarray(values)
    except ValueError:
        raise fail(name, f"{column} must be an array with rows of equal shape") from None
    require(array.ndim > 0, name, f"{column} must be an array, got {values!r}")
    require(array.dtype.kind in "biuf", name, f"{column} must hold numbers, got an array of {array.dtype}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _join(name: str, clients: Any) -> tuple[Tensor, Tensor, list[str]]:
    """One x and y, and a client key per row, from the clients' own (x, y)."""
    pairs = clients if isinstance(clients, Mapping) else {str(i): pair for i, pair in enumerate(clients)}
    require(bool(pairs), name, "data have no clients")
    parts: list[tuple[Tensor, Tensor]] = []
    for key, pair in pairs.items():
        require(isinstance(pair, Sequence) and len(pair) == 2, name, f"client {key} must be a pair (x, y)")
        x, y = _features(name, pair[0]), _labels(name, pair[1])
        require(len(x) == len(y), name, f"client {key} has {len(x)} rows of x and {len(y)} of y")
        first = parts[0][0] if parts else x
        alike = x.shape[1:] == first.shape[1:] and x.dtype == first.dtype
        require(alike, name, f"client {key} has rows of another shape or type than the first client")
        parts.append((x, y))
    keys = [str(key) for key, (_, y) in zip(pairs, parts, strict=True) for _ in range(len(y))]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]), keys


def _keys(name: str, keys: Any) -> list[str]:
    values = keys.tolist() if isinstance(keys, Tensor | np.ndarray) else list(keys)
    found = [str(value) for value in values]
    for row, key in enumerate(found):
        require(key.strip().lower() not in NOBODY, name, f"client is missing at row {row}, got {key!r}")
    return found


def _encode(keys: list[str]) -> tuple[Tensor, tuple[str, ...]]:
    """Numbers 0, 1, ... for keys in sorted order, and the keys."""
    names = _sorted(keys)
    number = {key: i for i, key in enumerate(names)}
    return torch.tensor([number[key] for key in keys], dtype=torch.int64), tuple(names)


def _sorted(words: Any) -> list[str]:
    """Different words in order: by value if all are whole numbers, else by spelling."""
    found = set(words)
    numeric = all(word.lstrip("-").isdecimal() for word in found)
    return sorted(found, key=lambda word: (int(word), word)) if numeric else sorted(found)


def _item(name: str, row: int, item: Any) -> tuple[Tensor, Tensor]:
    require(isinstance(item, tuple | list) and len(item) == 2, name, f"row {row} must be a pair (x, y)")
    for column, value in zip("xy", item, strict=True):
        fits = isinstance(value, Tensor | np.ndarray | np.generic | int | float)
        require(fits, name, f"row {row}: {column} must be a tensor, an array or a number, got {type(value).__name__}")
    return torch.as_tensor(item[0]), torch.as_tensor(item[1])


def _renamed(arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    return {"clients" if key == "client" else key: array for key, array in arrays.items()}


def _existing(path: str | Path) -> Path:
    file = Path(path)
    require(file.is_file(), str(path), "no such file")
    return file


def _reason(error: Exception) -> str:
    if "allow_pickle" in str(error):  # NumPy's advice would run whatever a file holds
        return "it is none, or it holds Python objects, which are never loaded"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _lines(name: str, stream: Any) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not blank, with their numbers; all as long as the first."""
    reader, width = csv.reader(stream), 0
    try:
        for cells in reader:
            if cells:
                width = width or len(cells)
                if len(cells) != width:
                    raise fail(name, f"line {reader.line_num} has {len(cells)} cells, the header has {width}")
                yield reader.line_num, cells
    except (csv.Error, UnicodeDecodeError) as error:
        raise fail(name, f"is not a readable .csv file after line {reader.line_num} ({_reason(error)})") from None


def _places(name: str, header: list[str], label: str, client: str | None) -> dict[str, int]:
    """Where the label and the client column stand."""
    header[:] = [column.strip() for column in header]
    require(bool(header), name, "is empty; a header line was expected")
    for column in header:
        require(header.count(column) == 1, name, f"column {column!r} occurs twice in the header")
    wanted = [column for column in (label, client) if column is not None]
    for column in wanted:
        if column not in header:
            raise unknown(f"column of {name}", column, header)
    require(label != client, name, f"column {label!r} cannot be both label and client")
    return {column: header.index(column) for column in wanted}


def _cell(name: str, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise fail(name, f"line {line}, column {column!r} must be a finite number, got {text!r}")
    return value


def _ranks(name: str, label: str, labels: list[tuple[int, str]], known: list[str]) -> Tensor:
    number = {word: i for i, word in enumerate(known)}
    for line, text in labels:
        require(bool(text), name, f"line {line}, column {label!r} is empty")
        if text not in number:
            raise unknown(f"class in line {line} of {name}", text, known)
    return torch.tensor([number[text] for _, text in labels], dtype=torch.int64)
