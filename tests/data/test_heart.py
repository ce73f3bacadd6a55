"""Heart disease on small files in the official layout, damaged ones included, and on the real files if present."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Natural, federate, load, status
from fedchord.data.sources import heart

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
SIZES = (30, 25, 20, 15)


def line(generator: np.random.Generator, gaps: bool) -> list[str]:
    """One patient: 14 cells; Cleveland writes 1.0 where the others write 1, and has no gaps here."""
    draw = generator.integers
    whole = [
        *(draw(29, 78), draw(0, 2), draw(1, 5), draw(90, 200), draw(0, 400), draw(0, 2)),
        *(draw(0, 3), draw(60, 200), draw(0, 2)),
    ]
    cells = [str(value) if gaps else f"{value}.0" for value in whole]
    cells += [f"{generator.uniform(-2, 5):.1f}", str(draw(1, 4)), str(draw(0, 4)), str(generator.choice([3, 6, 7]))]
    if gaps:
        cells = [cell if column < 3 or generator.random() > 0.15 else "?" for column, cell in enumerate(cells)]
    return [*cells, str(draw(0, 5))]


def put(root: Path, seed: int = 0) -> dict[str, list[list[str]]]:
    """Four small files; returns their cells."""
    generator = np.random.default_rng(seed)
    made = {}
    (root / "heart_disease").mkdir(parents=True, exist_ok=True)
    for hospital, size in zip(HOSPITALS, SIZES, strict=True):
        made[hospital] = [line(generator, hospital != "cleveland") for _ in range(size)]
        text = "".join(",".join(cells) + "\n" for cells in made[hospital])
        (root / f"heart_disease/processed.{hospital}.data").write_text(text)
    return made


def expected(cells: list[str]) -> list[float]:
    """The 15 features of a line, written out."""

    def value(place: int) -> float:
        return float("nan") if cells[place] == "?" else float(cells[place])

    pain = [value(2) if cells[2] == "?" else float(value(2) == code) for code in (1, 2, 3, 4)]
    ecg = [value(6) if cells[6] == "?" else float(value(6) == code) for code in (0, 1, 2)]
    return [*(value(place) for place in (0, 1, 3, 4, 5, 7, 8, 9)), *pain, *ecg]


def test_features_labels_and_clients(tmp_path: Path) -> None:
    made = put(tmp_path)
    data = load("heart", tmp_path)
    rows = [cells for hospital in HOSPITALS for cells in made[hospital]]
    features = np.array([expected(cells) for cells in rows], dtype=np.float32)
    assert np.array_equal(data.columns["x"].numpy(), features, equal_nan=True)
    assert np.isnan(features).sum() > 50
    assert data.columns["y"].tolist() == [int(cells[-1] != "0") for cells in rows]
    assert (data.classes, data.group_names) == (2, HOSPITALS)
    assert torch.bincount(data.groups).tolist() == list(SIZES)
    assert data.scaled.tolist() == [True] * 15 and sum(f.width for f in heart.FEATURES) == 15
    assert "90 training and 0 test rows, not the official 920 rows" in data.origin
    assert "Not the official files by their MD5 sums: processed.cleveland.data, processed.hungarian" in data.origin


def test_the_width_does_not_depend_on_the_categories_seen(tmp_path: Path) -> None:
    made = put(tmp_path)
    path = tmp_path / "heart_disease/processed.va.data"
    alike = [[*cells[:2], "4", *cells[3:6], "0", *cells[7:]] for cells in made["va"]]
    path.write_text("".join(",".join(cells) + "\n" for cells in alike))
    x = load("heart", tmp_path).columns["x"][-len(alike) :]
    assert x.shape[1] == 15
    assert x[:, 8:].tolist() == [[0, 0, 0, 1, 1, 0, 0]] * len(alike)


def test_federated_rows_have_no_gaps_and_one_scale(tmp_path: Path) -> None:
    put(tmp_path)
    made = federate(load("heart", tmp_path), Natural(), seed=3)
    assert made.client_names == HOSPITALS
    for client in range(4):
        x = made.columns["x"][made.train[client]].double()
        assert torch.allclose(x.mean(0), torch.zeros(15, dtype=torch.float64), atol=1e-6)
        spread = x.std(0, correction=0)
        assert torch.allclose(spread, (spread > 0).double(), atol=1e-6)
    assert torch.isfinite(made.columns["x"]).all()


def damage(root: Path, cell: str, column: int, line: int = 2, hospital: str = "hungarian") -> Path:
    path = root / f"heart_disease/processed.{hospital}.data"
    lines = path.read_text().splitlines()
    cells = lines[line - 1].split(",")
    cells[column] = cell
    lines[line - 1] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("cell", "column", "message"),
    [
        ("5", 2, "column cp must be one of 1, 2, 3, 4, got '5'"),
        ("0", 2, "column cp must be one of 1, 2, 3, 4, got '0'"),
        ("1.5", 2, "column cp must be one of 1, 2, 3, 4, got '1.5'"),
        ("3", 6, "column restecg must be one of 0, 1, 2, got '3'"),
        ("-9", 1, "column sex must be one of 0, 1, got '-9'"),
        ("2", 5, "column fbs must be one of 0, 1, got '2'"),
        ("2", 8, "column exang must be one of 0, 1, got '2'"),
        ("5", 13, "column num must be one of 0, 1, 2, 3, 4, got '5'"),
        ("?", 13, "column num must be a finite number, got '?'"),
        ("old", 0, "column age must be a finite number or '?', got 'old'"),
        ("inf", 3, "column trestbps must be a finite number or '?', got 'inf'"),
        ("", 9, "column oldpeak must be a finite number or '?', got ''"),
    ],
)
def test_values_out_of_the_lists(tmp_path: Path, cell: str, column: int, message: str) -> None:
    put(tmp_path)
    path = damage(tmp_path, cell, column)
    with pytest.raises(FedchordError) as error:
        load("heart", tmp_path)
    assert str(error.value) == f"heart: {path} line 2, {message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: text.rindex(",")], "line 15 has 13 cells, expected 14 (it ends before column num)"),
        (lambda text: text.replace("\n", ",1\n", 1), "line 1 has 15 cells, expected 14"),
        (lambda text: text.replace(",", ";"), "line 1 has 1 cells, expected 14 (it ends before column sex)"),
        (lambda text: "<html>not found</html>", "line 1 has 1 cells, expected 14 (it ends before column sex)"),
        (lambda text: "", "is damaged: it has no rows"),
        (lambda text: "\n\n", "is damaged: it has no rows"),
    ],
)
def test_damaged_files(tmp_path: Path, change, message: str) -> None:
    put(tmp_path)
    path = tmp_path / "heart_disease/processed.va.data"
    path.write_text(change(path.read_text()))
    with pytest.raises(FedchordError) as error:
        load("heart", tmp_path)
    assert str(error.value) == f"heart: {path} {message}"


def test_a_missing_file(tmp_path: Path) -> None:
    put(tmp_path)
    (tmp_path / "heart_disease/processed.va.data").unlink()
    with pytest.raises(FedchordError) as error:
        load("heart", tmp_path)
    assert str(error.value) == (
        f"heart: missing heart_disease/processed.va.data in {tmp_path}; fedchord data get heart, or get it from "
        f"{SOURCES['heart'].home} "
        f"and put the files into {tmp_path / 'heart_disease'}"
    )


@pytest.mark.data
def test_real_files(data_root: Path) -> None:
    found = status(SOURCES["heart"], data_root)
    if found != "present":
        pytest.skip(f"heart under FEDCHORD_DATA: {found}")
    data = load("heart", data_root)
    assert data.origin.endswith("920 rows, the official number.")  # and so the MD5 sums are the official ones
    for hospital in HOSPITALS:
        path = data_root / f"heart_disease/processed.{hospital}.data"
        assert hashlib.md5(path.read_bytes()).hexdigest() == heart.MD5[hospital]
    assert torch.bincount(data.groups).tolist() == [303, 294, 123, 200]
    assert [int(data.columns["y"][data.groups == c].sum()) for c in range(4)] == [139, 106, 115, 149]
    assert data.columns["x"][0].tolist() == pytest.approx([63, 1, 145, 233, 1, 150, 0, 2.3, 1, 0, 0, 0, 0, 0, 1])
    assert int(data.columns["x"].isnan().sum()) == 357
    assert (data.columns["x"][data.groups == 2][:, 3] == 0).all()  # no cholesterol in Switzerland
    made = federate(data, Natural(), seed=1)
    assert made.columns["x"].shape == (920, 15) and torch.isfinite(made.columns["x"]).all()
    assert [len(made.columns["y"][made.test[c]].unique()) for c in range(4)] == [2] * 4
