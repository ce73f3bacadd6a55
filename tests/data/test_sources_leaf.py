"""FEMNIST and Shakespeare in LEAF's json layout, the cache behind them, and the split that data come with."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedchord.check import FedchordError
from fedchord.data import SOURCES, DataSet, Federation, Iid, Natural, federate, load, prepare, status
from fedchord.data.formats import cache
from fedchord.data.sources.shakespeare import ALPHABET


@pytest.fixture(autouse=True)
def no_outer_cache(monkeypatch):
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)


def put(path: Path, users: dict[str, tuple[list, list]], /, **changed) -> Path:
    held = {
        "users": list(users),
        "num_samples": [len(x) for x, _ in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held | changed))
    return path


def picture(level: int) -> list[float]:
    return [((level + i) % 256) / 255 for i in range(784)]


def put_femnist(root: Path, folder: str = "femnist") -> None:
    train = root / folder / "train"
    put(train / "b.json", {"f01": ([picture(1), picture(2)], [0, 61])})
    put(train / "a.json", {"f10": ([picture(3)], [5]), "f02": ([picture(4), picture(5), picture(6)], [1, 2, 3])})
    test = {"f02": ([picture(7)], [3]), "f01": ([picture(8)], [9]), "f99": ([picture(9)], [9])}
    put(root / folder / "test/all.json", test)


def rows_of(made: Federation, client: int) -> tuple[list[int], list[int]]:
    """The first pixels of a client's training and test rows, which are the levels of `picture`."""
    return tuple(made.columns["x"][part[client], 0, 0, 0].tolist() for part in (made.train, made.test))


@pytest.mark.parametrize("folder", ["femnist", "femnist/data"])
def test_femnist_writers_and_their_own_split(tmp_path, folder):
    put_femnist(tmp_path, folder)
    assert status(SOURCES["femnist"], tmp_path) == "present"
    data = load("femnist", tmp_path)
    assert data.classes == 62
    assert data.columns["x"].shape == (8, 1, 28, 28)
    assert data.columns["x"].dtype == torch.uint8
    assert data.group_names == ("f01", "f02", "f10")
    assert "3 clients, 6 training rows, 2 test rows; a subset or another preparation than the full set" in data.origin
    assert data.origin.endswith("the thesis has 730 clients. Users left out for want of training rows: 1.")
    made = federate(data, Natural())
    assert [rows_of(made, client) for client in range(3)] == [([1, 2], [8]), ([4, 5, 6], [7]), ([3], [])]
    assert made.columns["y"][made.train[0]].tolist() == [0, 61]
    assert "Local split as the data come: 6 training, 0 validation and 2 test rows." in made.notes
    assert "1 of 3 clients have no test rows." in made.notes
    batch = made.batch(made.train[0])
    assert torch.allclose(batch["x"].reshape(2, -1), torch.tensor([picture(1), picture(2)]), atol=1e-7)


def test_other_partitions_split_anew(tmp_path):
    put_femnist(tmp_path)
    made = federate(load("femnist", tmp_path), Iid(), num_clients=2, test=0.25)
    assert made.test.sizes.tolist() == [1, 1]


def own(parts: list[int]) -> DataSet:
    rows = torch.arange(len(parts))
    groups = (rows >= 5).long()
    columns = {"x": rows[:, None].float(), "y": torch.zeros(len(parts), dtype=torch.int64)}
    return DataSet("toy", columns, 1, groups=groups, parts=torch.tensor(parts, dtype=torch.int8))


def test_validation_rows_of_the_data_are_used_if_asked_for():
    data = own([0, 0, 1, 2, 2, 0, 1, 1, 0, 2])
    without, asked = federate(data, Natural()), federate(data, Natural(), validation=0.1)
    assert [part.tolist() for part in (without.train[0], without.validation[0], without.test[0])] == [
        [0, 1],
        [],
        [3, 4],
    ]
    assert any("3 validation rows are not used" in note for note in without.notes)
    assert [asked.validation[0].tolist(), asked.validation[1].tolist()] == [[2], [6, 7]]
    assert asked.train.rows.tolist() == [0, 1, 5, 8]


