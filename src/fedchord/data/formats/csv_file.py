"""A csv file with a header line, whatever its delimiter, as named columns of text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, final

import numpy as np
from numpy.typing import NDArray

from fedchord.check import fail, require

DELIMITERS = ",;\t| "
WORDS = {"tab": "\t", "space": " ", "comma": ",", "semicolon": ";"}
"""Delimiters by name, where the character itself is hard to write."""
LOOKED_AT = 20
"""How many lines tell the delimiter."""

_DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")


@final
@dataclass(frozen=True)
class CsvFile:
    """The columns of a file in their order, and the line each row stands in."""

    columns: dict[str, NDArray[np.object_]]
    lines: list[int]
    dropped: str = ""
    """What was left out, in words: a nameless first column that counts the rows, as pandas writes one."""

    def place(self, row: int) -> str:
        """How a row is named in an error."""
        return f"line {self.lines[row]}"


def read_csv(path: Path, delimiter: str | None = None) -> CsvFile:
    """Read a file; the delimiter is found by looking at the first lines unless it is given.

    In a file with another delimiter than the comma, a column in which every number has a decimal comma is read so.
    """
    with path.open(newline="", encoding="utf-8-sig") as stream:
        mark = _delimiter(path, stream) if delimiter is None else WORDS.get(delimiter, delimiter)
        require(len(mark) == 1, path.name, f"a delimiter is one character, got {delimiter!r}")
        lines = _lines(path.name, stream, mark)
        _, cells = next(lines, (0, []))
        header = [cell.strip() for cell in cells]
        require(bool(header), path.name, "is empty; a header line was expected")
        body = list(lines)
    require(bool(body), path.name, "data have no rows")
    for column in header:
        require(header.count(column) == 1, path.name, f"column {column!r} occurs twice in the header")
    columns = dict(zip(header, zip(*(cells for _, cells in body), strict=True), strict=True))
    dropped = _unnamed(path.name, header, columns)
    texts = {column: np.array(cells, dtype=object) for column, cells in columns.items()}
    if mark != ",":
        texts = {column: _with_points(cells) for column, cells in texts.items()}
    return CsvFile(texts, [line for line, _ in body], dropped)


def header_of(path: Path, delimiter: str | None = None) -> list[str]:
    """The names of the columns; none if the file cannot be read, which its reader tells."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            mark = _delimiter(path, stream) if delimiter is None else WORDS.get(delimiter, delimiter)
            return [cell.strip() for cell in next(csv.reader(stream, delimiter=mark), [])]
    except (OSError, csv.Error, UnicodeDecodeError, TypeError):
        return []


def _delimiter(path: Path, stream: TextIO) -> str:
    """The character that cuts the header and the lines after it into the same number of cells, the more the better."""
    if path.suffix == ".tsv":
        return "\t"
    try:
        first = [line for _, line in zip(range(LOOKED_AT), stream, strict=False) if line.strip()]
    except UnicodeDecodeError:
        first = []
    stream.seek(0)
    best, most = ",", 1
    for mark in DELIMITERS:
        try:
            widths = {len(cells) for cells in csv.reader(first, delimiter=mark) if cells}
        except csv.Error:
            continue
        if len(widths) == 1 and (width := widths.pop()) > most:
            best, most = mark, width
    return best


def _lines(name: str, stream: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not blank, with their numbers; all as long as the first."""
    reader, width = csv.reader(stream, delimiter=delimiter), 0
    try:
        for cells in reader:
            if cells:
                width = width or len(cells)
                if len(cells) != width:
                    raise fail(name, f"line {reader.line_num} has {len(cells)} cells, the header has {width}")
                yield reader.line_num, cells
    except (csv.Error, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise fail(name, f"is not a readable .csv file after line {reader.line_num} ({reason})") from None


def _unnamed(name: str, header: list[str], columns: dict[str, tuple[str, ...]]) -> str:
    """Leave out a first column without a name that counts the rows; any other column must have a name."""
    if "" not in header:
        return ""
    cells = columns[""]
    short = all(cell.isdecimal() and len(cell) <= 18 for cell in cells)
    counts = short and all(int(cell) == int(cells[0]) + row for row, cell in enumerate(cells))
    require(header[0] == "" and counts, name, f"column {header.index('') + 1} of the header has no name")
    del columns[""]
    return "its first column, which has no name and counts the rows, is left out"


def _with_points(cells: NDArray[np.object_]) -> NDArray[np.object_]:
    """Cells with decimal commas as points, where all of them that are not empty are such numbers."""
    words = [cell.strip() for cell in cells]
    numbers = [word for word in words if word]
    if not any("," in word for word in numbers) or not all(_DECIMAL_COMMA.fullmatch(word) for word in numbers):
        return cells
    return np.array([word.replace(",", ".") for word in words], dtype=object)
