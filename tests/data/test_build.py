"""From a data set to a federation: checks, notes, noise on training labels only, reproducible keys."""

import pytest
import torch

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.data import (
    ClassDirichlet,
    DataSet,
    Dirichlet,
    Iid,
    Natural,
    Pathological,
    federate,
    from_table,
    load,
    split_client,
    split_picture,
)
from fedchord.data.picture import split_figure


def toy(rows: int = 200, classes: int = 10, **more) -> DataSet:
    columns = {"x": torch.arange(rows, dtype=torch.float32).reshape(rows, 1), "y": torch.arange(rows) % classes}
    return DataSet("toy", columns, classes, **more)


def test_rows_go_to_one_part_of_one_client():
    made = federate(toy(), Dirichlet(0.5), 10, validation=0.1, seed=3)
    rows = torch.cat([made.train.rows, made.validation.rows, made.test.rows])
    assert sorted(rows.tolist()) == list(range(200))
    assert made.num_clients == 10
    assert made.client_names == tuple("0123456789")
    assert (made.train.sizes.tolist(), made.validation.sizes.tolist(), made.test.sizes.tolist()) == (
        [14] * 10,
        [2] * 10,
        [4] * 10,
    )


def test_keys_are_the_stated_ones():
    data = toy()
    made = federate(data, Iid(), 4, seed=9)
    expected = Iid().assign(data.columns["y"], 4, 10, rng.key(9, "partition"), None)
    for client, rows in enumerate(expected):
        train, _, test = split_client(data.columns["y"][rows], 0.2, 0.0, rng.key(9, "split", client))
        assert torch.equal(made.train[client], rows[train])
        assert torch.equal(made.test[client], rows[test])