def test_validation_comes_from_training_rows_where_the_data_have_none():
    made = federate(own([0, 0, 0, 0, 2, 0, 0, 0, 0, 2]), Natural(), validation=0.25)
    assert made.test.rows.tolist() == [4, 9]
    assert made.validation.sizes.tolist() == [1, 1]
    assert sorted([*made.train.rows.tolist(), *made.validation.rows.tolist()]) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_odd_parts():
    with pytest.raises(FedchordError, match=r"^toy: a client has no training rows"):
        federate(own([0] * 5 + [2] * 5), Natural())
    with pytest.raises(FedchordError, match=r"^toy: parts must hold 0, 1 or 2 for each of the 10 rows$"):
        federate(own([0] * 9 + [3]), Natural())
    with pytest.raises(FedchordError, match=r"parts must hold"):
        federate(replace(own([0] * 10), parts=torch.zeros(9)), Natural())


def test_stored_numbers_become_what_models_take():
    stored = {
        "pixels": torch.tensor([0, 51, 255], dtype=torch.uint8),
        "sound": torch.tensor([-32768, 0, 16384], dtype=torch.int16),
        "letters": torch.tensor([0, 79], dtype=torch.int8),
        "words": torch.tensor([0, 9999], dtype=torch.int32),
        "mask": torch.tensor([True]),
    }
    ready = prepare(stored)
    assert ready["pixels"].tolist() == pytest.approx([0, 0.2, 1])
    assert ready["sound"].tolist() == [-1, 0, 0.5]
    assert (ready["letters"].dtype, ready["letters"].tolist()) == (torch.int64, [0, 79])
    assert (ready["words"].dtype, ready["words"].tolist()) == (torch.int64, [0, 9999])
    assert ready["mask"].dtype == torch.bool


TEXT = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer The slings and arrows"


def windows(start: int, stop: int) -> tuple[list[str], list[str]]:
    return [TEXT[i : i + 80] for i in range(start, stop)], [TEXT[i + 80] for i in range(start, stop)]


def put_shakespeare(root: Path) -> None:
    put(root / "shakespeare/train/all_data_0_train_8.json", {"HAMLET_HAMLET": windows(0, 20), "A_B": windows(3, 4)})
    put(root / "shakespeare/test/all_data_0_test_8.json", {"HAMLET_HAMLET": windows(20, 24)})


def test_shakespeare_letters(tmp_path):
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert (ALPHABET[0], ALPHABET[1], ALPHABET[-1], ALPHABET.index("A"), ALPHABET.index("a")) == (
        "\n",
        " ",
        "}",
        25,
        53,
    )
    put_shakespeare(tmp_path)
    data = load("shakespeare", tmp_path)
    assert data.classes == 80
    made = federate(data, Natural())
    assert made.client_names == ("A_B", "HAMLET_HAMLET")
    batch = made.batch(made.test[1])
    assert batch["x"].dtype == torch.int64
    spelt = ["".join(ALPHABET[i] for i in row) for row in batch["x"].tolist()]
    assert (spelt, [ALPHABET[i] for i in batch["y"].tolist()]) == windows(20, 24)
    assert len(made.train[1]) == 20
    assert "the thesis has 660 clients" in data.origin


@pytest.mark.parametrize(
    "x, y, message",
    [
        (["a" * 79], ["b"], "x must hold texts of 80 letters"),
        (["a" * 80], ["bc"], "y must hold texts of 1 letters"),
        (["a" * 80], [3], "y must hold texts of 1 letters"),
        (["a" * 79 + "é"], ["b"], "'é' is not in LEAF's alphabet of 80"),
        (["a" * 79 + "\u4e00"], ["b"], "'\u4e00' is not in LEAF's alphabet of 80"),
        (["a" * 79 + "~"], ["b"], "'~' is not in LEAF's alphabet of 80"),
    ],
)
def test_odd_texts(tmp_path, x, y, message):
    put_shakespeare(tmp_path)
    path = put(tmp_path / "shakespeare/train/more.json", {"X_Y": (x, y)})
    with pytest.raises(FedchordError) as error:
        load("shakespeare", tmp_path)
    assert str(error.value) == f"shakespeare: {path}: user X_Y: {message}"


