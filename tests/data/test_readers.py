"""Your own data: arrays, torch data sets, .npz and .csv files."""

import io
import zipfile

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from fedchord.check import FedchordError
from fedchord.data import Iid, Natural, federate, from_arrays, from_csv, from_npz, from_torch


def test_arrays_of_numpy_and_torch_agree():
    x = np.arange(12, dtype=np.float64).reshape(6, 2)
    y = np.array([0, 1, 2, 0, 1, 2], dtype=np.int32)
    one, two = from_arrays(x, y), from_arrays(torch.from_numpy(x), torch.from_numpy(y))
    for data in (one, two):
        assert data.columns["x"].dtype == torch.float32
        assert data.columns["y"].dtype == torch.int64
        assert data.classes == 3
    assert torch.equal(one.columns["x"], two.columns["x"])
    assert federate(one, Iid(), 2).num_clients == 2


def test_bytes_stay_bytes_and_odd_arrays_are_accepted():
    read_only = np.zeros((4, 3, 2, 2), dtype=np.uint8)
    read_only.flags.writeable = False
    assert from_arrays(read_only, [0, 1, 0, 1]).columns["x"].dtype == torch.uint8
    swapped = np.arange(4, dtype=">i4")[::-1]
    data = from_arrays(np.arange(8.0).reshape(4, 2)[::-1], swapped)
    assert data.columns["y"].tolist() == [3, 2, 1, 0]
    assert data.columns["x"][0].tolist() == [6, 7]
    assert from_arrays(np.zeros((2, 1), dtype=np.uint16), np.array([0, 1], dtype=np.uint32)).classes == 2


def test_client_keys_per_row():
    data = from_arrays(np.zeros((5, 1)), np.zeros(5, dtype=int), clients=["b", "a", "b", "c", "a"])
    assert data.group_names == ("a", "b", "c")
    assert data.groups.tolist() == [1, 0, 1, 2, 0]
    numbers = from_arrays(np.zeros((3, 1)), np.zeros(3, dtype=int), clients=np.array([10, 9, 10]))
    assert numbers.group_names == ("9", "10")
    assert numbers.groups.tolist() == [1, 0, 1]


def test_pairs_per_client():
    pairs = [(np.full((2, 1), i), [i, 0]) for i in range(12)]
    data = from_arrays(clients=pairs)
    made = federate(data, Natural())
    assert made.client_names == tuple(str(i) for i in range(12))
    assert data.columns["x"][made.train[11]].flatten().tolist() == [11]
    named = from_arrays(clients={"north": pairs[3], "east": pairs[1]}, classes=12)
    first = from_arrays({"north": pairs[3], "east": pairs[1]}, classes=12)
    assert torch.equal(first.columns["x"], named.columns["x"]) and first.group_names == named.group_names
    assert named.group_names == ("east", "north")
    assert named.columns["y"].tolist() == [3, 0, 1, 0]


def test_holdout_and_classes():
    data = from_arrays(np.zeros((2, 1)), [0, 1], classes=5, holdout=(np.ones((1, 1)), [4]))
    assert data.classes == 5
    assert data.holdout["y"].tolist() == [4]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"x": {"a": ([[1.0]], [0])}, "y": [0]},
            "arrays: a dict from client names to (x, y) comes without y and clients",
        ),
        ({}, "arrays: needs x and y, or clients as a list of (x, y) or a dict from names to (x, y)"),
        (
            {"x": np.zeros((2, 1))},
            "arrays: needs x and y, or clients as a list of (x, y) or a dict from names to (x, y)",
        ),
        ({"x": [["a"]], "y": [0]}, "arrays: x must hold numbers, got an array of <U1"),
        ({"x": [[1], [1, 2]], "y": [0, 1]}, "arrays: x must be an array with rows of equal shape"),
        ({"x": 3, "y": [0]}, "arrays: x must be an array, got 3"),
        (
            {"x": [[1.0]], "y": [2.0]},
            "arrays: y holds floats that are all whole numbers; give whole numbers for classes, or say regression=True",
        ),
        (
            {"x": [[1.0]], "y": [0.5], "regression": False},
            "arrays: y holds floats that are not whole, so they are no classes",
        ),
        ({"x": [[1.0]], "y": [0.5], "classes": 3}, "arrays: regression has no classes, got classes=3"),
        ({"x": [[1.0]], "y": ["a"], "regression": True}, "arrays: y must hold numbers for regression, got words"),
        ({"x": [[1.0]], "y": [np.inf], "regression": True}, "arrays: column y holds inf at row 0"),
        (
            {"x": [[1, 2]], "y": [0], "scale": "client"},
            "arrays: scale needs rows that are vectors of floats, got (1, 2) torch.int64",
        ),
        ({"x": [[1.0]], "y": [0], "scale": "all"}, "arrays: scale must be one of client, none, got 'all'"),
        ({"x": [[1.0]], "y": [0, 1]}, "arrays: column y has 2 rows, column x has 1"),
        ({"x": [[np.nan]], "y": [0]}, "arrays: column x holds nan at row 0"),
        ({"x": [[1.0]], "y": [3], "classes": 2}, "arrays: label 3 at row 0 is out of range 0..1"),
        ({"x": [[1.0]], "y": [0], "clients": ["a", "b"]}, "arrays: groups has 2 rows, column x has 1"),
        ({"x": np.zeros((0, 1)), "y": np.zeros(0, int)}, "arrays: data have no rows"),
        ({"clients": []}, "arrays: data have no clients"),
        ({"clients": [3]}, "arrays: client 0 must be a pair (x, y)"),
        ({"clients": [([[1.0]], [0, 1])]}, "arrays: client 0 has 1 rows of x and 2 of y"),
        (
            {"clients": [([[1.0]], [0]), ([[1.0, 2.0]], [0])]},
            "arrays: client 1 has rows of another shape or type than the first client",
        ),
    ],
)
def test_wrong_arrays(arguments, message):
    with pytest.raises(FedchordError) as error:
        from_arrays(**arguments)
    assert str(error.value) == message


