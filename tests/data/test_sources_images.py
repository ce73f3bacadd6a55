"""CelebA and TinyImageNet: the official layouts, damaged pictures and lists, copies that are not the original."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Natural, federate, load, status
from fedchord.data.official.facts import FACTS
from fedchord.data.sources import celeba, tinyimagenet
from fedchord.thesis.data_table import entry


@pytest.fixture(autouse=True)
def no_outer_cache(monkeypatch):
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)


def put_picture(path: Path, level: int, size: tuple[int, int], mode: str = "RGB") -> Path:
    """A picture of one colour: (level, 2 level, 3 level), or level if it is grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (level, 2 * level, 3 * level) if mode == "RGB" else level
    Image.new(mode, size, colour).save(path, format="JPEG", quality=95)
    return path


# -- CelebA ------------------------------------------------------------------------------------------------------------

PERSONS = [7] * 5 + [12] * 4 + [3] * 6  # 12 has too few pictures


def file(i: int) -> str:
    return f"{i + 1:06d}.jpg"


def put_celeba(
    root: Path, folder: str = "celeba", pictures: str = "celeba", size: tuple[int, int] = (178, 218)
) -> Path:
    for i in range(len(PERSONS)):
        put_picture(root / pictures / "img_align_celeba" / file(i), 5 * i, size)
    (root / folder).mkdir(parents=True, exist_ok=True)
    identity = "".join(f"{file(i)} {person}\n" for i, person in enumerate(PERSONS))
    (root / folder / "identity_CelebA.txt").write_text(identity)
    rows = "".join(f"{file(i)} -1  {'1' if i % 2 else '-1'} 1\n" for i in range(len(PERSONS)))
    (root / folder / "list_attr_celeba.txt").write_text(f"{len(PERSONS)}\nBald Smiling Young \n{rows}")
    return root / pictures / "img_align_celeba"


def put_leaf(root: Path) -> None:
    parts = {"train": {"7": [0, 1, 2, 3], "12": [5, 6, 7], "3": [9, 10, 11, 12, 13]}, "test": {"7": [4], "3": [14]}}
    for part, users in parts.items():
        data = {user: {"x": [file(i) for i in rows], "y": [i % 2 for i in rows]} for user, rows in users.items()}
        (root / f"celeba/{part}").mkdir(parents=True)
        held = {"users": list(users), "num_samples": [len(rows) for rows in users.values()], "user_data": data}
        (root / f"celeba/{part}/all_data.json").write_text(json.dumps(held))


@pytest.mark.parametrize("folder", ["celeba", "celeba/raw", "celeba/Anno"])
def test_celeba_from_the_official_lists(tmp_path, folder):
    put_celeba(tmp_path, folder)
    assert status(SOURCES["celeba"], tmp_path) == "present"
    data = load("celeba", tmp_path)
    assert (data.classes, data.parts, data.holdout) == (2, None, None)
    assert data.columns["x"].shape == (11, 3, 84, 84) and data.columns["x"].dtype == torch.uint8
    assert data.group_names == ("3", "7")
    assert data.groups.tolist() == [1] * 5 + [0] * 6
    assert data.columns["y"].tolist() == [i % 2 for i in range(15) if PERSONS[i] != 12]
    levels = torch.tensor([5 * i for i in range(15) if PERSONS[i] != 12])
    assert (
        int((data.columns["x"].float().mean(dim=(2, 3)) - levels[:, None] * torch.tensor([1, 2, 3])).abs().max()) <= 2
    )
    assert "2 persons with at least 5 pictures, 11 rows, not the 9343 and 200288 of LEAF and the thesis" in data.origin
    assert "not the official file by its MD5 sum: identity_CelebA.txt, list_attr_celeba.txt" in data.origin
    made = federate(data, Natural())
    assert made.client_names == ("3", "7") and made.test.sizes.tolist() == [1, 1]


def test_celeba_from_leaf_keeps_its_split(tmp_path):
    put_celeba(tmp_path, pictures="celeba/raw")
    put_leaf(tmp_path)
    data = load("celeba", tmp_path)
    made = federate(data, Natural())
    assert data.group_names == ("3", "7")
    assert (made.train.sizes.tolist(), made.test.sizes.tolist()) == ([5, 4], [1, 1])
    shown = made.columns["x"][made.test[1]].float().mean(dim=(2, 3))
    assert torch.allclose(shown, torch.tensor([[20.0, 40, 60]]), atol=2)


def test_the_whole_picture_is_squeezed(tmp_path):
    folder = put_celeba(tmp_path)
    left = np.zeros((218, 178, 3), np.uint8)
    left[:, :89] = 200
    Image.fromarray(left).save(folder / file(0), quality=95)
    x = load("celeba", tmp_path).columns["x"][0]
    assert int(x[:, :, :38].min()) > 190 and int(x[:, :, 46:].max()) < 10  # the halves meet in the middle


