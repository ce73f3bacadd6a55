"""Pictures in folders and lists, and texts for an encoder: read from files written here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedchord.check import FedchordError
from fedchord.data import from_folder, from_picture_list, from_texts
from fedchord.data.formats.pictures import read_pictures

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "very", "day", "##s", "."]


def picture(path: Path, value: int | tuple[int, int, int], size: tuple[int, int] = (6, 4), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_a_folder_per_class(tmp_path: Path) -> None:
    for name, value in (("cat", 10), ("dog", 200)):
        for number in range(3):
            picture(tmp_path / "pets" / name / f"{number}.png", value + number)
    picture(tmp_path / "pets" / "dog" / "more" / "deep.JPG", 77)
    (tmp_path / "pets" / "notes.txt").write_text("not a picture")
    (tmp_path / "pets" / "empty").mkdir()
    data = from_folder(tmp_path / "pets")
    assert data.columns["x"].shape == (7, 1, 4, 6) and data.columns["x"].dtype == torch.uint8
    assert data.columns["y"].tolist() == [0, 0, 0, 1, 1, 1, 1] and data.class_names == ("cat", "dog")
    assert data.columns["x"][:, 0, 0, 0].tolist() == [10, 11, 12, 200, 201, 202, 77]
    assert (data.name, data.origin) == ("pets", "Read from pets/; classes in order: cat, dog.")


def test_one_picture_in_colour_makes_all_three_channels(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 10)
    picture(tmp_path / "b" / "1.png", (1, 2, 3), mode="RGB")
    data = from_folder(tmp_path)
    assert data.columns["x"][:, :, 0, 0].tolist() == [[10, 10, 10], [1, 2, 3]]


def test_sizes_and_depths(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 10, (6, 4))
    picture(tmp_path / "b" / "1.png", 20, (5, 5))
    with pytest.raises(FedchordError, match=r"has 5x5 pixels, 1.png has 6x4; data.size=SIDE makes them alike$"):
        from_folder(tmp_path)
    assert from_folder(tmp_path, size=8).columns["x"].shape == (2, 1, 8, 8)
    deep = np.array([[0, 65535], [32768, 257]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert read_pictures("x", [tmp_path / "deep.png"])[0, 0].tolist() == [[0, 255], [128, 1]]


def test_a_list_of_pictures(tmp_path: Path) -> None:
    for number in range(4):
        picture(tmp_path / "p" / f"{number}.png", 10 * number)
    (tmp_path / "list.csv").write_text(
        "file,what,who,other\n" + "".join(f"p/{n}.png,{'ab'[n % 2]},{'xy'[n // 2]},1\n" for n in range(4))
    )
    data = from_picture_list(tmp_path / "list.csv", "file", "what", "who")
    assert data.columns["x"][:, 0, 0, 0].tolist() == [0, 10, 20, 30]
    assert (data.class_names, data.group_names) == (("a", "b"), ("x", "y"))
    numbers = from_picture_list(tmp_path / "list.csv", "file", target="other")
    assert numbers.regression and numbers.columns["y"].tolist() == [1.0] * 4


def broken(place: Path) -> None:
    picture(place / "a" / "1.png", 1)
    (place / "b").mkdir()
    (place / "b" / "x.png").write_text("no")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda place: None, "needs a folder per class with pictures in it (.png, "),
        (lambda place: picture(place / "a" / "1.png", 1), "found 1 such folder"),
        (broken, "x.png is damaged: expected a picture"),
    ],
)
def test_folders_that_are_refused(tmp_path: Path, prepare: Any, message: str) -> None:
    place = tmp_path / "pets"
    place.mkdir()
    prepare(place)
    with pytest.raises(FedchordError) as error:
        from_folder(place)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_lists_that_are_refused(tmp_path: Path) -> None:
    picture(tmp_path / "1.png", 3)
    file = tmp_path / "l.csv"
    for text, message in (
        ("file,what\n2.png,a\n", "l.csv: line 2, column 'file': 2.png: no such file"),
        ("file,what\n,a\n", "l.csv: line 2, column 'file' is empty"),
        ("path,what\n1.png,a\n", "unknown column of l.csv 'file'"),
    ):
        file.write_text(text)
        with pytest.raises(FedchordError) as error:
            from_picture_list(file, "file", "what")
        assert str(error.value).startswith(message)
    with pytest.raises(FedchordError, match="no such folder"):
        from_folder(tmp_path / "nowhere")


def texts(tmp_path: Path) -> Path:
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    file = tmp_path / "t.csv"
    file.write_text('say,more,mood,who\nGood days.,very good,up,a\n"bad, very bad day",bad,down,b\nodd,,down,a\n')
    return file


def test_texts_become_numbers(tmp_path: Path) -> None:
    file = texts(tmp_path)
    data = from_texts(file, ["say"], tmp_path / "encoder", "mood", "who", length=10)
    assert data.columns["x"].dtype == torch.int32
    assert data.columns["x"].tolist() == [
        [2, 4, 7, 8, 9, 3, 0, 0, 0, 0],
        [2, 5, 1, 6, 5, 7, 3, 0, 0, 0],
        [2, 1, 3, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert (data.class_names, data.group_names) == (("down", "up"), ("a", "b"))
    pairs = from_texts(file, ["say", "more"], tmp_path / "encoder", "mood", length=10)
    assert pairs.columns["x"][0].tolist() == [2, 4, 7, 8, 9, 3, 6, 4, 3, 0]
    short = from_texts(file, ["say"], tmp_path / "encoder", "mood", length=8)
    assert "cut" not in short.origin
    tight = from_texts(file, ["say", "more"], tmp_path / "encoder", "mood", length=8)
    assert tight.origin.endswith("2 of 3 texts have more than 8 tokens and are cut.")


def test_texts_that_are_refused(tmp_path: Path) -> None:
    file = texts(tmp_path)
    for columns, folder, message in (
        (["say"], "nowhere", "no such file; texts need an encoder's folder with a WordPiece vocabulary"),
        (["sai"], "encoder", "unknown column of t.csv 'sai'; did you mean 'say'?"),
        (["say", "more", "mood"], "encoder", "a text is one column or two, got 3"),
    ):
        with pytest.raises(FedchordError) as error:
            from_texts(file, columns, tmp_path / folder, "mood")
        assert message in str(error.value)
    with pytest.raises(FedchordError, match=r"data.length must be a whole number of at least 8, got 2"):
        from_texts(file, ["say"], tmp_path / "encoder", "mood", length=2)
