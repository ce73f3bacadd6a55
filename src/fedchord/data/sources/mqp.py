"""MQP: do two medical questions mean the same, by the doctor who wrote them, who is the client (McCreery et al., 2020).

Licence: none is stated. Source: the repository of the authors, mqp.csv (no header; doctor, question, question, label),
which has no published checksum and is recognised by its counts. And vocab.txt, the vocabulary of BERT's and
DistilBERT's lower-case models, 30,522 pieces; it comes with their weights. Layout: `mqp/mqp.csv`, `mqp/vocab.txt` (or
`wordpiece/vocab.txt`). No network and no package but this one is needed.

A row is a pair, [CLS] question [SEP] question [SEP], in WordPiece numbers, of at most 200 (the longest has 193), with
zeros after its end; the thesis pads to 200 as well. An encoder cuts a batch at its longest pair, so that the zeros cost
nothing, and takes them for padding (`TextEncoder`). The label is 1 if the questions mean the same.

11 doctors wrote 3,048 pairs, 1,524 of each label: 277.09 on average with std 63.25 (ddof 0), the thesis' numbers. Each
doctor rewrote a question once alike and once not, so the two pairs of a question may lie on both sides of a local
split, as in the thesis.
"""

from __future__ import annotations

from pathlib import Path

import torch

from fedchord.check import fail
from fedchord.data.federation import DataSet
from fedchord.data.formats.table import Row, read_rows
from fedchord.data.formats.wordpiece import WordPiece, pair, read_vocabulary
from fedchord.data.source import Source

COLUMNS = ("doctor", "first", "second", "label")
LENGTH, PIECES = 200, 30522


def _load(root: Path) -> DataSet:
    """Numbers of WordPieces, (n, 200), 0 is padding; clients are the doctors."""
    file = SOURCE.locate(root, "mqp/vocab.txt")
    vocabulary = read_vocabulary("mqp", file)
    cut = WordPiece(vocabulary)
    rows = list(read_rows("mqp", SOURCE.locate(root, "mqp/mqp.csv"), COLUMNS, header=False))
    x = torch.zeros(len(rows), LENGTH, dtype=torch.int32)
    y, doctors = [], []
    for place, row in enumerate(rows):
        numbers = pair(cut(_text(row, "first")), cut(_text(row, "second")), vocabulary, LENGTH)
        x[place, : len(numbers)] = torch.tensor(numbers, dtype=torch.int32)
        y.append(int(row.category("label", ("0", "1"))))
        doctors.append(_text(row, "doctor"))
    names = tuple(sorted(set(doctors), key=lambda name: (len(name), name)))
    other = "" if len(vocabulary) == PIECES else f" {file.name} has {len(vocabulary)} pieces, not BERT's {PIECES}."
    return DataSet(
        "mqp",
        {"x": x, "y": torch.tensor(y)},
        2,
        groups=torch.tensor([names.index(doctor) for doctor in doctors]),
        group_names=names,
        origin=SOURCE.origin(len(y), 0) + other,
    )


def _text(row: Row, column: str) -> str:
    """A cell as what it is, UTF-8; tables are read byte by byte."""
    try:
        text = row.text(column).encode("latin-1").decode("utf-8").strip()
    except UnicodeDecodeError:
        raise fail(row.owner, f"{row.where(column)} is damaged: expected text in UTF-8") from None
    if not text:
        raise fail(row.owner, f"{row.where(column)} is empty")
    return text


SOURCE = Source(
    name="mqp",
    title="Medical question pairs by doctor, alike or not, at most 200 WordPieces",
    licence="none stated",
    home="https://github.com/curai/medical-question-pair-dataset (mqp.csv) and a lower-case BERT's folder (vocab.txt)",
    load=_load,
    classes=2,
    natural=True,
    rows=3048,
    files=(("mqp/mqp.csv",), ("mqp/vocab.txt", "wordpiece/vocab.txt")),
)
