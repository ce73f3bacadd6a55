"""The columns of a table as features: a number is one feature, a category one feature per word it may be (one-hot)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from fedchord.check import fail, require
from fedchord.core.inputs import Block

Column = NDArray[Any]
"""The cells of a column: numbers, or words."""
Place = Callable[[int], str]
"""How a row is named in an error: "line 3" of a file, "row 1" of an array."""

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "<na>", "nat"})
"""Words that mean: no value."""
MOST = 100
"""A column of more different words is no category, unless it is said to be one."""
MOST_SAID = 1000

_POINT_ZERO = re.compile(r"-?\d+\.0+")


@final
@dataclass(frozen=True)
class Feature:
    """One column: a number, or, where it has `categories`, one of these words."""

    name: str
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers a row has of it."""
        return len(self.categories) or 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each of them: age, or cp=1, cp=2, ..."""
        return tuple(f"{self.name}={word}" for word in self.categories) or (self.name,)


@final
@dataclass(frozen=True)
class Encoded:
    """A table as numbers (n, width), NaN where a value is missing, and what was met on the way."""

    x: NDArray[np.float64]
    unseen: dict[str, int] = field(default_factory=dict)
    """How many cells of each category hold a word that is not one of its words; their features are all zero."""


def blocks_of(features: Iterable[Feature]) -> tuple[Block, ...]:
    """Where the categories stand among the numbers of a row."""
    found, start = [], 0
    for feature in features:
        if feature.categories:
            found.append(Block(start, start + feature.width))
        start += feature.width
    return tuple(found)


def infer(name: str, columns: Mapping[str, Column], categories: Sequence[str], place: Place) -> tuple[Feature, ...]:
    """What every column is: words make a category, numbers a number unless the column is named in `categories`."""
    return tuple(_feature(name, column, cells, column in categories, place) for column, cells in columns.items())


def encode(name: str, features: Sequence[Feature], columns: Mapping[str, Column], place: Place) -> Encoded:
    """The rows of a table by features that are known; a column that is not there is refused, others are not looked at.

    A word that a category does not have is counted, and all its features are zero. A missing category is NaN in all.
    """
    rows = len(next(iter(columns.values()))) if columns else 0
    parts: list[NDArray[np.float64]] = []
    unseen: dict[str, int] = {}
    for feature in features:
        if feature.name not in columns:
            raise fail(name, f"has no column {feature.name!r} (columns: {', '.join(columns)[:200]})")
        cells = columns[feature.name]
        if not feature.categories:
            parts.append(_numbers_of(name, feature.name, cells, place)[:, None])
            continue
        words = words_of(cells)
        known = {word: number for number, word in enumerate(feature.categories)}
        codes = np.array([known.get(word, -1) for word in words], dtype=np.int64)
        gap = np.array([word == "" for word in words])
        one = np.zeros((len(words), feature.width))
        one[codes >= 0, codes[codes >= 0]] = 1
        one[gap] = np.nan
        strange = int(((codes < 0) & ~gap).sum())
        if strange:
            unseen[feature.name] = strange
        parts.append(one)
    return Encoded(np.concatenate(parts, 1) if parts else np.empty((rows, 0)), unseen)


def as_column(name: str, column: str, values: Any) -> Column:
    """The cells of a column as an array of numbers or of objects; what is neither is refused."""
    cells = np.asarray(values)
    require(cells.ndim == 1, name, f"column {column!r} must hold one value per row, got shape {cells.shape}")
    kind = cells.dtype.kind
    require(kind not in "Mm", name, f"column {column!r} holds times; turn them into numbers, or drop the column")
    require(kind in "biufOUST", name, f"column {column!r} must hold numbers or words, got {cells.dtype}")
    return cells


def numbers(cells: Column) -> NDArray[np.float64] | None:
    """A column as numbers, NaN where a value is missing; None if a cell is a word."""
    if cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    try:
        return np.array([word or "nan" for word in words_of(cells)], dtype=np.float64)
    except ValueError:
        return None


def words_of(cells: Column) -> list[str]:
    """A column as words, "" where a value is missing; whole numbers are written without a point, 1.0 like 1."""
    return [_word(cell) for cell in cells.tolist()]


def sorted_words(words: Iterable[str]) -> list[str]:
    """Different words in order: by value if all are numbers, else by spelling."""
    found = set(words)
    try:
        return sorted(found, key=lambda word: (float(word), word))
    except ValueError:
        return sorted(found)


def _word(cell: Any) -> str:
    if cell is None or cell is True or cell is False:
        return "" if cell is None else str(cell)
    if isinstance(cell, float):
        return "" if cell != cell else str(int(cell)) if cell.is_integer() else repr(cell)
    word = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)
    word = word.strip()
    if word.lower() in MISSING:
        return ""
    return word.rstrip("0").rstrip(".") if _POINT_ZERO.fullmatch(word) else word


def _numbers_of(name: str, column: str, cells: Column, place: Place) -> NDArray[np.float64]:
    values = numbers(cells)
    if values is None:
        row, word = next((row, word) for row, word in enumerate(words_of(cells)) if not _is_number(word))
        raise fail(name, f"{place(row)}, column {column!r} must be a number, got {word!r}")
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        raise fail(name, f"{place(row)}, column {column!r} must be a finite number, got {values[row]}")
    return values


def _feature(name: str, column: str, cells: Column, said: bool, place: Place) -> Feature:
    words = words_of(cells)
    known = sorted_words(word for word in words if word)
    leave = f"leave it out with data.drop={column}"
    require(bool(known), name, f"column {column!r} has no value; {leave}")
    if not said and numbers(cells) is not None:
        _numbers_of(name, column, cells, place)
        return Feature(column)
    if not said:
        _refuse_mixed(name, column, words, place)
    most = MOST_SAID if said else MOST
    told = f"column {column!r} has {len(known)} different words, such as {known[0]!r}; a category has at most {most}"
    require(len(known) <= most, name, f"{told}: {leave}")
    return Feature(column, tuple(known))


def _refuse_mixed(name: str, column: str, words: Sequence[str], place: Place) -> None:
    """Refuse a column of numbers in which some cells are words: it may be either."""
    strange = [row for row, word in enumerate(words) if not _is_number(word)]
    if len(strange) * 2 < sum(word != "" for word in words):
        row = strange[0]
        told = f"{place(row)}, column {column!r} must be a number like the others, got {words[row]!r}"
        raise fail(name, f"{told}; if the column is a category, say data.category={column}")


def _is_number(word: str) -> bool:
    try:
        float(word or "nan")
    except ValueError:
        return False
    return True
