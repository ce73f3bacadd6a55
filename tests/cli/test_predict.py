"""`fedchord predict`: what it prints and writes, by whose model, and what it refuses."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.invoked import invoke
from PIL import Image

from fedchord.check import FedchordError
from fedchord.experiments.loaded import Loaded


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on a table with sites, on numbers to predict and on pictures; and new rows."""
    place = tmp_path_factory.mktemp("predict")
    _table(place / "t.csv", 150, 1)
    _table(place / "new.csv", 30, 2)
    _table(place / "few.csv", 7, 3, columns=("age", "ward"))
    for name, more in (
        ("avg", []),
        ("mm", ["method=superfed-mm"]),
        ("ft", ["method=fedavg-ft"]),
        ("per", ["method=fedper"]),
    ):
        table = [f"data={place / 't.csv'}", "data.label=ill", "data.client=site"]
        done = invoke("run", *table, "rounds=3", "executor=serial", f"out={place / name}", *more)
        assert done.exit_code == 0, done.output
    numbers = [f"data={place / 't.csv'}", "data.target=age", "data.drop=ill", "data.client=site", "rounds=3"]
    assert invoke("run", *numbers, "executor=serial", f"out={place / 'number'}").exit_code == 0
    _pictures(place / "pets")
    shown = [f"data={place / 'pets'}", "clients=2", "split=iid", "model=smallconv:4", "rounds=1", "executor=serial"]
    assert invoke("run", *shown, f"out={place / 'pictures'}").exit_code == 0
    return place


def _table(file: Path, rows: int, seed: int, columns: tuple[str, ...] = ("age", "ward", "site", "ill")) -> None:
    draw = np.random.default_rng(seed)
    ward = draw.choice(["A", "B"], rows)
    age = draw.normal(60, 10, rows)
    table = {
        "age": age,
        "ward": ward,
        "site": draw.choice(["n", "s"], rows),
        "ill": np.where(age + 9 * (ward == "B") > 64, "yes", "no"),
    }
    lines = [",".join(columns), *(",".join(str(table[name][row]) for name in columns) for row in range(rows))]
    file.write_text("\n".join(lines) + "\n")


def _pictures(folder: Path) -> None:
    for number in range(16):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 200 * (number % 2) + number).save(path)


def _read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_row_by_its_own_client(runs: Path) -> None:
    for name in ("avg", "mm", "ft", "per"):
        done = invoke("predict", str(runs / name), str(runs / "new.csv"))
        assert done.exit_code == 0, done.output
        rows = _read(done.stdout)
        assert list(rows[0]) == ["row", "client", "label", "p(no)", "p(yes)"]
        assert [row["row"] for row in rows] == [str(n) for n in range(1, 31)]
        given = _read((runs / "new.csv").read_text())
        assert [row["client"] for row in rows] == [row["site"] for row in given]
        fitted = Loaded.of(runs / name).fitted
        for who in ("n", "s"):
            mine = [place for place, row in enumerate(given) if row["site"] == who]
            columns: dict[str, Any] = {key: np.array([given[place][key] for place in mine]) for key in ("age", "ward")}
            expected = fitted.predict(columns, who).values[:, 1]
            assert torch.allclose(torch.tensor([float(rows[p]["p(yes)"]) for p in mine]), expected, atol=1e-5)
        assert "rows of n: the model of client n; scaled by the training rows of client n" in done.stderr
        assert "the rows have labels: top1 " in done.stderr


def test_a_new_client_and_a_file_to_write(runs: Path, tmp_path: Path) -> None:
    done = invoke("predict", str(runs / "avg"), str(runs / "few.csv"), "--to", str(tmp_path / "out.csv"))
    assert done.exit_code == 0 and done.stdout == ""
    assert "7 rows: the global model; scaled by pooled statistics of the training rows, since the client" in done.stderr
    rows = _read((tmp_path / "out.csv").read_text())
    assert list(rows[0]) == ["row", "label", "p(no)", "p(yes)"] and len(rows) == 7
    assert {row["label"] for row in rows} <= {"no", "yes"}
    tuned = invoke(
        "predict", str(runs / "per"), str(runs / "few.csv"), "--tune", str(runs / "new.csv"), "--epochs", "3"
    )
    assert tuned.exit_code == 0 and "after 3 epochs on 30 labelled rows; scaled by its own 30 rows" in tuned.stderr