def test_a_copy_of_celeba_is_named_as_such(tmp_path, monkeypatch):
    put_celeba(tmp_path, size=(84, 84))
    sums = {name: hashlib.md5((tmp_path / "celeba" / name).read_bytes()).hexdigest() for name in celeba.MD5}
    monkeypatch.setattr(celeba, "MD5", sums)
    data = load("celeba", tmp_path)
    assert "11 pictures are not 178x218, so not the official ones" in data.origin and "MD5" not in data.origin
    # the official number of rows and lists with the official sums, but other pictures: never taken for the original
    source = replace(SOURCES["celeba"], rows=len(data.columns["y"]))
    facts = replace(FACTS["celeba"], checksums={f"celeba/{name}": f"md5:{digest}" for name, digest in sums.items()})
    monkeypatch.setitem(SOURCES, "celeba", source)
    monkeypatch.setitem(FACTS, "celeba", facts)
    found = entry(source, tmp_path)
    assert found.word == "altered"
    assert found.told.startswith("a re-encoded or altered copy; 11 pictures are not 178x218, so not the official ones")
    put_celeba(tmp_path)
    assert load("celeba", tmp_path).altered == "" and entry(source, tmp_path).word == "counts"


def test_odd_celeba_pictures(tmp_path):
    folder = put_celeba(tmp_path)
    path = folder / file(1)
    whole = path.read_bytes()
    for damaged in (b"", whole[:300], whole[: len(whole) // 2], b"<html>gone</html>"):
        path.write_bytes(damaged)
        with pytest.raises(FedchordError) as error:
            load("celeba", tmp_path)
        assert str(error.value).startswith(f"celeba: {path} is damaged: expected a picture, got ")
        assert "\n" not in str(error.value)
    skipping = celeba.read(tmp_path, skip_damaged=True)
    assert len(skipping.columns["y"]) == 10
    assert skipping.origin.endswith(f"Damaged files that were skipped: 1, the first is {path}.")
    path.rename(folder / "other.jpg")
    with pytest.raises(FedchordError) as error:
        load("celeba", tmp_path)
    assert str(error.value) == f"celeba: {path} is in the lists, but there is no such picture"
    assert len(celeba.read(tmp_path, skip_damaged=True).columns["y"]) == 10


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        (
            "list_attr_celeba.txt",
            "Smiling",
            "Smile",
            "has no column Smiling in its second line (Bald, Smile, Young ...)",
        ),
        (
            "list_attr_celeba.txt",
            "000002.jpg -1  1 1",
            "000002.jpg -1",
            "line 4 must hold a picture and 3 times 1 or -1",
        ),
        ("list_attr_celeba.txt", "000002.jpg -1  1 1", "000002.jpg -1 0 1", "line 4 must hold a picture and 3 times"),
        ("list_attr_celeba.txt", "000015.jpg -1  -1 1\n", "", "has no line for 1 of the 15 pictures in"),
        ("identity_CelebA.txt", "000002.jpg 7", "000002.jpg", "line 2 must hold a picture and a person"),
        ("identity_CelebA.txt", "000002.jpg 7\n", "", "000002.jpg of list_attr_celeba.txt is not in"),
    ],
)
def test_odd_celeba_lists(tmp_path, name, old, new, message):
    put_celeba(tmp_path)
    path = tmp_path / "celeba" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(FedchordError) as error:
        load("celeba", tmp_path)
    assert str(error.value).startswith("celeba: ") and message in str(error.value) and "\n" not in str(error.value)


def test_odd_leaf_celeba(tmp_path):
    put_celeba(tmp_path)
    put_leaf(tmp_path)
    path = tmp_path / "celeba/train/all_data.json"
    path.write_text(path.read_text().replace('"000001.jpg"', '"../000001.jpg"'))
    with pytest.raises(FedchordError, match=r"user 7: x must be names of pictures and y 0 or 1$"):
        load("celeba", tmp_path)
    (tmp_path / "celeba/test/all_data.json").unlink()
    path.write_text(path.read_text().replace("../", ""))
    with pytest.raises(FedchordError, match=r"missing celeba/test/\*.json"):
        load("celeba", tmp_path)


def test_missing_celeba(tmp_path):
    (tmp_path / "celeba").mkdir()
    with pytest.raises(FedchordError, match=r"^celeba: missing celeba/img_align_celeba/\*.jpg, celeba/identity_CelebA"):
        load("celeba", tmp_path)


# -- TinyImageNet ------------------------------------------------------------------------------------------------------

CLASSES = [f"n{i:08d}" for i in range(200)]


