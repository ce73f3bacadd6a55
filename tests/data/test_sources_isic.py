"""Fed-ISIC2019: centres, folds and pictures in FLamby's layout, odd ones included, and the real table if present."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Natural, federate, load, status
from fedchord.data.formats.images import read_image
from fedchord.data.formats.table import read_rows
from fedchord.data.official.verify import loaded_rows, look, verdict
from fedchord.data.sources import isic
from fedchord.experiments.config import RunConfig

ROWS = [  # target, centre, fold, lesion; the level of a picture is 10 times its number
    (0, 5, "train", "a"),
    (7, 1, "train", "b"),
    (1, 1, "test", "b"),
    (1, 5, "test", "c"),
    (2, 5, "train", ""),
    (2, 5, "test", ""),
]


@pytest.fixture(autouse=True)
def no_outer_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCHORD_CACHE", raising=False)


def put(root: Path, lesions: bool = True, size: tuple[int, int] = (224, 224)) -> Path:
    folder = root / "fed_isic2019"
    pictures = folder / "ISIC_2019_Training_Input_preprocessed"
    pictures.mkdir(parents=True)
    lines = ["image,MEL,target,center,fold,fold2" + ",lesion_id" * lesions]
    for i, (target, centre, fold, lesion) in enumerate(ROWS):
        lines.append(f"ISIC_{i},0.0,{target},{centre},{fold},{fold}_{centre}" + f",{lesion}" * lesions)
        Image.new("RGB", size, (10 * i, 20 * i, 30 * i)).save(pictures / f"ISIC_{i}.jpg", quality=95)
    (folder / "train_test_split").write_text("\n".join(lines) + "\n")
    return folder


def test_centres_folds_and_what_a_model_sees(tmp_path: Path) -> None:
    put(tmp_path)
    assert status(SOURCES["isic"], tmp_path) == "present"
    data = load("isic", tmp_path)
    assert data.columns["x"].shape == (6, 3, 224, 224) and data.columns["x"].dtype == torch.uint8
    assert data.columns["y"].tolist() == [0, 7, 1, 1, 2, 2] and data.classes == 8
    made = federate(data, Natural())
    assert made.client_names == ("HAM_vidir_molemax", "HAM_vienna_dias")  # centres without rows are no clients
    assert [part.tolist() for part in (made.train[0], made.test[0], made.train[1], made.test[1])] == [
        [1],
        [2],
        [0, 4],
        [3, 5],
    ]
    assert made.shape == (3, 200, 200)
    seen = made.batch(torch.tensor([3]))["x"]
    level = torch.tensor([30, 60, 90]) / 255
    wanted = (level - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    assert seen.shape == (1, 3, 200, 200)
    torch.testing.assert_close(seen.mean((0, 2, 3)), wanted, atol=0.05, rtol=0)
    assert "not the official 23247 rows" in data.origin
    assert "1 test pictures show a lesion that is among the training pictures too" in data.origin
    assert "enlarged" not in data.origin


def test_pictures_of_other_sizes(tmp_path: Path) -> None:
    put(tmp_path, lesions=False, size=(200, 150))
    data = load("isic", tmp_path)
    assert (
        "6 pictures were smaller than 224 pixels and were enlarged." in data.origin and "lesion that" not in data.origin
    )
    wide = np.zeros((40, 100, 3), dtype=np.uint8)
    wide[:, 30:70] = 200  # the middle square
    wide[:, 50:] += 50
    Image.fromarray(wide).save(tmp_path / "wide.png")
    found, size = read_image("x", tmp_path / "wide.png", 40, middle=True)
    assert size == (100, 40) and np.array_equal(found.transpose(1, 2, 0), wide[:, 30:70])
    tall, _ = read_image("x", tmp_path / "wide.png", 20, middle=True)
    assert tall.shape == (3, 20, 20) and abs(int(tall[0, 10, 4]) - 200) <= 2 and abs(int(tall[0, 10, 15]) - 250) <= 2


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("center", "centre", "isic: .*train_test_split has no column center"),
        ("ISIC_0,0.0,0,5", "ISIC_0,0.0,0,6", "isic: .*line 2, column center must be one of 0, 1, 2, 3, 4, 5, got '6'"),
        ("ISIC_0,0.0,0,5", "ISIC_0,0.0,8,5", "isic: .*line 2, column target must be one of 0, 1, .*7, got '8'"),
        (",train,train_5,a", ",valid,train_5,a", "unknown fold in line 2 of .*train_test_split 'valid'"),
        ("ISIC_3", "ISIC_33", "isic: .*ISIC_33.jpg: no such file"),
    ],
)
def test_odd_tables(tmp_path: Path, old: str, new: str, line: str) -> None:
    table = put(tmp_path) / "train_test_split"
    table.write_text(table.read_text().replace(old, new, 1))
    with pytest.raises(FedchordError, match=line) as error:
        load("isic", tmp_path)
    assert "\n" not in str(error.value)


def test_a_damaged_picture_is_named_and_skipped_only_if_asked(tmp_path: Path) -> None:
    picture = put(tmp_path) / "ISIC_2019_Training_Input_preprocessed/ISIC_4.jpg"
    picture.write_bytes(picture.read_bytes()[:300])
    with pytest.raises(FedchordError, match=r"isic: .*ISIC_4.jpg is damaged"):
        load("isic", tmp_path)
    data = load("isic", tmp_path, skip_damaged=True)
    assert data.columns["y"].tolist() == [0, 7, 1, 1, 2]
    assert data.parts is not None and data.parts.tolist() == [0, 0, 2, 2, 2]
    assert "Damaged files that were skipped: 1" in data.origin


def test_augmentation_is_a_key_of_a_run() -> None:
    with pytest.raises(FedchordError, match="run: augment is for isic, tinyimagenet, got data=mnist"):
        RunConfig.from_values({"data": "mnist", "augment": True})
    on, off = (RunConfig.from_values({"data": "isic", "augment": word}) for word in (True, False))
    assert off.fingerprint() == RunConfig.from_values({"data": "isic"}).fingerprint() != on.fingerprint()


def test_enlarged_pictures_are_no_originals(tmp_path: Path) -> None:
    put(tmp_path, size=(200, 150))
    data = load("isic", tmp_path)
    source = replace(SOURCES["isic"], rows=len(data.columns["y"]))
    told = f"{source.rows} pictures were smaller than 224 pixels and were enlarged"
    assert data.altered == told and f" {told}." in data.origin
    assert verdict(source, look(source, tmp_path), loaded_rows(data), data.altered)[0] == "altered"
    assert verdict(source, look(source, tmp_path), loaded_rows(data))[0] == "counts"


@pytest.mark.data
def test_real_table(data_root: Path) -> None:
    """Centres and folds as FLamby's table has them; the pictures are not read."""
    found = status(SOURCES["isic"], data_root)
    if found != "present":
        pytest.skip(f"isic under FEDCHORD_DATA: {found}")
    rows = list(read_rows("isic", SOURCES["isic"].locate(data_root, isic.TABLE), isic.COLUMNS))
    sizes = {(int(row.text("center")), row.text("fold")): 0 for row in rows}
    for row in rows:
        sizes[int(row.text("center")), row.text("fold")] += 1
    known = {1: (3163, 791), 2: (2691, 672), 3: (1807, 452), 5: (351, 88)}
    for centre, pair in known.items():
        assert (sizes[centre, "train"], sizes[centre, "test"]) == pair
    assert len(rows) in (10015, 23247)