class Squares(Dataset):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def test_torch_data_sets():
    data = from_torch(Squares((torch.ones(2), 0), (np.zeros(2, np.float32), torch.tensor(2))), clients=["b", "a"])
    assert data.columns["x"].tolist() == [[1, 1], [0, 0]]
    assert data.columns["y"].tolist() == [0, 1] and data.class_names == ("0", "2")
    assert data.group_names == ("a", "b")
    tensors = TensorDataset(torch.ones(3, 2), torch.tensor([0, 1, 1]))
    assert from_torch(tensors, name="mine").columns["y"].tolist() == [0, 1, 1]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    "dataset, message",
    [
        (Stream(), "torch: the data set has no length; only map-style data sets can be read"),
        (Squares(), "torch: data have no rows"),
        (Squares(3), "torch: row 0 must be a pair (x, y)"),
        (Squares(("picture", 0)), "torch: row 0: x must be a tensor, an array or a number, got str"),
        (
            Squares((torch.zeros(2), 0), (torch.zeros(3), 0)),
            "torch: x has shape (3,) at row 1, (2,) at row 0",
        ),
    ],
)
def test_wrong_torch_data_sets(dataset, message):
    with pytest.raises(FedchordError) as error:
        from_torch(dataset)
    assert str(error.value) == message


def test_npz(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.zeros((3, 2)), y=np.array([0, 1, 1]), client=np.array(["b", "a", "b"]))
    data = from_npz(tmp_path / "mine.npz")
    assert data.name == "mine"
    assert data.groups.tolist() == [1, 0, 1]
    np.savez(tmp_path / "plain.npz", x=np.zeros((3, 2)), y=np.array([0, 1, 1]))
    assert from_npz(str(tmp_path / "plain.npz"), name="own", classes=4).groups is None


@pytest.mark.parametrize("kind", ["own", "medmnist"])
def test_a_corrupt_member_and_an_absurd_shape(tmp_path, kind):
    """A damaged deflate stream ends in zlib.error, a shape of 10^18 rows in MemoryError."""
    names = ("x", "y") if kind == "own" else [f"{part}_{what}" for part in ("train", "test") for what in "xy"]
    names = [name.replace("_x", "_images").replace("_y", "_labels") for name in names]
    noise = np.random.default_rng(0).integers(0, 256, (50, 8, 8), dtype=np.uint8)
    np.savez_compressed(tmp_path / "bad.npz", **dict.fromkeys(names, noise))
    content = bytearray((tmp_path / "bad.npz").read_bytes())
    content[60:80] = b"\xff" * 20
    (tmp_path / "bad.npz").write_bytes(content)
    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(huge, {"descr": "<f8", "fortran_order": False, "shape": (10**18,)})
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        for name in names:
            archive.writestr(f"{name}.npy", huge.getvalue())
    for name in ("bad", "huge"):
        with pytest.raises(FedchordError, match=rf"^{name}\b[^\n]* plain arrays[^\n]+$"):
            from_npz(tmp_path / f"{name}.npz")


