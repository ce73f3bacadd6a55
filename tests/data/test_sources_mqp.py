"""MQP: WordPieces by hand and against the tokenizers package, pairs that are too long, odd files, the real counts."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

import pytest
import torch

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Natural, federate, load, status
from fedchord.data.formats.wordpiece import WordPiece, pair, read_vocabulary

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "can", "i", "take", "pill", "##s", "##box", "cafe", "?", "-", "病", "flu")
ROWS = [
    ["2", "Can I take pills?", "Can I take pillboxs", "1"],
    ["10", "CAFÉ - flu?", "病病flu", "0"],
    ["2", "take xyz", "i", "0"],
]


def put(root: Path, rows: list[list[str]] = ROWS, pieces: tuple[str, ...] = PIECES, folder: str = "mqp") -> Path:
    (root / "mqp").mkdir(parents=True, exist_ok=True)
    (root / folder).mkdir(exist_ok=True)
    (root / folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    with (root / "mqp/mqp.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)
    return root / "mqp/mqp.csv"


@pytest.mark.parametrize("folder", ["mqp", "wordpiece"])
def test_pairs_by_hand(tmp_path: Path, folder: str) -> None:
    put(tmp_path, folder=folder)
    assert status(SOURCES["mqp"], tmp_path) == "present"
    data = load("mqp", tmp_path)
    assert data.columns["x"].shape == (3, 200) and data.columns["x"].dtype == torch.int32
    assert data.columns["x"][0, :13].tolist() == [2, 4, 5, 6, 7, 8, 11, 3, 4, 5, 6, 7, 9]
    assert data.columns["x"][0, 13:16].tolist() == [8, 3, 0]
    assert data.columns["x"][1, :10].tolist() == [2, 10, 12, 14, 11, 3, 13, 13, 14, 3]
    assert data.columns["x"][2, :7].tolist() == [2, 6, 1, 3, 5, 3, 0]
    assert data.columns["y"].tolist() == [1, 0, 0]
    assert data.group_names == ("2", "10") and data.groups.tolist() == [0, 1, 0]
    assert "15 pieces, not BERT's 30522" in data.origin and "not the official 3048 rows" in data.origin
    made = federate(data, Natural(), test=0.5)
    assert made.batch(torch.tensor([0]))["x"].dtype == torch.int64


def test_what_a_word_is() -> None:
    cut = WordPiece({piece: number for number, piece in enumerate(PIECES)})
    assert cut("") == [] and cut(" \t\n\u00a0") == []
    assert cut("fl\x00u\u200b") == [14]  # control characters go
    assert cut("cafe\u0301") == cut("CAFÉ") == [10]
    assert cut("pill" + "s" * 96) == [7] + [8] * 96 and cut("pill" + "s" * 97) == [1]
    assert cut("pillx") == [1]  # not cut to the end: nothing of it is known
    assert cut("can?i-病") == [4, 11, 5, 12, 13]


def test_long_pairs_lose_the_end_of_the_longer_text() -> None:
    """Against removing a token at a time from the longer text (of equal ones, from the one that was shorter)."""
    known = {"[CLS]": -1, "[SEP]": -2}
    for a, b, longest in product(range(9), range(9), range(5, 14)):
        first, second = list(range(a)), list(range(100, 100 + b))
        keep = [a, b]
        while sum(keep) + 3 > longest:
            shorter = 0 if a <= b else 1
            keep[0 if keep[0] > keep[1] else 1 if keep[1] > keep[0] else shorter] -= 1
        wanted = [-1, *first[: keep[0]], -2, *second[: keep[1]], -2]
        assert pair(first, second, known, longest) == wanted, (a, b, longest)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"rows": [["1", "a", "b"]]}, "mqp: .*mqp.csv line 1 has 3 cells, expected 4"),
        ({"rows": [["1", "a", "b", "2"]]}, "unknown label in line 1 of .*mqp.csv '2'"),
        ({"rows": [["1", "a", " ", "1"]]}, "mqp: .*line 1, column second is empty"),
        ({"rows": []}, "mqp: .*mqp.csv is damaged: it has no rows"),
        ({"pieces": ("[UNK]", "[CLS]", "[SEP]")}, "mqp: .*vocab.txt is no WordPiece vocabulary: it has no .PAD."),
        ({"pieces": ("a", *PIECES)}, r"mqp: .*vocab.txt: \[PAD\] must be in the first line, got line 2"),
        ({"pieces": (*PIECES, "flu")}, "mqp: .*vocab.txt is damaged: a piece occurs twice"),
    ],
)
def test_odd_files(tmp_path: Path, change: dict[str, list[list[str]]], line: str) -> None:
    put(tmp_path, **change)  # type: ignore[arg-type]
    with pytest.raises(FedchordError, match=line) as error:
        load("mqp", tmp_path)
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path: Path) -> None:
    path = put(tmp_path)
    path.write_bytes(b"1,caf\xe9,b,1\n")
    with pytest.raises(FedchordError, match="line 1, column first is damaged: expected text in UTF-8"):
        load("mqp", tmp_path)
    (tmp_path / "mqp/vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FedchordError, match=r"vocab.txt is damaged: expected a piece per line"):
        load("mqp", tmp_path)
    (tmp_path / "mqp/vocab.txt").unlink()
    with pytest.raises(FedchordError, match=r"mqp: missing mqp/vocab.txt in .*put the files into .*mqp"):
        load("mqp", tmp_path)


@pytest.mark.data
def test_real_pairs(data_root: Path) -> None:
    found = status(SOURCES["mqp"], data_root)
    if found != "present":
        pytest.skip(f"mqp under FEDCHORD_DATA: {found}")
    data = load("mqp", data_root)
    assert data.groups is not None
    sizes = torch.bincount(data.groups).double()
    assert (len(sizes), int(sizes.sum()), int(data.columns["y"].sum())) == (11, 3048, 1524)
    assert float(sizes.mean()) == pytest.approx(277.09, abs=5e-3)
    assert float(sizes.std(correction=0)) == pytest.approx(63.25, abs=5e-3)
    assert int((data.columns["x"] > 0).sum(1).max()) == 193
    assert not bool((data.columns["x"] == 100).any(1).all())


@pytest.mark.data
@pytest.mark.parametrize("longest", [200, 31])
def test_real_pairs_against_the_tokenizers_package(data_root: Path, longest: int) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra text is not installed")
    if status(SOURCES["mqp"], data_root) != "present":
        pytest.skip("mqp is not under FEDCHORD_DATA")
    path = SOURCES["mqp"].locate(data_root, "mqp/vocab.txt")
    known = read_vocabulary("mqp", path)
    cut = WordPiece(known)
    theirs = tokenizers.BertWordPieceTokenizer(dict(known), lowercase=True)
    theirs.enable_truncation(longest)
    with (data_root / "mqp/mqp.csv").open(newline="", encoding="utf-8") as stream:
        for _, first, second, _ in csv.reader(stream):
            assert pair(cut(first), cut(second), known, longest) == theirs.encode(first, second).ids
