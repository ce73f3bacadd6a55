"""Tables of your own: columns by name, categories against scikit-learn, labels with names, gaps, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder

from fedchord.check import FedchordError
from fedchord.data import Iid, Natural, federate, from_arrays, from_csv, from_table
from fedchord.data.features import Feature, encode, words_of
from fedchord.data.formats.csv_file import header_of, read_csv

TABLE: dict[str, Any] = {
    "age": [50, 61.5, None, 40],
    "ward": ["B", "A", "B", None],
    "sex": [1, 2, 1, 2],
    "site": ["n", "s", "n", "s"],
    "sick": ["yes", "no", "yes", "no"],
}


def test_columns_become_features() -> None:
    data = from_table(TABLE, "sick", "site", category=["sex"])
    nan = float("nan")
    expected = torch.tensor([[50, 0, 1, 1, 0], [61.5, 1, 0, 0, 1], [nan, 0, 1, 1, 0], [40, nan, nan, 0, 1]])
    assert torch.equal(data.columns["x"].nan_to_num(-9.0).float(), expected.nan_to_num(-9.0))
    assert data.features == (Feature("age"), Feature("ward", ("A", "B")), Feature("sex", ("1", "2")))
    assert [label for feature in data.features for label in feature.labels] == [
        *("age", "ward=A", "ward=B", "sex=1", "sex=2")
    ]
    assert data.scaled is not None and data.scaled.tolist() == [True, False, False, False, False]
    assert [tuple(block) for block in data.blocks] == [(1, 3, False), (3, 5, False)]
    assert (data.class_names, data.columns["y"].tolist()) == (("no", "yes"), [1, 0, 1, 0])
    assert (data.group_names, data.origin) == (("n", "s"), "classes in order: no, yes.")
    assert from_table(TABLE, "sick", scale="none", drop=["site"]).scaled.tolist() == [False] * 4  # type: ignore[union-attr]


def test_categories_against_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    columns = {name: draw.choice(list(words), 200) for name, words in (("a", "xyz"), ("b", "pq"), ("c", "klmno"))}
    data = from_table(columns | {"y": draw.integers(0, 2, 200)}, "y")
    oracle = OneHotEncoder(sparse_output=False).fit_transform(np.stack(list(columns.values()), 1))
    assert np.array_equal(data.columns["x"].numpy(), oracle)


def test_a_missing_category_becomes_the_frequencies_of_the_client() -> None:
    words = ["a", "a", "b", "a", None]
    data = from_table({"w": words, "z": [1.0, 2.0, 3.0, 4.0, 5.0], "y": [0, 0, 0, 0, 0]}, "y")
    made = federate(data, Iid(), 1, test=0.0)
    assert torch.allclose(made.columns["x"][4, :2], torch.tensor([0.75, 0.25]))


def test_a_data_frame_is_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE)
    frame["ward"] = frame["ward"].astype("category")
    frame["flag"] = pandas.array([True, False, None, True], dtype="boolean")
    data = from_table(frame, "sick", "site")
    plain = from_table(TABLE | {"flag": [True, False, None, True]}, "sick", "site")
    assert data.features == plain.features and data.features[-1] == Feature("flag", ("False", "True"))
    assert torch.equal(data.columns["x"].nan_to_num(-9), plain.columns["x"].nan_to_num(-9))
    frame["day"] = pandas.Timestamp("2020-01-01")
    with pytest.raises(FedchordError, match=r"^table: column 'day' holds times; turn them into numbers"):
        from_table(frame, "sick", "site")


def test_known_features_keep_several_tables_alike() -> None:
    first = from_table(TABLE, "sick", "site")
    other = {
        "ward": ["C", "A"],
        "age": ["", "7"],
        "extra": [1, 2],
        "sex": [1, 1],
        "site": ["n", "n"],
        "sick": ["no"] * 2,
    }
    data = from_table(other, "sick", "site", features=first.features, classes=first.class_names)
    assert data.columns["x"].nan_to_num(-9).tolist() == [[-9, 0, 0, 1], [7, 1, 0, 1]]
    assert data.classes == 2 and data.columns["y"].tolist() == [0, 0]
    assert "1 cells of ward hold an unknown word" in data.origin
    with pytest.raises(FedchordError, match=r"^t: has no column 'age' \(columns: ward\)$"):
        encode("t", first.features, {"ward": np.array(["A"])}, "row {}".format)


def test_words_and_numbers() -> None:
    cells = np.array(
        [1.0, 2.5, float("nan"), None, " x ", "n/a", "3.0", "007", True, b"by", "NaN", "-2.00"], dtype=object
    )
    assert words_of(cells) == ["1", "2.5", "", "", "x", "", "3", "007", "True", "by", "", "-2"]


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({}, {}, "table: needs a label column, or a target column for regression"),
        ({}, {"label": "sick", "target": "age"}, "table: needs a label column, or a target column for regression"),
        ({}, {"label": "sik"}, "unknown column of table 'sik'; did you mean 'sick'?"),
        ({}, {"label": "sick", "client": "sick"}, "table: column 'sick' cannot be both label and client"),
        ({}, {"label": "sick", "drop": ["ages"]}, "unknown column of table 'ages'; did you mean 'age'?"),
        ({}, {"label": "sick", "drop": ["sick"]}, "table: column 'sick' is the label or the client, and no feature"),
        ({}, {"label": "sick", "scale": "x"}, "table: scale must be one of client, none, got 'x'"),
        ({"sick": ["yes", None, "no", "no"]}, {"label": "sick"}, "table: row 1, column 'sick' is empty"),
        ({"age": [1, 2]}, {"label": "sick"}, "table: column 'ward' has 4 rows, column 'age' has 2"),
        ({"age": [[1], [2], [3], [4]]}, {"label": "sick"}, "table: column 'age' must hold one value per row"),
        ({"age": [1j] * 4}, {"label": "sick"}, "table: column 'age' must hold numbers or words, got complex128"),
        ({"site": ["n", "s", None, "s"]}, {"label": "sick", "client": "site"}, "table: client is missing at row 2"),
        ({"age": [1, 2, np.inf, 4]}, {"label": "sick"}, "table: row 2, column 'age' must be a finite number, got inf"),
        ({"age": ["1", "2", "3", "old"]}, {"label": "sick"}, "table: row 3, column 'age' must be a number like the"),
        ({"age": [None] * 4}, {"label": "sick"}, "table: column 'age' has no value; leave it out with data.drop=age"),
        ({"sick": list("abcd")}, {"label": "sick", "classes": ["a", "b"]}, "unknown class in row 2 of table 'c'"),
        ({}, {"target": "sick"}, "table: row 0, column 'sick' must be a finite number, got 'yes'"),
        ({"age": [1, 2, None, 4]}, {"target": "age"}, "table: row 2, column 'age' must be a finite number, got ''"),
    ],
)  # fmt: skip
def test_mistakes(change: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FedchordError) as error:
        from_table(TABLE | change, **arguments)
    assert str(error.value).startswith(message)


def test_what_is_no_table_and_what_is_no_category() -> None:
    with pytest.raises(FedchordError, match=r"^table: needs a DataFrame or a dict of columns, got list$"):
        from_table([1, 2], "y")
    for columns, message in (
        ({}, "has no columns"),
        ({"y": [1]}, "has no feature column"),
        ({"y": []}, "data have no rows"),
    ):
        with pytest.raises(FedchordError, match=message):
            from_table(columns, "y")
    many = {"name": [f"n{row}" for row in range(150)], "y": [0, 1] * 75}
    told = (
        "column 'name' has 150 different words, such as 'n0'; a category has at most 100: leave it out with data.drop"
    )
    with pytest.raises(FedchordError, match=told):
        from_table(many, "y")
    assert from_table(many, "y", category=["name"]).columns["x"].shape == (150, 150)


def test_labels_that_are_numbers_to_predict_are_told() -> None:
    values = np.random.default_rng(0).normal(size=60)
    with pytest.raises(
        FedchordError, match=r"holds 60 different numbers in 60 rows; to predict a number write data.tar"
    ):
        from_table({"x": values, "y": values}, "y")
    whole = from_table({"x": values, "y": np.arange(60) % 50}, "y")  # fifty classes are classes
    assert whole.classes == 50
    halves = from_table({"x": values, "y": np.arange(60) % 9 / 2}, "y")  # so are a few half numbers
    assert halves.class_names[:3] == ("0", "0.5", "1")
    data = from_table({"x": values, "y": values}, target="y")
    assert data.regression and data.classes == 1 and data.class_names == ()
    assert torch.equal(data.columns["y"], torch.from_numpy(values).float())


def test_a_column_that_counts_the_rows_is_told() -> None:
    data = from_table({"id": [7, 8, 9], "a": [1, 5, 2], "y": [0, 1, 0]}, "y", origin="From somewhere.")
    told = "From somewhere; classes in order: 0, 1; column 'id' counts the rows (data.drop=id leaves it out)."
    assert data.origin == told


def test_arrays_with_codes_words_and_columns_of_labels() -> None:
    x = np.zeros((4, 2))
    codes = from_arrays(x, [[4010], [25000], [4010], [-3]])
    assert (codes.classes, codes.class_names) == (3, ("-3", "4010", "25000"))
    assert codes.columns["y"].tolist() == [1, 2, 1, 0] and codes.origin == "classes in order: -3, 4010, 25000."
    words = from_arrays(x, np.array(["cat", "dog", "cat", "ant"]))
    assert words.class_names == ("ant", "cat", "dog") and words.columns["y"].tolist() == [1, 2, 1, 0]
    given = from_arrays(x, [0, 2, 0, 2], classes=5)
    assert (given.classes, given.class_names, given.columns["y"].tolist()) == (5, (), [0, 2, 0, 2])
    both = from_arrays(x, [5, 7, 5, 5], holdout=(x[:1], [9]))
    assert both.class_names == ("5", "7", "9") and both.holdout is not None and both.holdout["y"].tolist() == [2]
    numbers = from_arrays(x, torch.tensor([0.5, 1.0, 2.0, 3.0]))
    assert numbers.regression and not codes.regression
    assert from_arrays(x, [1, 2, 3, 4], regression=True).columns["y"].dtype == torch.float32
    gaps = from_arrays([[1.0, np.nan], [2.0, 3.0]], [0, 1], scale="client")
    assert gaps.scaled is not None and gaps.scaled.tolist() == [True, True]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|", " "])
def test_delimiters_are_found(tmp_path: Any, mark: str) -> None:
    file = tmp_path / "d.csv"
    lines = [["age", "note", "sick"], ["50", "good", "yes"], ["61.5", "bad", "no"], ["40", "good", "no"]]
    file.write_text("\n".join(mark.join(cells) for cells in lines))
    data = from_csv(file, "sick")
    assert data.features == (Feature("age"), Feature("note", ("bad", "good")))
    assert data.columns["x"][:, 0].tolist() == [50, 61.5, 40]
    assert header_of(file) == ["age", "note", "sick"]


def test_delimiters_that_are_given(tmp_path: Any) -> None:
    file = tmp_path / "d.csv"
    file.write_text("age:sick\n1:0\n2:1\n")
    assert from_csv(file, "sick", delimiter=":").columns["x"].flatten().tolist() == [1, 2]
    with pytest.raises(FedchordError, match="a delimiter is one character, got '::'"):
        from_csv(file, "sick", delimiter="::")
    (tmp_path / "d.tsv").write_text("age\tsick\n1,5\t0\n2,5\t1\n")
    assert from_csv(tmp_path / "d.tsv", "sick").columns["x"].flatten().tolist() == [1.5, 2.5]


def test_decimal_commas_are_read_where_the_comma_is_no_delimiter(tmp_path: Any) -> None:
    file = tmp_path / "d.csv"
    file.write_text('a;b;y\n1,5;"x,y";0\n-2;"x,z";1\n;"x,y";1\n3,25e1;"x,y";0\n')
    read = read_csv(file)
    assert read.columns["a"].tolist() == ["1.5", "-2", "", "3.25e1"] and read.columns["b"][0] == "x,y"
    plain = tmp_path / "p.csv"
    plain.write_text('a,y\n"1,234",0\n"2",1\n3,1\n')  # thousands: ambiguous, hence refused
    with pytest.raises(
        FedchordError, match=r"^p.csv: line 2, column 'a' must be a number like the others, got '1,234'"
    ):
        from_csv(plain, "y")


def test_a_nameless_first_column_that_counts_is_left_out(tmp_path: Any) -> None:
    file = tmp_path / "d.csv"
    file.write_text(",age,y\n0,5,0\n1,7,1\n2,6,1\n")
    data = from_csv(file, "y")
    assert data.features == (Feature("age"),)
    assert "its first column, which has no name and counts the rows, is left out" in data.origin
    file.write_text(",age,y\n0,5,0\n9,7,1\n")
    with pytest.raises(FedchordError, match=r"^d.csv: column 1 of the header has no name$"):
        from_csv(file, "y")


def test_a_csv_file_is_its_table(tmp_path: Any) -> None:
    """The same rows as a dict of arrays and as a file give the same clients."""
    file = tmp_path / "d.csv"
    rows = ["age,ward,sex,site,sick", "50,B,1,n,yes", "61.5,A,2,s,no", "?,B,1,n,yes", "40,NA,2,s,no"]
    file.write_text("\n".join(rows))
    one, two = from_csv(file, "sick", "site"), from_table(TABLE, "sick", "site")
    assert one.features == two.features
    made = [federate(data, Natural(), test=0.0) for data in (one, two)]
    assert torch.equal(made[0].columns["x"], made[1].columns["x"])
    assert made[0].class_names == ("no", "yes") and made[0].features == one.features
