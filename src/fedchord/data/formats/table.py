"""Text tables of the sources: rows of cells, each with its place, so that an error can name file, line and column."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedchord.check import fail, require, unknown


@final
@dataclass(frozen=True)
class Row:
    """One line of a table; cells are asked for by column."""

    owner: str
    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        return self.cells[column].strip()

    def number(self, column: str, missing: str | None = None) -> float:
        """A finite number; NaN where the cell holds the mark of a missing value."""
        text = self.text(column)
        if missing is not None and text == missing:
            return math.nan
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            also = f" or {missing!r}" if missing is not None else ""
            raise fail(self.owner, f"{self.where(column)} must be a finite number{also}, got {text!r}")
        return value

    def category(self, column: str, known: Sequence[str]) -> str:
        """One of the words of a fixed list."""
        text = self.text(column)
        if text not in known:
            raise unknown(f"{column} in line {self.line} of {self.path}", text, known)
        return text

    def code(self, column: str, known: Sequence[int], missing: str | None = None) -> int | None:
        """One of the whole numbers of a fixed list, written 1 or 1.0; None where the value is missing."""
        value = self.number(column, missing)
        if math.isnan(value):
            return None
        if value not in known:
            codes = ", ".join(str(code) for code in known)
            raise fail(self.owner, f"{self.where(column)} must be one of {codes}, got {self.text(column)!r}")
        return int(value)

    def where(self, column: str) -> str:
        return f"{self.path} line {self.line}, column {column}"


def read_rows(
    owner: str, path: Path, columns: Sequence[str], delimiter: str = ",", header: bool = True
) -> Iterator[Row]:
    """The lines of a table that are not blank. Without a header line the columns are all there are, in this order."""
    # every byte is a latin-1 letter, so that a file that is no text is told by its columns and not by a decoder
    with path.open(newline="", encoding="latin-1") as stream:
        reader = csv.reader(stream, delimiter=delimiter)
        names, rows = [] if header else list(columns), 0
        try:
            for cells in reader:
                if not cells:
                    continue
                if not names:
                    names = _header(owner, path, cells, columns)
                    continue
                if len(cells) != len(names):
                    wrong = f"{path} line {reader.line_num} has {len(cells)} cells, expected {len(names)}"
                    last = f" (it ends before column {names[len(cells)]})" if len(cells) < len(names) else ""
                    raise fail(owner, wrong + last)
                rows += 1
                yield Row(owner, path, reader.line_num, dict(zip(names, cells, strict=True)))
        except csv.Error as error:
            raise fail(owner, f"{path} is damaged after line {reader.line_num}: {error}") from None
        require(rows > 0, owner, f"{path} is damaged: it has no rows")


def _header(owner: str, path: Path, cells: Sequence[str], columns: Sequence[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    for column in columns:
        if column not in names:
            raise fail(owner, f"{path} has no column {column} (columns: {', '.join(names)[:200]})")
    return names


def md5(path: Path) -> str:
    """The MD5 sum of a file, to tell the official one from others."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
