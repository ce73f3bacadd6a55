"""Texts of your own: columns of a csv file as the WordPiece numbers of an encoder's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedchord.check import require, unknown, whole
from fedchord.data.features import Column
from fedchord.data.federation import DataSet
from fedchord.data.formats.csv_file import read_csv
from fedchord.data.formats.wordpiece import END, START, WordPiece, pair, read_vocabulary
from fedchord.data.labels import answers, told
from fedchord.data.validate import check_data
from fedchord.paths import expanded

LENGTH = 128
"""Numbers of a text unless it is said how many; longer ones are cut."""
VOCABULARY = "vocab.txt"


def from_texts(
    path: str | Path,
    text: Sequence[str],
    encoder: str | Path,
    label: str | None = None,
    client: str | None = None,
    *,
    target: str | None = None,
    classes: Sequence[str] | None = None,
    length: int = LENGTH,
    delimiter: str | None = None,
    name: str | None = None,
) -> DataSet:
    """Texts of a csv file, in one column or two (a pair), for an encoder whose folder has a WordPiece vocabulary.

    A row is [CLS] text [SEP], or [CLS] first [SEP] second [SEP], in numbers of vocab.txt, of at most `length`, with
    zeros after its end. Texts that are longer are cut, and counted in `origin`. Other columns are not used.
    """
    file = Path(path)
    require(file.is_file(), str(path), "no such file")
    read = read_csv(file, delimiter)
    found = answers(file.name, read.columns, label, target, client, classes, read.place)
    for column in text:
        if column not in read.columns:
            raise unknown(f"column of {file.name}", column, read.columns)
    x, cut = tokens(file.name, [read.columns[column] for column in text], encoder, length)
    parts = [f"Read from {file.name}", told(found.class_names) if found.class_names else ""]
    parts += [f"{cut} of {len(x)} texts have more than {length} tokens and are cut"] if cut else []
    dataset = DataSet(
        name or file.stem,
        {"x": x, "y": found.y},
        found.classes,
        found.groups,
        found.group_names,
        origin=f"{'; '.join(part for part in parts if part)}.",
        class_names=found.class_names,
    )
    check_data(dataset)
    return dataset


def tokens(owner: str, columns: Sequence[Column], encoder: str | Path, length: int = LENGTH) -> tuple[Tensor, int]:
    """Texts, or pairs of texts, as numbers (n, length), 0 is padding; and how many were too long."""
    require(len(columns) in (1, 2), owner, f"a text is one column or two, got {len(columns)}")
    whole(owner, "data.length", length, 8, 100_000)
    file = expanded(encoder) / VOCABULARY
    require(file.is_file(), owner, f"{file}: no such file; texts need an encoder's folder with a WordPiece vocabulary")
    vocabulary = read_vocabulary(owner, file)
    cut, long = WordPiece(vocabulary), 0
    x = torch.zeros(len(columns[0]), length, dtype=torch.int32)
    for row, texts in enumerate(zip(*(_texts(column) for column in columns), strict=True)):
        parts = [cut(text) for text in texts]
        long += sum(len(part) for part in parts) + len(parts) + 1 > length
        if len(parts) == 2:
            numbers = pair(parts[0], parts[1], vocabulary, length)
        else:
            numbers = [vocabulary[START], *parts[0][: length - 2], vocabulary[END]]
        x[row, : len(numbers)] = torch.tensor(numbers, dtype=torch.int32)
    return x, long


def _texts(column: Column) -> list[str]:
    return ["" if cell is None else str(cell) for cell in column.tolist()]