def test_the_seed_decides():
    first, again, other = (federate(toy(), Iid(), 5, noise="pair", noise_rate=0.5, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.train.rows, again.train.rows)
    assert torch.equal(first.columns["y"], again.columns["y"])
    assert not torch.equal(first.train.rows, other.train.rows)
    assert not torch.equal(first.columns["y"], other.columns["y"])


def test_noise_hits_training_labels_only_and_leaves_the_data_set_alone():
    data = toy(2000)
    before = {name: column.clone() for name, column in data.columns.items()}
    made = federate(data, Iid(), 10, validation=0.2, noise="symmetric", noise_rate=0.9)
    for name, column in before.items():
        assert torch.equal(data.columns[name], column)
    clean = before["y"]
    assert torch.equal(made.columns["y"][made.test.rows], clean[made.test.rows])
    assert torch.equal(made.columns["y"][made.validation.rows], clean[made.validation.rows])
    wrong = int((made.columns["y"][made.train.rows] != clean[made.train.rows]).sum())
    assert abs(wrong - 0.9 * 1200) < 4.5 * (1200 * 0.09) ** 0.5
    assert made.columns["x"] is data.columns["x"]
    note = f"Label noise (symmetric, rate 0.9) changed {wrong} of 1200 training labels ({wrong / 1200:.1%}); "
    assert note + "validation and test labels are clean." in made.notes


def test_noise_of_a_row_does_not_depend_on_the_partition():
    data = toy(400)
    one, two = (federate(data, Iid(), k, test=0.0, noise="pair", noise_rate=0.5) for k in (4, 7))
    assert torch.equal(one.columns["y"], two.columns["y"])


def test_natural_clients_keep_their_names():
    groups = torch.tensor([2, 0, 0, 2, 1] * 10)
    data = toy(50, groups=groups, group_names=("ann", "bob", "eve"))
    made = federate(data, Natural())
    assert made.client_names == ("ann", "bob", "eve")
    assert made.train.sizes.tolist() == [16, 8, 16]
    for seed in range(5):
        few = federate(data, Natural(), 2, seed=seed)
        for client, name in enumerate(few.client_names):
            assert {data.group_names[g] for g in groups[few.train[client]].tolist()} == {name}
    assert "5 clients were asked for; the data have 3, and all of them are used." in federate(data, Natural(), 5).notes


def test_notes_tell_what_was_done():
    made = federate(toy(30, 3, origin="Made up."), Pathological(1), 3)
    assert made.notes == (
        "toy: 30 of 30 rows went to 3 clients by Pathological(shards=1), seed 0.",
        "Rows per client: 10 to 10 (median 10); classes per client: 1 to 1 (median 1).",
        "Local split, stratified by label: 24 training, 0 validation and 6 test rows.",
        "A client's most frequent label makes up 100.00% of its test rows (mean over clients).",
        "Made up.",
    )


def test_clients_with_one_row_train_and_are_counted():
    data = toy(5, groups=torch.tensor([0, 1, 1, 1, 2]))
    made = federate(data, Natural())
    assert (made.train.sizes.tolist(), made.test.sizes.tolist()) == ([1, 2, 1], [0, 1, 0])
    assert "2 clients have a single row, which is used for training; such a client has no test rows." in made.notes


def test_labels_of_several_per_row():
    data = DataSet("text", {"x": torch.zeros(20, 4), "y": torch.zeros(20, 4, dtype=torch.int64)}, 3)
    assert federate(data, Iid(), 4).test.sizes.tolist() == [1] * 4
    with pytest.raises(FedchordError, match=r"^Dirichlet: needs one label per row, text has several$"):
        federate(data, Dirichlet(1.0, 1), 4)
    with pytest.raises(FedchordError, match=r"^federate: label noise needs one label per row, text has several$"):
        federate(data, Iid(), 4, noise="pair")


def broken(**columns) -> DataSet:
    return DataSet("digits", {"x": torch.zeros(5, 2), "y": torch.arange(5), **columns}, 10)


@pytest.mark.parametrize(
    "data, message",
    [
        (broken(y=torch.tensor([0, 1, 2, 12, -1])), "digits: label 12 at row 3 is out of range 0..9"),
        (broken(y=torch.tensor([0, -1, 2, 12, 3])), "digits: label -1 at row 1 is out of range 0..9"),
        (
            broken(y=torch.zeros(5)),
            "digits: column y must hold whole numbers (int64), or for regression float32 with classes=1, got float32",
        ),
        (broken(y=torch.zeros(4).long()), "digits: column y has 4 rows, column x has 5"),
        (
            broken(x=torch.tensor([[0.0, 1.0]] * 4 + [[1.0, float("nan")]])),
            "digits: column x holds nan at row 4",
        ),
        (broken(mask=torch.tensor([0.0, float("-inf"), 0, 0, 0])), "digits: column mask holds -inf at row 1"),
        (DataSet("digits", {"x": torch.zeros(0, 2), "y": torch.zeros(0).long()}, 10), "digits: data have no rows"),
        (DataSet("digits", {"x": torch.zeros(5, 2)}, 10), "digits: column y is missing (columns: x)"),
        (
            DataSet("digits", {"x": torch.zeros(1), "y": torch.zeros(1).long()}, 0),
            "digits: classes must be a whole number of at least 1, got 0",
        ),
        (toy(3, groups=torch.tensor([0, 1])), "toy: groups has 2 rows, column x has 3"),
        (toy(3, groups=torch.tensor([0, -1, 1])), "toy: client number -1 at row 1 is out of range 0..1"),
        (
            toy(3, groups=torch.tensor([0, 1, 2]), group_names=("a", "b")),
            "toy: client number 2 at row 2 is out of range 0..1",
        ),
        (toy(3, groups=torch.zeros(3)), "toy: groups must be one int64 client number per row"),
        (
            toy(3, holdout={"x": torch.zeros(2, 1), "y": torch.tensor([0, 10])}),
            "toy: holdout label 10 at row 1 is out of range 0..9",
        ),
    ],
)
def test_broken_data(data, message):
    with pytest.raises(FedchordError) as error:
        federate(data, Iid(), 1)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "federate: num_clients is needed for Iid"),
        ({"num_clients": 0}, "federate: num_clients must be a whole number of at least 1, got 0"),
        (
            {"num_clients": 4, "noise_rate": 0.1},
            "federate: noise_rate is 0.1 but noise is not chosen (pair or symmetric)",
        ),
        ({"num_clients": 4, "noise": "flip"}, "noise: kind must be one of pair, symmetric, got 'flip'"),
        ({"num_clients": 4, "seed": 1.5}, "federate: seed must be a whole number of at least 0, got 1.5"),
        ({"num_clients": 4, "test": 1.0}, "split: test must be at least 0 and below 1, got 1.0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(FedchordError) as error:
        federate(toy(), Iid(), **arguments)
    assert str(error.value) == message


class Own:
    """A partition from outside the library that breaks its promise."""

    def __init__(self, *parts: list[int]) -> None:
        self.parts = parts

    def assign(self, labels, num_clients, classes, key, groups):
        return [torch.tensor(part, dtype=torch.int64) for part in self.parts]


@pytest.mark.parametrize(
    "parts, message",
    [
        (([0, 1], [2, 1]), "Own: gave row 1 to two clients"),
        (([0, 1], []), "Own: gave a client no rows"),
        (([0, 1], [200]), "Own: gave a row number outside 0..199"),
    ],
)
def test_own_partitions_are_checked(parts, message):
    with pytest.raises(FedchordError) as error:
        federate(toy(), Own(*parts), 2)
    assert str(error.value) == message


@pytest.mark.parametrize("kind", [Iid(), Pathological(), Dirichlet(0.1, 1), ClassDirichlet(0.1, 1)])
def test_many_small_clients(kind):
    made = federate(toy(50000), kind, 10000)
    assert made.num_clients == 10000


def test_digits_end_to_end():
    made = federate(load("digits"), Dirichlet(0.1), 20)
    batch = made.batch(made.train[0][:4])
    assert batch["x"].shape == (4, 1, 8, 8)
    assert len(made.train.rows) + len(made.test.rows) == 1797


@pytest.mark.parametrize("num_clients, classes", [(20, 10), (300, 60), (1, 1)])
def test_picture_is_written(tmp_path, num_clients, classes):
    data = toy(3000, classes)
    split_picture(federate(data, ClassDirichlet(0.5, 1), num_clients), tmp_path / "split.png")
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")


def test_picture_needs_a_place(tmp_path):
    made = federate(toy(), Iid(), 4)
    with pytest.raises(FedchordError, match=r"^split_picture: .*nowhere is not a folder$"):
        split_picture(made, tmp_path / "nowhere" / "split.png")
    with pytest.raises(FedchordError, match=r"^split_picture: split.xyz must end in .png, .pdf, .svg$"):
        split_picture(made, tmp_path / "split.xyz")


def test_a_picture_names_clients_and_classes():
    table = {"a": list(range(12)), "ill": ["no", "yes $x"] * 6, "site": ["north"] * 6 + ["south"] * 6}
    figure = split_figure(federate(from_table(table, label="ill", client="site"), Natural()))
    _, classes = figure.axes
    assert [tick.get_text() for tick in classes.get_yticklabels()] == ["no", "yes $x"]
    assert [tick.get_text() for tick in classes.get_xticklabels()] == ["north", "south"]
