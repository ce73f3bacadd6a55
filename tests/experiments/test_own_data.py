"""Data of your own in whole runs: what is chosen, what enters the fingerprint, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_diabetes

from fedchord.check import FedchordError, FedchordWarning
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute
from fedchord.experiments.run import resume as go_on


@pytest.fixture
def cancer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Breast cancer as a csv file with three made-up hospitals."""
    monkeypatch.chdir(tmp_path)
    found = load_breast_cancer()
    names = [name.replace(" ", "_") for name in found.feature_names]
    lines = [";".join([*names, "diagnosis", "hospital"])]
    for row, (x, y) in enumerate(zip(found.data, found.target, strict=True)):
        cells = [repr(float(value)) for value in x]
        lines.append(";".join([*cells, str(found.target_names[y]), "nse"[row % 3]]))
    Path("bc.csv").write_text("\n".join(lines))
    return tmp_path / "bc.csv"


def config(*pairs: str) -> RunConfig:
    return RunConfig.from_pairs(["data=bc.csv", "data.label=diagnosis", "rounds=10", "executor=serial", *pairs])


def test_scaled_by_client_it_learns_and_raw_it_is_warned_of(cancer: Path) -> None:
    scaled = execute(config("data.client=hospital"))
    assert scaled["metrics"]["auroc"]["mean"] > 0.985
    with (
        pytest.warns(FedchordWarning, match="differ in spread by a factor of .* and nothing scales them"),
        pytest.raises(FedchordError, match=r"updates can be used.* exploded: .*; try a lower lr"),
    ):
        execute(config("data.client=hospital", "data.scale=none"))
    assert scaled["per_client"]["client"] == ["e", "n", "s"]


def test_choices_follow_the_columns(cancer: Path) -> None:
    natural, dealt = config("data.client=hospital"), config("data.drop=hospital")
    assert natural.choices()["split"] == "natural" and dealt.choices()["split"] == "pathological"
    assert dealt.choices()["clients"] == 20 and dealt.federation().num_clients == 20
    assert dealt.federation().classes == 2 and int(dealt.federation().train.sizes.min()) > 15
    with pytest.raises(FedchordError, match=r"unknown column of bc.csv 'label'"):
        RunConfig(data="bc.csv").federation()


def test_what_the_file_holds_is_in_the_fingerprint(cancer: Path) -> None:
    before = config("out=runs/a", "data.client=hospital")
    mark = before.fingerprint()
    execute(before)
    text = cancer.read_text()
    cancer.write_text(text + text.splitlines()[-1] + "\n")
    after = config("out=runs/a", "data.client=hospital")
    assert after.fingerprint() != mark
    with pytest.raises(FedchordError, match="runs/a already holds another run, finished"):
        execute(after)
    cancer.write_text(text)
    assert config("out=runs/a", "data.client=hospital").fingerprint() == mark


def test_a_run_goes_on_with_the_same_file_only(cancer: Path) -> None:
    execute(config("out=runs/a", "data.client=hospital", "checkpoint_every=1"))
    (Path("runs/a") / "summary.json").unlink()
    text = cancer.read_text()
    cancer.write_text(text + text.splitlines()[-1] + "\n")
    with pytest.raises(FedchordError, match=r"run: bc.csv has changed since the run was begun; start a new one"):
        go_on("runs/a")
    cancer.write_text(text)
    assert go_on("runs/a")["metrics"]["auroc"]["mean"] > 0.98


def test_another_data_set_leaves_the_keys_of_the_file_behind(cancer: Path) -> None:
    told: list[str] = []
    base = config("data.client=hospital").given()
    other = RunConfig.from_pairs(["data=digits"], base, told.append)
    assert other.data == "digits" and other.data_label is None
    assert told == ["data.label, data.client left out: data=digits has no such parameter"]


