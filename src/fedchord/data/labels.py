"""What rows are asked about and who holds them: labels as class numbers with names, and client keys as client numbers.

Words, and numbers that are codes (4010, 25000), become 0, 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedchord.check import fail, require, unknown
from fedchord.data.features import Column, Place, numbers, sorted_words, words_of

SHOWN = 20
"""How many class names are told."""
MOST_FRACTIONS = 20
"""A label column with more different numbers that are not whole is no column of classes."""
MOST_NUMBERS = 50
"""Nor is one with more whole numbers than this and than a third of the rows."""
NOBODY = ("", "nan", "none", "<na>", "nat")
"""What a client key that is missing looks like as text."""


@final
@dataclass(frozen=True)
class Answers:
    """What a table says of its rows beside their features: labels (or numbers to predict) and clients."""

    y: Tensor
    class_names: tuple[str, ...]
    groups: Tensor | None
    group_names: tuple[str, ...]

    @property
    def classes(self) -> int:
        """How many classes there are; 1 for numbers."""
        return len(self.class_names) or 1


def answers(
    name: str,
    table: Mapping[str, Column],
    label: str | None,
    target: str | None,
    client: str | None,
    classes: Sequence[str] | None,
    place: Place,
) -> Answers:
    """The labels by the column `label`, or the numbers to predict by `target`, and the clients by `client`."""
    require((label is None) != (target is None), name, "needs a label column, or a target column for regression")
    asked = label if label is not None else target
    assert asked is not None
    for column in (asked, client):
        if column is not None and column not in table:
            raise unknown(f"column of {name}", column, table)
    require(asked != client, name, f"column {asked!r} cannot be both label and client")
    if label is None:
        y, names = targets(name, asked, table[asked], place), tuple[str, ...]()
    else:
        y, names = from_words(name, asked, table[asked], classes, place)
    groups, group_names = (None, ()) if client is None else client_numbers(name, words_of(table[client]), place)
    return Answers(y, names, groups, group_names)


def client_numbers(name: str, keys: Sequence[str], place: Place = "row {}".format) -> tuple[Tensor, tuple[str, ...]]:
    """Numbers 0, 1, ... for client keys in sorted order, and the keys."""
    for row, key in enumerate(keys):
        require(key.strip().lower() not in NOBODY, name, f"client is missing at {place(row)}, got {key!r}")
    names = sorted_words(keys)
    number = {key: place for place, key in enumerate(names)}
    return torch.tensor([number[key] for key in keys], dtype=torch.int64), tuple(names)


def from_words(
    name: str, column: str, cells: Column, classes: Sequence[str] | None, place: Place
) -> tuple[Tensor, tuple[str, ...]]:
    """Class numbers and names of a label column; `classes` names them in their order, else they are sorted."""
    words = words_of(cells)
    for row, word in enumerate(words):
        require(bool(word), name, f"{place(row)}, column {column!r} is empty")
    values = numbers(cells)
    if values is not None and classes is None:
        different = len(np.unique(values))
        many = max(MOST_NUMBERS, len(words) / 3) if _whole(values) else MOST_FRACTIONS
        told = f"column {column!r} holds {different} different numbers in {len(words)} rows"
        require(different <= many, name, f"{told}; to predict a number write data.target={column}")
    known = [str(word) for word in classes] if classes is not None else sorted_words(words)
    number = {word: place for place, word in enumerate(known)}
    for row, word in enumerate(words):
        if word not in number:
            raise unknown(f"class in {place(row)} of {name}", word, known)
    return torch.tensor([number[word] for word in words], dtype=torch.int64), tuple(known)


def from_codes(labels: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """Whole-number labels as class numbers; names where they were not 0, 1, ..., L - 1 already."""
    found, places = torch.unique(labels, return_inverse=True)
    if torch.equal(found, torch.arange(len(found))):
        return labels, ()
    return places.to(torch.int64), tuple(str(code) for code in found.tolist())


def targets(name: str, column: str, cells: Column, place: Place) -> Tensor:
    """The numbers that are to be predicted, one per row, all finite."""
    values = numbers(cells)
    if values is None or not np.isfinite(values).all():
        words = words_of(cells)
        bad = next(row for row, word in enumerate(words) if not _finite(word))
        raise fail(name, f"{place(bad)}, column {column!r} must be a finite number, got {words[bad]!r}")
    return torch.from_numpy(values.astype(np.float32))


def told(names: Sequence[str]) -> str:
    """The classes in their order, for a sentence."""
    return f"classes in order: {', '.join(names[:SHOWN])}{' ...' if len(names) > SHOWN else ''}"


def _whole(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bool:
    return bool((values == np.floor(values)).all())


def _finite(word: str) -> bool:
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False