@pytest.mark.data
def test_real_pictures(data_root: Path, tmp_path: Path) -> None:
    """Two pictures of each centre, one of each fold, by themselves: read, enlarged where they are small, and shown."""
    found = status(SOURCES["isic"], data_root)
    if found != "present":
        pytest.skip(f"isic under FEDCHORD_DATA: {found}")
    table = SOURCES["isic"].locate(data_root, isic.TABLE)
    first = {(row.text("center"), row.text("fold")): row for row in read_rows("isic", table, isic.COLUMNS)}
    rows = list(first.values())
    folder = tmp_path / isic.PICTURES
    folder.mkdir(parents=True)
    for row in rows:
        name = f"{row.text('image')}.jpg"
        shutil.copy(table.parent / folder.name / name, folder / name)
    cells = [",".join(row.text(column) for column in isic.COLUMNS) for row in rows]
    (tmp_path / isic.TABLE).write_text("\n".join([",".join(isic.COLUMNS), *cells]) + "\n")
    data = load("isic", tmp_path)
    assert data.columns["x"].shape == (len(rows), 3, 224, 224)
    assert data.columns["y"].tolist() == [int(float(row.text("target"))) for row in rows]
    assert float(data.columns["x"].float().std(dim=(1, 2, 3)).min()) > 5  # pictures, and not one colour
    made = federate(data, Natural())
    assert made.num_clients == len(rows) // 2
    assert made.batch(made.train.rows)["x"].shape == (len(rows) // 2, 3, 200, 200)
