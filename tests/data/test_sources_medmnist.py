"""MedMNIST files: the layout, damaged and renamed files, and how a copy that is not the official one is named."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fedchord.check import FedchordError
from fedchord.data import SOURCES, from_npz, load, status
from fedchord.data.sources import medmnist
from fedchord.data.sources.medmnist import read_medmnist


def arrays(side: int = 28, channels: int = 3, classes: int = 7, rows: tuple[int, int, int] = (9, 3, 4)) -> dict:
    dice = np.random.default_rng(0)
    made = {}
    for part, count in zip(("train", "val", "test"), rows, strict=True):
        shape = (count, side, side, 3) if channels == 3 else (count, side, side)
        made[f"{part}_images"] = dice.integers(0, 256, shape).astype(np.uint8)
        made[f"{part}_labels"] = (np.arange(count) % classes).astype(np.uint8)[:, None]
    return made


def put(root: Path, name: str, **changed) -> Path:
    path = root / f"medmnist/{name}.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **changed)
    return path


@pytest.mark.parametrize(
    "name, side, channels, classes",
    [("dermamnist", 28, 3, 7), ("dermamnist_64", 64, 3, 7), ("organcmnist", 28, 1, 11), ("organcmnist_64", 64, 1, 11)],
)
def test_parts_shapes_and_labels(tmp_path, name, side, channels, classes):
    made = arrays(side, channels)
    put(tmp_path, name, **made)
    assert status(SOURCES[name], tmp_path) == "present"
    data = load(name, tmp_path)
    assert data.classes == classes
    assert data.columns["x"].shape == (9, channels, side, side)
    assert data.columns["x"].dtype == torch.uint8
    for row, channel in ((0, 0), (8, channels - 1)):
        picture = made["train_images"][row]
        assert np.array_equal(data.columns["x"][row, channel], picture[:, :, channel] if channels == 3 else picture)
    assert data.columns["y"].tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 1]
    assert data.holdout["x"].shape == (4, channels, side, side)
    assert data.holdout["y"].tolist() == [0, 1, 2, 3]


def test_a_copy_is_not_taken_for_the_official_file(tmp_path, monkeypatch):
    path = put(tmp_path, "dermamnist", **arrays())
    assert (
        "9 training and 4 test rows (official: 7007 and 2005); not an official" in load("dermamnist", tmp_path).origin
    )
    monkeypatch.setitem(medmnist.OFFICIAL, "dermamnist", (7, 9, 4))
    assert "(official: 9 and 4, which agrees, but the content does not)" in load("dermamnist", tmp_path).origin
    digest = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(medmnist.MD5, digest, "dermamnist")
    assert "the official file by its MD5 sum" in load("dermamnist", tmp_path).origin
    monkeypatch.setitem(medmnist.MD5, digest, "bloodmnist")
    with pytest.raises(FedchordError, match=r"^dermamnist: .*npz is bloodmnist by its MD5 sum$"):
        load("dermamnist", tmp_path)


def test_checksums_of_every_size():
    """Every set has a sum for 28, 64, 128 and 224 pixels."""
    wanted = {f"{name}{size}" for name in medmnist.OFFICIAL for size in ("", "_64", "_128", "_224")}
    assert wanted <= set(medmnist.MD5.values()) and len(medmnist.MD5) == len(wanted) + 1
    assert all(re.fullmatch("[0-9a-f]{32}", digest) for digest in medmnist.MD5)
    # three of the package medmnist 3.0.2, by hand
    known = {name: digest for digest, name in medmnist.MD5.items()}
    assert known["dermamnist_128"] == "2defd784463fa5243564e855ed717de1"
    assert known["dermamnist_224"] == "8974907d8e169bef5f5b96bc506ae45d"
    assert known["organcmnist_224"] == "050f5e875dc056f6768abf94ec9995d1"


def test_an_official_file_of_a_larger_size(tmp_path, monkeypatch):
    path = put(tmp_path, "breastmnist_128", **arrays(side=128, channels=1, classes=2))
    assert "not an official MedMNIST file by its MD5 sum" in from_npz(path).origin
    monkeypatch.setitem(medmnist.MD5, hashlib.md5(path.read_bytes()).hexdigest(), "breastmnist_128")
    assert "breastmnist_128 (breastmnist_128.npz): 9 training and 4 test rows, the official" in from_npz(path).origin


def test_any_other_set_of_the_layout(tmp_path):
    path = put(tmp_path, "own_things", **arrays(side=12, channels=1, classes=3))
    for read in (read_medmnist, from_npz):
        data = read(path)
        assert (data.name, data.classes, data.columns["x"].shape) == ("own_things", 3, (9, 1, 12, 12))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"train_images": np.zeros((9, 28, 28, 28), np.uint8)}, "must be bytes of"),
        ({"train_images": np.zeros((9, 28, 28, 3))}, "got float64 of"),
        ({"train_labels": np.zeros((9, 14), np.uint8)}, "must hold one whole number per image, got (9, 14)"),
        ({"train_labels": np.zeros((8, 1), np.uint8)}, "holds 8 train labels for 9 images"),
        ({"test_images": np.zeros((4, 20, 20, 3), np.uint8)}, "train and test images differ in shape"),
        ({"test_labels": np.full((4, 1), 7, np.uint8)}, "has a label 7, expected 0..6"),
        ({"test_images": np.zeros((0, 28, 28, 3), np.uint8), "test_labels": np.zeros((0, 1), np.uint8)}, "no test"),
    ],
)
def test_odd_arrays(tmp_path, change, message):
    put(tmp_path, "dermamnist", **(arrays() | change))
    with pytest.raises(FedchordError) as error:
        load("dermamnist", tmp_path)
    assert str(error.value).startswith("dermamnist: ") and message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_arrays_truncated_and_misnamed_files(tmp_path):
    made = arrays()
    path = put(tmp_path, "dermamnist", **{k: v for k, v in made.items() if k != "test_labels"})
    with pytest.raises(FedchordError, match=r"has no array test_labels \(arrays: train_images"):
        load("dermamnist", tmp_path)
    put(tmp_path, "dermamnist", **made)
    whole = path.read_bytes()
    for damaged in (whole[:-100], whole[:50], b"", whole[:5000] + b"\xff" * 50 + whole[5050:]):
        path.write_bytes(damaged)
        with pytest.raises(FedchordError, match=r"^dermamnist: .*npz is damaged: expected an .npz file"):
            load("dermamnist", tmp_path)
    path.write_bytes(whole)
    path.rename(path.with_name("dermamnist_64.npz"))
    with pytest.raises(FedchordError, match=r"images of 28 pixels, expected 64$"):
        load("dermamnist_64", tmp_path)
    with pytest.raises(FedchordError, match=r"^dermamnist: missing medmnist/dermamnist.npz in "):
        load("dermamnist", tmp_path)


@pytest.mark.data
@pytest.mark.parametrize("name, side", [("dermamnist", 28), ("dermamnist_64", 64)])
def test_real_dermamnist(data_root, name, side):
    if status(SOURCES[name], data_root) != "present":
        pytest.skip(f"{name} is not under FEDCHORD_DATA")
    data = load(name, data_root)
    assert data.columns["x"].shape == (7007, 3, side, side)
    assert len(data.holdout["y"]) == 2005
    # melanocytic nevi are 67 % of HAM10000
    assert torch.bincount(data.columns["y"], minlength=7).argmax() == 5


@pytest.mark.data
def test_real_pneumoniamnist(data_root):
    """A file of another name than those of the sources, read by its path."""
    path = data_root / "medmnist/pneumoniamnist.npz"
    if not path.is_file():
        pytest.skip("pneumoniamnist is not under FEDCHORD_DATA")
    data = from_npz(path)
    assert (data.name, data.classes) == ("pneumoniamnist", 2)
    assert data.columns["x"].shape[1:] == (1, 28, 28) and data.columns["x"].dtype == torch.uint8
    assert len(data.holdout["y"]) == 624 and torch.bincount(data.holdout["y"]).tolist() == [234, 390]
    official = "the official file by its MD5 sum" in data.origin
    assert (len(data.columns["y"]) == 4708) == official or "not an official MedMNIST file" in data.origin