@pytest.mark.parametrize(
    "x, y, message",
    [
        ([[0.0] * 783], [1], "x must hold 784 numbers per row, got (783,)"),
        ([[0.0] * 784, [0.0]], [1, 2], "x must hold 784 numbers per row"),
        ([["a"] * 784], [1], "x must hold 784 numbers per row"),
        ([[0.3] * 784], [1], "pixels must be whole 255ths between 0 and 1, as LEAF writes them"),
        ([[-1.0] * 784], [1], "pixels must be whole 255ths between 0 and 1, as LEAF writes them"),
        ([[0.0] * 784], [62], "y must hold whole numbers 0..61"),
        ([[0.0] * 784], ["a"], "y must hold whole numbers 0..61"),
        ([[0.0] * 784] * 2, [1, [2]], "y must hold whole numbers 0..61"),
        ([[0.0] * 784] * 2, [1, 10**30], "y must hold whole numbers 0..61"),
        ([[10**400] * 784], [1], "x must hold 784 numbers per row"),
    ],
)
def test_odd_pictures(tmp_path, x, y, message):
    put_femnist(tmp_path)
    path = put(tmp_path / "femnist/train/more.json", {"odd": (x, y)})
    with pytest.raises(FedchordError) as error:
        load("femnist", tmp_path)
    assert str(error.value) == f"femnist: {path}: user odd: {message}"


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"users": ["f50", "f50"]}, "a user is listed twice"),
        ({"users": [["f50"]]}, "users must be names, got a list"),
        ({"users": [None]}, "users must be names, got a NoneType"),
        ({"users": []}, "user f50 is not in both users and user_data"),
        ({"user_data": []}, "users must be a list and user_data a dict"),
        ({"user_data": {"f50": {"x": []}}}, "user f50 must have a list x and a list y"),
        ({"user_data": {"f50": {"x": [1], "y": []}}}, "user f50 has 1 rows of x and 0 of y"),
    ],
)
def test_odd_json(tmp_path, changed, message):
    put_femnist(tmp_path)
    path = put(tmp_path / "femnist/train/more.json", {"f50": ([picture(0)], [1])}, **changed)
    with pytest.raises(FedchordError) as error:
        load("femnist", tmp_path)
    assert str(error.value) == f"femnist: {path}: {message}"


def test_damaged_and_missing_json(tmp_path):
    put_femnist(tmp_path)
    path = tmp_path / "femnist/train/a.json"
    whole = path.read_bytes()
    for damaged in (whole[:-5], b"", b"\xff\xfe\x00", b"<html>"):
        path.write_bytes(damaged)
        with pytest.raises(FedchordError) as error:
            load("femnist", tmp_path)
        assert str(error.value).startswith(f"femnist: {path} is damaged: expected a LEAF json file, got ")
        assert "\n" not in str(error.value)
    path.write_text('{"users": [], "data": {}}')
    with pytest.raises(FedchordError, match=r"a.json has no entry 'user_data' \(entries: data, users\)$"):
        load("femnist", tmp_path)
    path.write_text("[1]")
    with pytest.raises(FedchordError, match=r"a.json holds a list, expected a dict$"):
        load("femnist", tmp_path)
    path.write_bytes(whole)
    (tmp_path / "femnist/train/c.json").write_bytes(whole)
    with pytest.raises(FedchordError, match=r"c.json: user f10 is in two train files$"):
        load("femnist", tmp_path)
    (tmp_path / "femnist/train/c.json").unlink()
    (tmp_path / "femnist/test/all.json").rename(tmp_path / "femnist/test/all.txt")
    with pytest.raises(
        FedchordError,
        match=r"^femnist: missing femnist/test/\*.json in .*; fedchord data get femnist, or get it from https",
    ):
        load("femnist", tmp_path)
    assert not any((tmp_path / "cache").iterdir())  # nothing half done is left behind


