"""Exported folders predict as `fedchord predict` does, in a process in which importing fedchord fails."""

from __future__ import annotations

import csv
import json
import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.exported import run_predict
from PIL import Image
from sklearn.datasets import load_digits

from fedchord.check import FedchordWarning
from fedchord.data.augment import Pictures
from fedchord.engine.executors import one_thread
from fedchord.experiments.config import RunConfig
from fedchord.experiments.predict import as_csv, predict_file
from fedchord.experiments.run import execute
from fedchord.export.chosen import choose
from fedchord.export.preprocessing import preprocessing
from fedchord.export.standalone import pictures as standalone
from fedchord.export.write import export

OWN = """
from torch import nn

def half(x):
    return x // 2

class Net(nn.Module):
    def __init__(self, inputs, classes, shape, width=4, name="plain"):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU())
        self.head = nn.Linear(width, classes)
        self.name, self.shape = name, shape

    def forward(self, x):
        return self.head(self.body(x))

def build(inputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, half(6)), nn.Tanh(), nn.Linear(3, 1), nn.Flatten(0))
"""


def table(rows: int, seed: int, labelled: bool = True, who: str = "") -> str:
    """Patients on odd scales with gaps and categories, in a file with semicolons and decimal commas."""
    draw = np.random.default_rng(seed)
    age, dose, ward = draw.normal(60, 10, rows), draw.normal(5e4, 9e3, rows), draw.choice(["A", "B", "?"], rows)
    risk = (age - 60) / 10 + (dose - 5e4) / 9e3 + 2 * (ward == "B") - 1
    site, clinic = draw.choice(["north", "south", "west"], rows), draw.choice([1.0, 2.0], rows)
    heads = ["age", "dose", "ward", "clinic", *(["site", "ill", "cost"] if labelled else ["site"] if who else [])]
    lines = [";".join(heads)]
    for row in range(rows):
        given = "" if draw.random() < 0.1 else f"{dose[row]:.2f}".replace(".", ",")
        strange = "C" if not labelled and row == 1 else ward[row]
        cells = [f"{age[row]:.3f}".replace(".", ","), given, strange, clinic[row]]
        cells += [site[row], "yes" if risk[row] > 0 else "no", f"{400 + 90 * risk[row]:.1f}"] if labelled else []
        cells += [f"{who}{row % 2}"] if who else []
        lines.append(";".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def write_data(here: Path) -> None:
    """Everything the runs below are trained on, and new rows."""
    (here / "t.csv").write_text(table(150, 1))
    (here / "many.csv").write_text(table(30, 2, labelled=False))
    (here / "few.csv").write_text(table(9, 3, labelled=False))
    (here / "others.csv").write_text(table(50, 4, labelled=False, who="new"))
    (here / "my_net.py").write_text(OWN)
    draw = np.random.default_rng(5)
    for number in range(40):
        pixels = draw.integers(0, 60, (14, 12, 3)) + 150 * (np.arange(14) // 7 == number % 2)[:, None, None]
        path = here / "pets" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    every = "".join(f"pets/{'ab'[n % 2]}/{n}.png,{'ab'[n % 2]},{n % 3}\n" for n in range(40))
    (here / "named.csv").write_text(f"file,label,client\n{every}")
    (here / "list.csv").write_text("file,client\n" + "".join(f"pets/a/{n}.png,x\n" for n in (0, 2, 4)))
    np.savez(here / "pixels.npz", x=draw.integers(0, 256, (5, 3, 12, 12), dtype=np.uint8))
    digits = load_digits()
    np.savez(here / "digits.npz", x=digits.images[:25, None].astype(np.uint8), client=["p"] * 20 + ["q"] * 5)
    tokens = draw.integers(0, 6, (120, 5)).astype(np.int32)
    np.savez(here / "tokens.npz", x=tokens, y=tokens[:, -1])
    np.savez(here / "new_tokens.npz", x=tokens[:7])
    x = draw.normal(size=(90, 3)) * [1, 100, 1e4]
    np.savez(here / "x.npz", x=x, y=(x[:, 0] > 0).astype(int), client=["a", "b", "c"] * 30)
    np.savez(here / "new_x.npz", x=x[:24] + 1)


@dataclass(frozen=True)
class Case:
    """A run, whose model leaves, and the rows it is asked about."""

    settings: str
    rows: str
    client: str | None = None


TABLE = "data=t.csv data.label=ill data.client=site data.drop=cost data.category=clinic"
COST = "data=t.csv data.target=cost data.client=site data.drop=ill"
PETS = "data=./pets data.size=12 clients=3 split=iid model=smallconv:4"
CASES = {
    "a table with gaps and categories, a client's own model": Case(f"{TABLE} method=ditto", "many.csv", "north"),
    "a client that trains before use": Case(f"{TABLE} method=fedavg-ft", "many.csv", "west"),
    "a client that never took part": Case(f"{TABLE} method=fedper cohort=1 rounds=1 seed=2", "few.csv", "south"),
    "the global model, enough rows": Case(TABLE, "many.csv"),
    "the global model, few rows": Case(TABLE, "few.csv"),
    "the global model, several new clients": Case(TABLE, "others.csv"),
    "a client's model, rows that name clients": Case(TABLE, "others.csv", "north"),
    "a table that is not scaled": Case(f"{TABLE} data.scale=none lr=0.0001", "many.csv", "south"),
    "numbers to predict": Case(f"{COST} lr=0.01", "many.csv"),
    "numbers to predict, a client": Case(f"{COST} lr=0.01 loss=absolute", "few.csv", "west"),
    "pictures in a folder": Case(PETS, "pets"),
    "pictures in an array": Case(PETS, "pixels.npz", "1"),
    "one picture": Case(PETS, "pets/a/0.png"),
    "pictures in a list": Case(f"{PETS} seed=1".replace("./pets", "named.csv data.picture=file"), "list.csv"),
    "ten classes": Case("data=digits clients=5 model=twonn", "digits.npz"),
    "BatchNorm, global": Case("data=digits clients=5 model=mobilenet-short lr=0.01", "digits.npz"),
    "BatchNorm, a point on a line": Case(
        "data=digits clients=5 model=mobilenet-short method=superfed-mm method.warmup=0.0 lr=0.01", "digits.npz", "2"
    ),
    "tokens": Case("data=tokens.npz data.scale=none clients=4 split=iid model=lstm-characters", "new_tokens.npz"),
    "arrays that are scaled": Case("data=x.npz data.scale=client", "new_x.npz"),
    "arrays that are scaled, a client": Case("data=x.npz data.scale=client", "new_x.npz", "b"),
    "a network of one's own": Case(
        "data=digits clients=5 model=my_net.py:Net model.width=6 model.name=it's", "digits.npz"
    ),
    "two classes, two outputs": Case(f"{TABLE} model=my_net.py:Net", "many.csv", "north"),
    "a function of one's own, one flat logit": Case(f"{TABLE} model=my_net.py:build", "many.csv"),
}


def test_the_same_columns_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case by both ways; all folders in one process, since most of its time goes into importing torch."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    with one_thread():
        ours = [_ours(case, number) for number, case in enumerate(CASES.values())]
    run_predict(
        [(tmp_path / f"e{n}", tmp_path / case.rows, tmp_path / f"o{n}") for n, case in enumerate(CASES.values())]
    )
    wrong = {}
    for number, name in enumerate(CASES):
        try:
            same(ours[number], Path(f"o{number}").read_text())
        except AssertionError as error:
            wrong[name] = str(error).splitlines()[0]
    assert not wrong
    assert len(set(ours)) == len(CASES)  # a known client is not scaled like a new one, nor is its model the global one


def _ours(case: Case, number: int) -> str:
    """Train, export, and ask `fedchord predict`."""
    given = dict(word.split("=", 1) for word in case.settings.split())
    settings = {"rounds": "2", "executor": "serial", "out": f"r{number}"} | given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedchordWarning)  # of features that nothing scales
        execute(RunConfig.from_pairs([f"{key}={value}" for key, value in settings.items()]))
    export(f"r{number}", case.client, f"e{number}")
    return as_csv(*predict_file(f"r{number}", Path(case.rows).resolve(), case.client))


def same(expected: str, found: str) -> None:
    """Two csv files with the same heads, names and labels, and numbers that agree to 1e-6 and the last digit."""
    theirs, mine = (list(csv.reader(text.splitlines())) for text in (expected, found))
    assert mine[0] == theirs[0] and len(mine) == len(theirs) > 1
    for one, other in zip(mine[1:], theirs[1:], strict=True):
        for head, got, wanted in zip(theirs[0], one, other, strict=True):
            if head == "prediction" or head.startswith("p("):
                digit = 10.0 ** (math.floor(math.log10(abs(float(wanted)) or 1)) - 5)  # six are written
                assert float(got) == pytest.approx(float(wanted), rel=0, abs=1e-6 + 1.01 * digit), (head, one, other)
            else:
                assert got == wanted
    values = [row[-1] for row in theirs[1:]]
    assert len(set(values)) > 1 or len(values) == 1, "all rows get the same answer, so nothing was compared"


def test_pictures_that_are_cut_and_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some public data are shown to a network; files of one's own are not."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    keys = ["data=./pets", "data.size=12", "clients=3", "split=iid", "model=resnet10:4", "rounds=1", "out=r"]
    execute(RunConfig.from_pairs([*keys, "executor=serial"]))
    chosen = choose("r")
    shown = replace(chosen.federation, pictures=Pictures(8, (0.5, 0.4, 0.3), (0.1, 0.2, 0.3), mirror=True))
    chosen = replace(chosen, fitted=replace(chosen.fitted, work=replace(chosen.fitted.work, federation=shown)))
    told = json.loads(json.dumps(preprocessing(chosen)))
    assert told["network"]["shape"] == [3, 8, 8]
    x = torch.randint(0, 256, (4, 3, 12, 12), dtype=torch.uint8)
    found, _ = standalone.ready(x, told)
    colours = torch.tensor([[0.5, 0.4, 0.3], [0.1, 0.2, 0.3]]).reshape(2, 1, 3, 1, 1)
    assert torch.allclose(found, (x[:, :, 2:10, 2:10] / 255 - colours[0]) / colours[1], atol=1e-6)
    assert torch.equal(found, shown.ready({"x": x})["x"])


def test_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder is built from its config alone: neither its weights nor its folder are needed."""
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    monkeypatch.chdir(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "very", "day", "##s"]
    shape: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"intermediate_size": 16, "max_position_embeddings": 16, "vocab_size": len(words)}
    transformers.BertModel(transformers.BertConfig(**shape, **more)).save_pretrained("small")
    Path("small/vocab.txt").write_text("\n".join(words) + "\n")
    lines = [f"{'very ' * (row % 3)}{['bad', 'good'][row % 2]} days,{'ny'[row % 2]},{row % 3}" for row in range(60)]
    Path("t.csv").write_text("\n".join(["say,mood,who", *lines]))
    Path("new.csv").write_text('say\nvery good\nbad bad day\n"odd, isn\'t it"\n')
    expected = {}
    for name, model in (("first", "encoder:small"), ("mean", "encoder-mean:small")):
        keys = ["data=t.csv", "data.text=say", "data.label=mood", "data.client=who", "data.length=8", "rounds=1"]
        execute(RunConfig.from_pairs([*keys, f"model={model}", f"out=r-{name}", "executor=serial"]))
        expected[name] = as_csv(*predict_file(f"r-{name}", "new.csv", "1"))
        export(f"r-{name}", "1", name)
        assert sorted(path.name for path in Path(name, "encoder").iterdir()) == ["config.json", "vocab.txt"]
    Path("small").rename("gone")
    run_predict([(tmp_path / name, tmp_path / "new.csv", tmp_path / f"o-{name}") for name in expected])
    for name, told in expected.items():
        same(told, Path(f"o-{name}").read_text())
    assert expected["first"] != expected["mean"]