def put_tiny(root: Path) -> Path:
    folder = root / "tiny-imagenet-200"
    for name in (CLASSES[5], CLASSES[2]):
        for i in range(3):
            level = 10 * CLASSES.index(name) + 5 * i
            put_picture(folder / f"train/{name}/images/{name}_{i}.JPEG", level, (64, 64), "L" if i == 2 else "RGB")
    for i, name in enumerate((CLASSES[5], CLASSES[2], CLASSES[199])):
        put_picture(folder / f"val/images/val_{i}.JPEG", 40 + i, (64, 64))
        with (folder / "val/val_annotations.txt").open("a") as lines:
            lines.write(f"val_{i}.JPEG\t{name}\t0\t0\t62\t63\n")
    (folder / "wnids.txt").write_text("\n".join(reversed(CLASSES)) + "\n")
    return folder


def test_tiny_imagenet(tmp_path):
    put_tiny(tmp_path)
    assert status(SOURCES["tinyimagenet"], tmp_path) == "present"
    data = load("tinyimagenet", tmp_path)
    assert data.classes == 200
    assert data.columns["x"].shape == (6, 3, 64, 64) and data.columns["x"].dtype == torch.uint8
    assert data.columns["y"].tolist() == [2, 2, 2, 5, 5, 5]  # the sorted order, not that of wnids.txt
    assert data.holdout["y"].tolist() == [5, 2, 199]
    expected = [[20, 40, 60], [25, 50, 75], [30, 30, 30], [50, 100, 150], [55, 110, 165], [60, 60, 60]]
    means = data.columns["x"].float().mean(dim=(2, 3))
    assert torch.allclose(means, torch.tensor(expected, dtype=torch.float32), atol=2)
    assert "6 training and 3 test rows, not the official 100000 training and 10000 test rows" in data.origin


def test_changed_labels_are_seen(tmp_path):
    folder = put_tiny(tmp_path)
    assert load("tinyimagenet", tmp_path).holdout["y"].tolist() == [5, 2, 199]
    notes = folder / "val/val_annotations.txt"
    notes.write_text(notes.read_text().replace(CLASSES[199], CLASSES[198]))
    assert load("tinyimagenet", tmp_path).holdout["y"].tolist() == [5, 2, 198]


def test_odd_tiny_imagenet(tmp_path):
    folder = put_tiny(tmp_path)

    def refused(start: str) -> None:
        with pytest.raises(FedchordError) as error:
            load("tinyimagenet", tmp_path)
        assert str(error.value).startswith(start) and "\n" not in str(error.value)

    path = folder / f"train/{CLASSES[2]}/images/{CLASSES[2]}_0.JPEG"
    whole = path.read_bytes()
    put_picture(path, 1, (32, 32))
    refused(f"tinyimagenet: {path} must have 64x64 pixels, got 32x32 pixels")
    path.write_bytes(whole[:-200])
    refused(f"tinyimagenet: {path} is damaged: expected a picture, got ")
    skipping = tinyimagenet.read(tmp_path, skip_damaged=True)
    assert (len(skipping.columns["y"]), len(skipping.holdout["y"])) == (5, 3)
    assert f"skipped: 1, the first is {path}." in skipping.origin
    path.write_bytes(whole)
    (folder / "train/n99").mkdir()
    refused("unknown class in ")
    (folder / "train/n99").rmdir()
    (folder / f"train/{CLASSES[7]}").mkdir()
    refused(f"tinyimagenet: {folder / 'train' / CLASSES[7] / 'images'} holds no pictures")
    (folder / f"train/{CLASSES[7]}").rmdir()
    (folder / "val/images/val_1.JPEG").rename(folder / "val/images/val_7.JPEG")
    refused(f"tinyimagenet: {folder / 'val/images/val_1.JPEG'} is in val_annotations.txt, but there is no such picture")
    (folder / "val/images/val_7.JPEG").rename(folder / "val/images/val_1.JPEG")
    notes = folder / "val/val_annotations.txt"
    kept = notes.read_text()
    notes.write_text("val_0.JPEG\tn1\n")
    refused("unknown class in line 1 of ")
    notes.write_text("val_0.JPEG\n")
    refused(f"tinyimagenet: {notes} line 1 must hold a picture and a class")
    notes.write_text(kept)
    (folder / "wnids.txt").write_text("n1\nn2\n")
    refused(f"tinyimagenet: {folder / 'wnids.txt'} must list 200 classes, got 2")
    (folder / "wnids.txt").unlink()
    refused("tinyimagenet: missing tiny-imagenet-200/wnids.txt in ")


@pytest.mark.data
def test_real_tiny_imagenet(data_root):
    if status(SOURCES["tinyimagenet"], data_root) != "present":
        pytest.skip("tinyimagenet is not under FEDCHORD_DATA")
    data = load("tinyimagenet", data_root)
    assert len(data.columns["y"].unique()) == 200
    mean = data.columns["x"][::7].float().mean(dim=(0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx([0.480, 0.448, 0.398], abs=0.02)  # the known mean of the full set


@pytest.mark.data
def test_real_celeba(data_root):
    if status(SOURCES["celeba"], data_root) != "present":
        pytest.skip("celeba is not under FEDCHORD_DATA")
    data = load("celeba", data_root)
    assert int(torch.bincount(data.groups).min()) >= 5