def caches(root: Path) -> list[Path]:
    return sorted((root / "cache").iterdir())


def test_the_cache_is_made_once_and_follows_the_files(tmp_path, monkeypatch):
    put_femnist(tmp_path)
    first = load("femnist", tmp_path)
    (folder,) = caches(tmp_path)
    monkeypatch.setattr(cache, "_make", lambda *rest: pytest.fail("made again"))
    again = load("femnist", tmp_path)
    assert torch.equal(first.columns["x"], again.columns["x"]) and first.origin == again.origin
    again.columns["x"][0] = 7  # a private mapping: the file keeps its content
    assert torch.equal(load("femnist", tmp_path).columns["x"], first.columns["x"])
    monkeypatch.undo()
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)
    put(tmp_path / "femnist/train/c.json", {"f03": ([picture(11)], [1])})
    assert load("femnist", tmp_path).group_names == ("f01", "f02", "f03", "f10")
    assert len(caches(tmp_path)) == 2 and folder in caches(tmp_path)


@pytest.mark.parametrize("damage", ["short", "gone", "meta"])
def test_a_damaged_cache_is_made_again(tmp_path, damage):
    put_femnist(tmp_path)
    first = load("femnist", tmp_path).columns["x"].clone()
    (folder,) = caches(tmp_path)
    if damage == "short":
        (folder / "x.bin").write_bytes(b"123")
    elif damage == "gone":
        (folder / "y.bin").unlink()
    else:
        (folder / "meta.json").write_text("{}")
    assert torch.equal(load("femnist", tmp_path).columns["x"], first)
    assert caches(tmp_path) == [folder]


def test_the_cache_elsewhere_and_where_nothing_can_be_written(tmp_path, monkeypatch):
    put_femnist(tmp_path)
    monkeypatch.setenv("FEDCHORD_CACHE", str(tmp_path / "other"))
    load("femnist", tmp_path)
    assert not (tmp_path / "cache").exists() and len(list((tmp_path / "other").iterdir())) == 1
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDCHORD_CACHE", str(tmp_path / "file"))
    with pytest.raises(FedchordError, match=r"^femnist: .* cannot be written .*; set FEDCHORD_CACHE to"):
        load("femnist", tmp_path)


def test_another_process_may_be_first(tmp_path):
    def build(writer: cache.Writer) -> dict[str, str]:
        writer.add(x=np.arange(3, dtype=np.int64))
        return {"by": "me"}

    def beaten(writer: cache.Writer) -> dict[str, str]:
        cache.cached("toy", tmp_path, [], "", build)
        writer.add(x=np.zeros(3, dtype=np.int64))
        return {"by": "the other"}

    columns, facts = cache.cached("toy", tmp_path, [], "", beaten)
    assert (columns["x"].tolist(), facts) == ([0, 1, 2], {"by": "me"})
    assert len(caches(tmp_path)) == 1


def real(root: Path, name: str) -> DataSet:
    found = status(SOURCES[name], root)
    if found != "present":
        pytest.skip(f"{name} under FEDCHORD_DATA: {found}")
    return load(name, root)


@pytest.mark.data
def test_real_femnist(data_root):
    data = real(data_root, "femnist")
    assert data.columns["x"].shape[1:] == (1, 28, 28) and data.classes == 62


@pytest.mark.data
def test_real_shakespeare(data_root):
    data = real(data_root, "shakespeare")
    made = federate(data, Natural())
    assert len(data.columns["y"]) == made.train.sizes.sum() + made.test.sizes.sum()
    # a training row's window and letter are the next row's window, since windows move by one letter
    first, second = data.columns["x"][0], data.columns["x"][1]
    assert torch.equal(first[1:], second[:-1]) and int(data.columns["y"][0]) == int(second[-1])
    assert int(made.test.sizes.min()) > 0
