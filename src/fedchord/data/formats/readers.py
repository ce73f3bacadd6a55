"""Your own data: arrays, torch data sets, .npz and .csv files, each read into a `DataSet` for `federate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from fedchord.check import fail, one_of, require
from fedchord.data import labels as classed
from fedchord.data.features import Feature, as_column
from fedchord.data.federation import DataSet
from fedchord.data.formats.csv_file import read_csv
from fedchord.data.formats.npz import array_names, read_arrays
from fedchord.data.sources.medmnist import read_medmnist
from fedchord.data.table import SCALES, from_table
from fedchord.data.validate import check_data

Array = Tensor | NDArray[Any] | Sequence[Any]
Pair = tuple[Array, Array]


def from_arrays(
    x: Array | Mapping[str, Pair] | None = None,
    y: Array | None = None,
    clients: Sequence[Any] | NDArray[Any] | Tensor | Mapping[str, Pair] | None = None,
    *,
    classes: int | None = None,
    regression: bool | None = None,
    scale: str = "none",
    holdout: Pair | None = None,
    name: str = "arrays",
    origin: str = "",
) -> DataSet:
    """A data set from NumPy or torch arrays: features x (one row per example) and labels y.

    `clients` is the client key of each row, if the data have natural clients; or, with x and y left out, the clients'
    own data as a list of (x, y) or as a dict from client names to (x, y); such a dict may also come first. Labels are
    whole numbers or words; a column (n, 1) is n labels. Unless the number of `classes` is given, class c is the c-th of
    the labels in order, so that codes such as 4010 and 25000 are two classes. Floats that are not whole are numbers to
    predict (regression); `regression` says it where they are. With `scale="client"` vectors of floats are scaled by
    each client with its own training rows, and NaN is a missing value. Bytes stay bytes (and are batched as numbers in
    [0, 1]); other floats become float32.
    """
    one_of(name, "scale", scale, SCALES)
    if isinstance(x, Mapping):
        require(y is None and clients is None, name, "a dict from client names to (x, y) comes without y and clients")
        x, clients = None, x
    keys: Any = clients
    if x is None and y is None and clients is not None:
        x, y, keys = _join(name, clients)
    if x is None or y is None:
        raise fail(name, "needs x and y, or clients as a list of (x, y) or a dict from names to (x, y)")
    features = _features(name, x, scale == "client")
    tests = None if holdout is None else _features(name, holdout[0])
    labels, last, count, words = _targets(name, y, None if holdout is None else holdout[1], classes, regression)
    groups, names = (None, ()) if keys is None else classed.client_numbers(name, _keys(keys))
    held = None if tests is None or last is None else {"x": tests, "y": last}
    scaled = None
    if scale == "client":
        vectors = features.ndim == 2 and features.is_floating_point()
        require(
            vectors, name, f"scale needs rows that are vectors of floats, got {tuple(features.shape)} {features.dtype}"
        )
        scaled = torch.ones(features.shape[1], dtype=torch.bool)
    told = f"{origin.rstrip('.')}; {classed.told(words)}.".lstrip("; ") if words else origin
    columns = {"x": features, "y": labels}
    dataset = DataSet(name, columns, count, groups, names, held, told, scaled, class_names=words)
    check_data(dataset)
    return dataset


def from_torch(
    dataset: Any,
    clients: Sequence[Any] | None = None,
    *,
    classes: int | None = None,
    regression: bool | None = None,
    scale: str = "none",
    name: str = "torch",
) -> DataSet:
    """A data set from a map-style `torch.utils.data.Dataset` whose items are (x, y), read once into memory, by the
    rules of `from_arrays`."""
    choices: dict[str, Any] = {"classes": classes, "regression": regression, "scale": scale, "name": name}
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return from_arrays(*dataset.tensors, clients=clients, **choices)
    require(hasattr(dataset, "__len__"), name, "the data set has no length; only map-style data sets can be read")
    items = [_item(name, row, dataset[row]) for row in range(len(dataset))]
    require(bool(items), name, "data have no rows")
    for row, (features, label) in enumerate(items):
        shapes = (features.shape, label.shape), (items[0][0].shape, items[0][1].shape)
        for column, got, expected in zip("xy", *shapes, strict=True):
            require(got == expected, name, f"{column} has shape {tuple(got)} at row {row}, {tuple(expected)} at row 0")
    x, y = (torch.stack(part) for part in zip(*items, strict=True))
    return from_arrays(x, y, clients, **choices)


def from_npz(
    path: str | Path,
    *,
    classes: int | None = None,
    regression: bool | None = None,
    scale: str | None = "none",
    name: str | None = None,
) -> DataSet:
    """A data set from an .npz file with the arrays x, y and, where there are natural clients, client, by the rules of
    `from_arrays`; with `scale=None` vectors of numbers are scaled, and whole numbers other than bytes become floats.

    A file in MedMNIST's layout (train_images, train_labels, test_images, test_labels) is read as such.
    """
    file = _existing(path)
    owner = name or file.stem
    try:
        found, arrays = array_names(file), read_arrays(file, ("x", "y", "client"))
    except ValueError as error:
        raise fail(file.name, f"is not a readable .npz file of plain arrays ({error})") from None
    if "train_images" in found and not arrays:
        return read_medmnist(file, name)
    for needed in ("x", "y"):
        require(needed in arrays, file.name, f"array {needed} is missing (arrays: {', '.join(found)})")
    origin = f"Read from {file.name}."
    if scale is None:
        if arrays["x"].dtype.kind in "iub" and arrays["x"].dtype != np.uint8:
            arrays["x"] = arrays["x"].astype(np.float32)
        scale = "client" if arrays["x"].ndim == 2 and arrays["x"].dtype.kind == "f" else "none"
    return from_arrays(
        **_renamed(arrays), classes=classes, regression=regression, scale=scale, name=owner, origin=origin
    )


def from_csv(
    path: str | Path,
    label: str | None = None,
    client: str | None = None,
    *,
    target: str | None = None,
    drop: Sequence[str] = (),
    category: Sequence[str] = (),
    scale: str = "client",
    classes: Sequence[str] | None = None,
    features: Sequence[Feature] | None = None,
    delimiter: str | None = None,
    name: str | None = None,
) -> DataSet:
    """A data set from a .csv file with a header line, by the rules of `from_table`.

    Commas, semicolons, tabs, bars and blanks are recognised as delimiters; `delimiter` names another. Labels may be
    words: class c is the c-th of them in sorted order (by value, if all are numbers), which `origin` tells.
    """
    file = _existing(path)
    read = read_csv(file, delimiter)
    origin = f"Read from {file.name}{f'; {read.dropped}' if read.dropped else ''}."
    found = from_table(
        read.columns,
        label,
        client,
        target=target,
        drop=drop,
        category=category,
        scale=scale,
        classes=classes,
        features=features,
        name=file.name,
        origin=origin,
        place=read.place,
    )
    return replace(found, name=name or file.stem)


def _features(name: str, x: Array, exact: bool = False) -> Tensor:
    """Features in one of the types that are stored; `exact` leaves float64, which is rounded when it is scaled."""
    values = _tensor(name, "x", x)
    if exact and values.dtype == torch.float64:
        return values
    if values.dtype == torch.bool or (values.is_floating_point() and values.dtype != torch.float32):
        return values.to(torch.float32)
    return values.to(torch.int64) if values.dtype == torch.int16 else values  # int16 means sound


def _targets(
    name: str, y: Array, held: Array | None, classes: int | None, regression: bool | None
) -> tuple[Tensor, Tensor | None, int, tuple[str, ...]]:
    """Labels (or numbers to predict) of the rows and of the holdout, the number of classes, and their names."""
    first, rest = _labels(name, y), None if held is None else _labels(name, held)
    every = first if rest is None else np.concatenate([first, rest])
    if every.dtype.kind == "f":
        whole = bool((every == np.floor(every)).all()) and regression is None
        advice = "give whole numbers for classes, or say regression=True"
        require(not whole, name, f"y holds floats that are all whole numbers; {advice}")
        require(regression is not False, name, "y holds floats that are not whole, so they are no classes")
    if every.dtype.kind == "f" or regression:
        require(every.dtype.kind in "biuf", name, "y must hold numbers for regression, got words")
        require(classes is None, name, f"regression has no classes, got classes={classes}")
        found, count, words = torch.from_numpy(every.astype(np.float32)), 1, tuple[str, ...]()
    elif every.dtype.kind in "biu":
        found = torch.from_numpy(every.astype(np.int64))
        plain = classes is not None or found.ndim > 1
        found, words = (found, ()) if plain else classed.from_codes(found)
        count = classes if classes is not None else len(words) or (int(found.max()) + 1 if found.numel() else 1)
    else:
        found, words = classed.from_words(name, "y", as_column(name, "y", every), None, "row {}".format)
        count = len(words)
    return found[: len(first)], None if rest is None else found[len(first) :], count, words


def _labels(name: str, y: Array) -> NDArray[Any]:
    """Labels as an array; one column (n, 1) is n labels, and several in a row (text) stay."""
    values = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    require(values.ndim > 0, name, f"y must be an array, got {y!r}")
    require(values.dtype.kind in "biufOUST", name, f"y must hold numbers or words, got an array of {values.dtype}")
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


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


def _join(name: str, clients: Any) -> tuple[Tensor, NDArray[Any], list[str]]:
    """One x and y, and a client key per row, from the clients' own (x, y)."""
    pairs = clients if isinstance(clients, Mapping) else {str(i): pair for i, pair in enumerate(clients)}
    require(bool(pairs), name, "data have no clients")
    parts: list[tuple[Tensor, NDArray[Any]]] = []
    for key, pair in pairs.items():
        require(isinstance(pair, Sequence) and len(pair) == 2, name, f"client {key} must be a pair (x, y)")
        x, y = _features(name, pair[0]), _labels(name, pair[1])
        require(len(x) == len(y), name, f"client {key} has {len(x)} rows of x and {len(y)} of y")
        first = parts[0][0] if parts else x
        alike = x.shape[1:] == first.shape[1:] and x.dtype == first.dtype
        require(alike, name, f"client {key} has rows of another shape or type than the first client")
        parts.append((x, y))
    keys = [str(key) for key, (_, y) in zip(pairs, parts, strict=True) for _ in range(len(y))]
    return torch.cat([x for x, _ in parts]), np.concatenate([y for _, y in parts]), keys


def _keys(keys: Any) -> list[str]:
    values = keys.tolist() if isinstance(keys, Tensor | np.ndarray) else list(keys)
    return [str(value) for value in values]


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