def test_wrong_npz(tmp_path):
    with pytest.raises(FedchordError, match=r"none.npz: no such file$"):
        from_npz(tmp_path / "none.npz")
    np.savez(tmp_path / "x.npz", x=np.zeros(3), z=np.zeros(3))
    with pytest.raises(FedchordError, match=r"^x.npz: array y is missing \(arrays: x, z\)$"):
        from_npz(tmp_path / "x.npz")
    np.savez(tmp_path / "o.npz", x=np.array([None]), y=np.zeros(1, int))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_text("")
    np.save(tmp_path / "single.npy", np.zeros(3))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    whole = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("o", "text", "empty", "single", "cut"):
        with pytest.raises(
            FedchordError, match=rf"^{name}.npz: is not a readable .npz file of plain arrays \([^\n]+\)$"
        ) as caught:
            from_npz(tmp_path / f"{name}.npz")
        assert "allow_pickle" not in str(caught.value)  # no advice to load what may run anything


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_csv(tmp_path):
    file = write(
        tmp_path / "heart.csv",
        "age, sick ,hospital,pulse",
        "50,yes,north,1.5",
        "",
        "61,no,south,-2e1",
        '"40",yes,north,0',
    )
    data = from_csv(file, "sick", "hospital")
    assert data.columns["x"].tolist() == [[50, 1.5], [61, -20], [40, 0]]
    assert data.columns["y"].tolist() == [1, 0, 1]
    assert (data.classes, data.group_names, data.groups.tolist()) == (2, ("north", "south"), [0, 1, 0])
    assert data.origin == "Read from heart.csv; classes in order: no, yes."
    assert from_csv(file, "sick", "hospital", classes=["yes", "no", "maybe"]).columns["y"].tolist() == [0, 1, 0]


def test_csv_labels_that_are_numbers_are_sorted_by_value(tmp_path):
    file = write(tmp_path / "n.csv", "\ufeffx,y", "0,10", "0,9", "0,10")
    data = from_csv(file, "y")
    assert data.columns["y"].tolist() == [1, 0, 1]
    assert data.groups is None


@pytest.mark.parametrize(
    "lines, label, message",
    [
        (["age,sick"], "sick", "d.csv: data have no rows"),
        ([], "sick", "d.csv: is empty; a header line was expected"),
        (["age,sick", "1,0"], "sic", "unknown column of d.csv 'sic'; did you mean 'sick'? (known: age, sick)"),
        (["age,sick", "nan,0"], "sick", "d.csv: column 'age' has no value; leave it out with data.drop=age"),
        (["age,sick", "1,0", "inf,1"], "sick", "d.csv: line 3, column 'age' must be a finite number, got inf"),
        (
            ["age,sick", "1,0", "2,1", "", "old,1"],
            "sick",
            "d.csv: line 5, column 'age' must be a number like the others, got 'old'; if the column is a category, "
            "say data.category=age",
        ),
        (["age,sick", "1,0,3"], "sick", "d.csv: line 2 has 3 cells, the header has 2"),
        (["age,sick", "1,"], "sick", "d.csv: line 2, column 'sick' is empty"),
        (["age,age,sick", "1,2,0"], "sick", "d.csv: column 'age' occurs twice in the header"),
        (["sick", "0"], "sick", "d.csv: has no feature column"),
    ],
)
def test_wrong_csv(tmp_path, lines, label, message):
    file = tmp_path / "d.csv"
    file.write_text("\n".join(lines))
    with pytest.raises(FedchordError) as error:
        from_csv(file, label)
    assert str(error.value) == message


def test_more_wrong_csv(tmp_path):
    file = write(tmp_path / "d.csv", "x,y", "1,a")
    with pytest.raises(FedchordError, match=r"none.csv: no such file$"):
        from_csv(tmp_path / "none.csv", "y")
    with pytest.raises(FedchordError, match=r"^unknown column of d.csv 'site' \(known: x, y\)$"):
        from_csv(file, "y", "site")
    with pytest.raises(FedchordError, match=r"^d.csv: column 'y' cannot be both label and client$"):
        from_csv(file, "y", "y")
    with pytest.raises(FedchordError, match=r"^unknown class in line 2 of d.csv 'a' \(known: b, c\)$"):
        from_csv(file, "y", classes=["b", "c"])
    (tmp_path / "latin.csv").write_bytes(b"x,y\n1,\xe9\n")
    with pytest.raises(FedchordError, match=r"^latin.csv: is not a readable .csv file after line "):
        from_csv(tmp_path / "latin.csv", "y")