def test_without_the_training_data(runs: Path, tmp_path: Path) -> None:
    """What a run folder holds is enough, unless the model is made by training before use."""
    moved = runs / "t.csv"
    text = moved.read_text()
    before = {name: invoke("predict", str(runs / name), str(runs / "new.csv")).stdout for name in ("avg", "mm", "ft")}
    moved.unlink()
    try:
        for name in ("avg", "mm"):
            assert invoke("predict", str(runs / name), str(runs / "new.csv")).stdout == before[name]
        done = invoke("predict", str(runs / "ft"), str(runs / "new.csv"))
        assert isinstance(done.exception, FedchordError) and "t.csv: no such file" in str(done.exception)
    finally:
        moved.write_text(text)
    assert invoke("predict", str(runs / "ft"), str(runs / "new.csv")).stdout == before["ft"]


def test_words_that_training_never_met(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("age,ward\n61,C\n55,A\n?,B\n")
    done = invoke("predict", str(runs / "avg"), str(tmp_path / "odd.csv"))
    assert done.exit_code == 0
    assert "1 row of column 'ward' hold a word that training never met; they count as none" in done.stderr


def test_labels_that_cannot_be_read_are_not_used(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "ask.csv").write_text("age,ward,ill\n61,A,\n55,A,yes\n")
    done = invoke("predict", str(runs / "avg"), str(tmp_path / "ask.csv"))
    assert done.exit_code == 0 and "labels are not used: ask.csv: line 2, column 'ill' is empty" in done.stderr


def test_numbers(runs: Path) -> None:
    done = invoke("predict", str(runs / "number"), str(runs / "new.csv"), "--client", "s")
    rows = _read(done.stdout)
    assert list(rows[0]) == ["row", "client", "prediction"]
    assert 20 < float(rows[0]["prediction"]) < 100 and "r2" in done.stderr and "mae" in done.stderr


def test_pictures(runs: Path, tmp_path: Path) -> None:
    done = invoke("predict", str(runs / "pictures"), str(runs / "pets"))
    rows = _read(done.stdout)
    assert list(rows[0]) == ["picture", "label", "p(a)", "p(b)"] and len(rows) == 16
    one = invoke("predict", str(runs / "pictures"), str(runs / "pets" / "a" / "0.png"))
    first = next(row for row in rows if row["picture"].endswith("/0.png"))
    assert _read(one.stdout)[0]["p(a)"] == first["p(a)"]
    x = np.stack([np.asarray(Image.open(row["picture"])) for row in rows])[:, None]
    np.savez(tmp_path / "x.npz", x=x)
    arrays = _read(invoke("predict", str(runs / "pictures"), str(tmp_path / "x.npz")).stdout)
    assert [row["p(b)"] for row in arrays] == [row["p(b)"] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("avg none.csv", "none.csv: no such file"),
        ("avg new.csv --client x", "unknown client 'x' (known: n, s); without --client the global model is asked"),
        ("avg new.csv --client n --tune new.csv", "predict: a client of the run has its model; --tune is for"),
        ("avg few.csv --tune few.csv", "few.csv: has no label column 'ill', which tuning needs"),
        ("avg new.csv --to avg", "avg cannot be written (avg is a folder)"),
        ("avg empty.csv", "empty.csv: is empty; a header line was expected"),
        ("avg other.csv", "other.csv: has no column 'age' (columns: a, b)"),
        ("avg bad.csv", "bad.csv: line 3, column 'age' must be a number, got 'old'"),
        ("avg few.csv --tune labels.csv", "unknown class in line 2 of labels.csv 'maybe'"),
        ("avg pets", "pets: is a folder; a file of rows was expected"),
        ("avg config.toml", "config.toml: must end in .csv, .tsv, .txt, .npz"),
        ("avg broken.npz", "broken.npz: is not a readable .npz file of plain arrays"),
        ("per few.csv", "predict: there is no whole global model"),
        ("nowhere new.csv", "nowhere: no such folder"),
        ("pets new.csv", "pets: has no config.toml, so it holds no run"),
        ("avg new.csv --tune new.csv --epochs 0", "predict: epochs must be a whole number of at least 1, got 0"),
        ("pictures few.csv", "few.csv: line 2, column 'ward' must be a number, got"),
    ],
)  # fmt: skip
def test_what_is_refused(runs: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str) -> None:
    monkeypatch.chdir(runs)
    Path("empty.csv").write_text("")
    Path("other.csv").write_text("a,b\n1,2\n")
    Path("bad.csv").write_text("age,ward\n1,A\nold,B\n")
    Path("labels.csv").write_text("age,ward,ill\n1,A,maybe\n")
    Path("broken.npz").write_text("PK")
    Path("config.toml").write_text("")
    before = sorted(path.name for path in runs.rglob("*"))
    done = invoke("predict", *arguments.split())
    assert isinstance(done.exception, FedchordError) and message in str(done.exception), done.exception
    assert sorted(path.name for path in runs.rglob("*")) == before