def test_regression_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = load_diabetes(scaled=False)
    rows = [",".join([*found.feature_names, "progress"])]
    rows += [",".join(map(repr, [*map(float, x), float(y)])) for x, y in zip(found.data, found.target, strict=True)]
    Path("d.csv").write_text("\n".join(rows))
    base = ["data=d.csv", "data.target=progress", "clients=4", "rounds=20", "lr=0.01", "executor=serial"]
    for more in ([], ["loss=absolute"], ["method=superfed-mm", "validation=0.1"], ["method=aaggff-s", "cohort=all"]):
        summary = execute(RunConfig.from_pairs([*base, *more]))
        assert list(summary["metrics"]) == ["r2", "mae", "mse", "loss"]
        assert summary["metrics"]["r2"]["mean"] > 0.2, more
        assert summary["protocol"]["objective"] == ("absolute error" if "loss=absolute" in more else "squared error")
    config = RunConfig.from_pairs(base)
    assert config.choices()["split"] == "iid"
    for more, message in (
        ("loss=log", "run: loss must be one of squared, absolute, got 'log'"),
        ("metrics=f1", "f1: is for classes, not for numbers to predict"),
        ("method=fedevg-tables", "run: fedevg-tables makes samples of classes, but d has numbers to predict"),
        ("noise=pair noise.rate=0.1", "federate: label noise needs classes, d has numbers to predict"),
        ("split=pathological", "Pathological: needs classes, d has numbers to predict; use split=iid"),
        ("class_weights=true", "federate: class weights need one class per row"),
    ):
        with pytest.raises(FedchordError) as error:
            execute(RunConfig.from_pairs([*base, *more.split()]))
        assert str(error.value) == message


def test_pictures_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    lines = ["file,label,client"]
    for number in range(60):
        kind = number % 2
        pixels = draw.integers(0, 60, (12, 12)) + 150 * (np.arange(12) // 6 == kind)[:, None]
        path = Path("pets") / "ab"[kind] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        lines.append(f"{path},{'ab'[kind]},{number % 3}")
    Path("list.csv").write_text("\n".join(lines))
    settings = ["clients=3", "split=iid", "rounds=8", "executor=serial", "model=smallconv:4"]
    folder = execute(RunConfig.from_pairs(["data=./pets", *settings]))
    assert folder["metrics"]["top1"]["mean"] > 0.9
    listed = RunConfig.from_pairs(["data=list.csv", "data.picture=file", "data.size=16", "rounds=1"])
    assert listed.choices()["model"] == "twocnn" and listed.choices()["split"] == "natural"
    assert listed.federation().shape == (1, 16, 16)
    marked = RunConfig.from_pairs(["data=./pets"]).fingerprint()
    Image.new("L", (12, 12)).save("pets/a/new.png")
    assert RunConfig.from_pairs(["data=./pets"]).fingerprint() != marked


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("data.label=x", "run: data.label is for data of your own (a file or a folder), got data=digits"),
        ("data=a.npz data.label=x", "run: an npz file takes data.scale, got data.label"),
        ("data=a.csv data.size=3", "run: a table takes data.label and data.target and data.client and data.drop and"),
        ("data=a.csv data.label=x data.target=y", "run: data.label (classes) and data.target (numbers) cannot both be"),
        ("data=a.csv data.scale=row", "run: data.scale must be one of client, none, got 'row'"),
        (
            "data=a.csv data.text=x",
            "run: data.text needs model=encoder:FOLDER (or encoder-mean:FOLDER), got model=None",
        ),
        ("data=a.csv data.text=x data.drop=y", "run: a texts takes"),
        ("data=a.csv data.drop=3", "run: data.drop must be names, got 3"),
        ("loss=squared", "run: loss=squared is for numbers to predict (data.target), got data=digits"),
        ("data=./nowhere", "unknown data set './nowhere'"),
        ("data=a.csv data.length=many data.text=x", "run: data.length must be a whole number, got 'many'"),
    ],
)
def test_settings_that_do_not_fit(pairs: str, message: str) -> None:
    with pytest.raises(FedchordError) as error:
        RunConfig.from_pairs(pairs.split())
    assert str(error.value).startswith(message)


def test_texts_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    monkeypatch.chdir(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "very", "day"]
    shape: dict[str, Any] = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 16}
    config = transformers.DistilBertConfig(vocab_size=len(words), **shape)
    transformers.DistilBertModel(config).save_pretrained("small")
    Path("small/vocab.txt").write_text("\n".join(words) + "\n")
    draw = np.random.default_rng(0)
    lines = ["say,mood,who"]
    for row in range(80):
        mood = ["bad", "good"][row % 2]
        lines.append(f"{' '.join(draw.permutation(['very', mood, 'day']))},{mood},{row % 3}")
    Path("t.csv").write_text("\n".join(lines))
    keys = ["data=t.csv", "data.text=say", "data.label=mood", "data.client=who", "data.length=8"]
    summary = execute(
        RunConfig.from_pairs([*keys, "model=encoder:small", "rounds=12", "optimiser=adam", "lr=0.001", "seed=1"])
    )
    assert summary["metrics"]["auroc"]["mean"] > 0.95
