"""A synthetic set: what is refused, files, pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from fedchord.check import FedchordError
from fedchord.synthetic.look import GAP, grid, sheet, strip, write
from fedchord.synthetic.set import SyntheticSet, load, save, save_pictures


def made(classes: int = 3, spc: int = 4, shape: tuple[int, ...] = (1, 5, 7), seed: int = 0) -> SyntheticSet:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(classes).repeat_interleave(spc)
    return SyntheticSet(torch.rand(classes * spc, *shape, generator=generator), y, 0.0, 1.0, classes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.rand(11, 2), "y": torch.zeros(11).long()}, "must be a multiple of the 3 classes, got 11"),
        ({"y": torch.arange(3).repeat(4)}, "every class must have 4 rows, ordered class by class"),
        ({"x": torch.rand(12, 2) + 0.5}, r"x must lie in \[0, 1\], got values from 1\.\d+ to 1\.\d+"),
        ({"x": torch.full((12, 2), torch.nan)}, "x must hold finite numbers, got 24 that are not"),
        ({"x": torch.rand(0, 2), "y": torch.zeros(0).long()}, "the set has no rows"),
        ({"x": torch.zeros(12, 2, dtype=torch.uint8)}, "x must hold rows of float32 numbers"),
        ({"y": torch.zeros(12)}, "y must hold 12 labels"),
        ({"classes": 0}, "classes must be a whole number of at least 1, got 0"),
        ({"high": torch.tensor([0.1, 1.0])}, "x must lie in its feature's range"),
    ],
)
def test_what_is_no_set_is_refused_in_one_line(change, message):
    base = {"x": torch.rand(12, 2), "y": torch.arange(3).repeat_interleave(4), "low": 0.0, "high": 1.0, "classes": 3}
    with pytest.raises(FedchordError, match=message) as caught:
        SyntheticSet(**(base | change))
    assert "\n" not in str(caught.value)


def test_rounding_at_the_ends_is_no_mistake():
    base = made()
    SyntheticSet(base.x * 0 + 1.000001, base.y, 0.0, 1.0, 3)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (torch.zeros(2), torch.tensor([1.0, 2.0]))])
def test_a_file_brings_the_set_back(tmp_path, bounds):
    base = made(shape=(2,))
    one = SyntheticSet(base.x, base.y, *bounds, 3)
    other = load(save(one, tmp_path / "a" / "set.npz"))
    assert torch.equal(one.x, other.x) and torch.equal(one.y, other.y) and other.classes == 3
    for before, after in zip(bounds, (other.low, other.high), strict=True):
        assert torch.equal(torch.as_tensor(before), torch.as_tensor(after))
    assert len(other.dataset()) == 12 and other.dataset()[5][1] == 1


def test_a_file_of_bytes_is_read_as_numbers(tmp_path):
    pixels = np.arange(12, dtype=np.uint8).reshape(6, 1, 1, 2)
    np.savez(tmp_path / "own.npz", x=pixels, y=np.repeat([0, 1], 3))
    assert torch.allclose(load(tmp_path / "own.npz").x.flatten() * 255, torch.arange(12.0))


def test_wrong_files_are_told(tmp_path):
    (tmp_path / "text.npz").write_text("no")
    np.savez(tmp_path / "half.npz", x=np.zeros((2, 2)))
    for name, message in (("text.npz", "not a readable"), ("half.npz", "has no array y"), ("none.npz", "no such file")):
        with pytest.raises(FedchordError, match=message):
            load(tmp_path / name)
    with pytest.raises(FedchordError, match=r"must end in \.npz"):
        save(made(), tmp_path / "set.txt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.full((4, 2), "a")}, "x must hold numbers, got str"),
        ({"y": np.array(list("abcd"))}, "y must hold numbers, got str"),
        ({"y": np.array([0, 0.5, 1, 1.5])}, "y must hold labels, which are whole numbers"),
        ({"y": np.array([0, np.nan, 1, 1])}, "y must hold labels, which are whole numbers"),
        ({"x": np.zeros((4, 2)) * 1j}, "x must hold numbers, got complex128"),
        ({"x": np.float64(1)}, "the set has no rows"),
        ({"y": np.int64(1)}, r"y must hold 4 labels"),
        ({"classes": np.array([2, 2])}, r"classes must be one whole number, got shape \(2,\)"),
        ({"classes": np.array(1.5)}, "classes must be one whole number, got 1.5"),
        ({"classes": np.array(np.nan)}, "classes must be one whole number, got nan"),
        ({"low": np.zeros(3)}, r"low must be one number or fit rows of shape \(2,\), got shape \(3,\)"),
        ({"high": np.ones((4, 2))}, r"high must be one number or fit rows of shape \(2,\), got shape \(4, 2\)"),
        ({"low": np.array("a")}, "low must hold numbers, got str"),
    ],
)
def test_files_with_wrong_arrays_are_told_in_one_line(tmp_path, change, message):
    np.savez(tmp_path / "a.npz", **({"x": np.zeros((4, 2)), "y": np.array([0.0, 0, 1, 1])} | change))
    with pytest.raises(FedchordError, match=message) as caught:
        load(tmp_path / "a.npz")
    assert str(caught.value).startswith(f"{tmp_path / 'a.npz'}: ") and "\n" not in str(caught.value)


def test_whole_numbers_stored_as_floats_are_labels(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=np.array([0.0, 0, 1, 1]), low=np.zeros(2), classes=np.array([2]))
    found = load(tmp_path / "a.npz")
    assert found.y.tolist() == [0, 0, 1, 1] and found.low.tolist() == [0, 0] and found.classes == 2


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_read_back_are_the_samples(tmp_path, channels):
    base = made(shape=(channels, 5, 7))
    assert save_pictures(base, tmp_path) == 12
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.png"))[:5] == [
        "0/0000.png", "0/0001.png", "0/0002.png", "0/0003.png", "1/0000.png",
    ]  # fmt: skip
    found = np.asarray(Image.open(tmp_path / "2" / "0001.png"), dtype=np.float64)
    expected = base.x[9].permute(1, 2, 0).numpy().squeeze()
    assert found.shape == expected.shape and np.abs(found / 255 - expected).max() <= 0.5 / 255 + 1e-6


def test_a_grid_has_classes_as_rows(tmp_path):
    base = made(classes=3, spc=4, shape=(1, 28, 28))
    file = write(grid(base, columns=2), tmp_path / "grid.png")
    found = np.asarray(Image.open(file))
    assert found.shape == (3 * (56 + GAP) + GAP, 2 * (56 + GAP) + GAP)
    top, left = 2 * (56 + GAP) + GAP, 56 + GAP + GAP  # the second sample of the third class, each pixel twice as large
    tile = found[top : top + 56, left : left + 56]
    assert np.array_equal(tile[::2, ::2], (base.x[9, 0] * 255).round().numpy().astype(np.uint8))
    assert np.array_equal(tile[::2, ::2], tile[1::2, 1::2])


def test_a_strip_has_rounds_as_columns():
    first, second = made(shape=(1, 60, 60), seed=1), made(shape=(1, 60, 60), seed=2)
    found = strip({10: second, 1: first})
    assert found.shape == (1, 3 * (60 + GAP) + GAP, 2 * (60 + GAP) + GAP)
    row = slice(60 + 2 * GAP, 120 + 2 * GAP)  # the first sample of the second class
    assert torch.equal(found[0, row, GAP : 60 + GAP], (first.x[4, 0] * 255).round().to(torch.uint8))
    assert torch.equal(found[0, row, 60 + 2 * GAP : 120 + 2 * GAP], (second.x[4, 0] * 255).round().to(torch.uint8))


def test_a_sheet_has_the_grids_side_by_side():
    one, other = grid(made(shape=(1, 8, 8))), grid(made(shape=(3, 8, 8)))
    found = sheet({"real": one, "FedEvg": other})
    assert found.width > one.shape[2] + other.shape[2] and found.height > one.shape[1]


def test_tables_are_no_pictures(tmp_path):
    with pytest.raises(FedchordError, match="are no pictures"):
        grid(made(shape=(4,)))
    with pytest.raises(FedchordError, match=r"must end in \.png"):
        write(grid(made()), tmp_path / "grid.jpg")
