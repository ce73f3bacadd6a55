"""The exported folder: what is in it, what its card says, and when it is refused, with nothing left behind."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fedchord.check import FedchordError
from fedchord.experiments import session
from fedchord.experiments.config import RunConfig
from fedchord.experiments.progress import Silent
from fedchord.experiments.run import execute
from fedchord.export import again
from fedchord.export.chosen import choose, load_model
from fedchord.export.preprocessing import preprocessing
from fedchord.export.standalone import shared, table
from fedchord.export.write import export

FILES = {
    "README.md",
    "model.py",
    "predict.py",
    "preprocessing.json",
    "rows.py",
    "run.json",
    "settings.toml",
    "weights.safetensors",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of four sites, one of them with three rows."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    sites = ["north/1", "south", "west"] * 25 + ["tiny"] * 3
    rows = [f"{draw.normal(50, 9):.2f},{draw.normal():.3f},{site},{'ny'[row % 2]}" for row, site in enumerate(sites)]
    Path("t.csv").write_text("\n".join(["age,bmi,site,ill", *rows]))
    return tmp_path


def run(*pairs: str, out: str = "r") -> str:
    keys = ["data=t.csv", "data.label=ill", "data.client=site", "rounds=2", "executor=serial", f"out={out}"]
    given = {pair.partition("=")[0] for pair in pairs}
    execute(RunConfig.from_pairs([*(key for key in keys if key.partition("=")[0] not in given), *pairs]))
    return out


def facts(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "run.json").read_text())
    return found


def text(path: str) -> str:
    return Path(path).read_text()


def names(folder: str | Path) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


# -- what is in it -------------------------------------------------------------------------------------------------


def test_the_lines_and_the_files(here: Path) -> None:
    lines = export(run("method=ditto"), "north/1")
    assert lines == [
        "ditto after round 2 of 2",
        "wrote r/export-north_1: the model of client north/1, TwoNN with 41,001 parameters; loaded again, it gives the "
        "same outputs",
        "try it with: python r/export-north_1/predict.py rows.csv",
    ]
    assert names("r/export-north_1") == FILES
    assert {path.stat().st_mode & 0o777 for path in Path("r/export-north_1").iterdir()} == {0o666 & ~_umask()}
    state = load_file("r/export-north_1/weights.safetensors")
    expected = load_model("r", "north/1")
    assert list(state) == sorted(expected) and all(torch.equal(state[name], expected[name]) for name in expected)
    assert Path("r/export-north_1/settings.toml").read_bytes() == Path("r/config.toml").read_bytes()
    told = json.loads(Path("r/export-north_1/preprocessing.json").read_text())
    chosen = choose("r", "north/1")
    scaling = chosen.federation.scaling
    assert scaling is not None and told["client"] == "north/1"
    assert told["scaling"]["mean"] == scaling.mean[0].tolist() and told["scaling"]["own_rows_from"] is None
    assert told["features"] == [{"name": "age", "categories": []}, {"name": "bmi", "categories": []}]
    assert told["classes"] == ["n", "y"] and told["network"] == {"shape": [2], "dtype": "float32", "outputs": 1}
    export(run(out="g"), to="whole")
    told = json.loads(Path("whole/preprocessing.json").read_text())
    scaling = choose("g").federation.scaling
    assert scaling is not None
    assert [told["scaling"][part] for part in ("mean", "std")] == scaling.pooled.tolist()
    assert told["client"] is None and told["scaling"]["own_rows_from"] == 20


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_the_files_are_those_that_run_json_tells(here: Path) -> None:
    export(run(), to="e")
    told = facts("e")["files"]
    assert set(told) == FILES - {"run.json"}
    assert all(hashlib.sha256(Path("e", name).read_bytes()).hexdigest() == mark for name, mark in told.items())
    assert facts("e")["model"] == {
        "class": "TwoNN",
        "arguments": {"inputs": 2, "classes": 1},
        "parameters": 41_001,
        "objective": "binary cross-entropy",
    }


def test_the_lines_of_the_card_load_the_network(here: Path) -> None:
    export(run(), to="e")
    page = Path("e/README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) == 3
    more = "import torch; print(network.training, *network(torch.ones(1, 2)).flatten().tolist())"
    script = f"import sys; sys.modules['fedchord'] = None\n{code}\n{more}"
    (shell,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    assert shell == "python predict.py rows.csv > out.csv\n"
    Path("e/rows.csv").write_text("age,bmi\n50,0.5\n60,-1\n")
    done = subprocess.run([sys.executable, "-c", script], cwd="e", capture_output=True, text=True, timeout=120)
    asked = subprocess.run([sys.executable, *shell.split()[1:3]], cwd="e", capture_output=True, text=True, timeout=120)
    assert done.returncode == asked.returncode == 0, done.stderr + asked.stderr
    network = nn.Sequential(nn.Linear(2, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 1))
    network.load_state_dict(dict(zip(network.state_dict(), choose("r").state().values(), strict=True)))
    training, value = done.stdout.split()
    assert training == "False" and float(value) == pytest.approx(network(torch.ones(1, 2)).item(), abs=1e-6)
    assert [line.split(",")[0] for line in asked.stdout.splitlines()] == ["row", "1", "2"]
    assert asked.stderr.startswith("2 rows: scaled by pooled statistics of the training rows")
    assert json.loads(Path("e/run.json").read_text())["needs"] == ["torch", "numpy", "safetensors"]


def test_mistakes_with_predict_py_are_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export(run(), to="e")
    Path("bad.csv").write_text("age\n50\n")
    monkeypatch.setattr(shared, "HERE", Path("e"))
    for words, code, told in (
        (["bad.csv"], 2, "error: bad.csv: has no column 'bmi' (columns: age)\n"),
        (["none.csv"], 2, "error: none.csv: no such file\n"),
        ([], "usage: python predict.py ROWS > out.csv", ""),
    ):
        monkeypatch.setattr(sys, "argv", ["predict.py", *words])
        with pytest.raises(SystemExit) as ended:
            shared.main(table.read, table.ready, nn.Identity)
        assert (ended.value.code, *capsys.readouterr()) == (code, "", told)


# -- the card ------------------------------------------------------------------------------------------------------


def test_the_card_of_the_global_model(here: Path) -> None:
    export(run("cohort=1", "rounds=1", "newcomers=1", "seed=3"), to="e")
    page, told = Path("e/README.md").read_text(), facts("e")
    summary = json.loads(Path("r/summary.json").read_text())
    assert page.startswith("# fedavg on t: the global model\n")
    row = summary["metrics"]["top1"]
    numbers = " | ".join(f"{row[column]:.4f}" for column in ("mean", "std", "worst10", "best10"))
    assert f"| top1 | {numbers} |" in page
    assert "- 2 of 3 clients were never sampled." in page
    assert "1 newcomers got the global model; means as received -> after 1 local epoch: " in page
    assert "It was not measured on clients that had no part" not in page
    assert all(f"- {note}" in page for note in summary["protocol"]["notes"][0]["text"].splitlines())
    assert told["metrics"]["top1"]["mean"] == row["mean"] and told["client"] is None
    assert "per_client" not in json.dumps(told)
    assert "t: 78 of 78 rows went to 4 clients by Natural" in page


def test_the_card_of_a_client(here: Path) -> None:
    export(run("method=superfed-mm", "seed=1"), "tiny", "e")
    page, told = Path("e/README.md").read_text(), facts("e")["client"]
    summary = json.loads(Path("r/summary.json").read_text())["per_client"]
    assert told["name"] == "tiny" and told["rounds"] == 2
    place = summary["client"].index("tiny")
    assert told["metrics"] == {
        name: values[place] for name, values in summary.items() if name not in ("client", "size")
    }
    assert f"Client tiny took part in 2 of 2 rounds and has {told['rows']['train']} training and" in page
    assert "- Whether it serves anybody but client tiny was not measured." in page
    assert "of 4 clients have fewer than 20 training rows, the smallest 2." in page
    assert "auroc is undefined for 1 of 4 clients" in page
    assert "| client tiny |\n" in page and "| auroc | " in page
    others = {value for at, value in enumerate(summary["loss"]) if at != place}
    shared = facts("e")["metrics"]["loss"].values()  # of four clients the worst and the best tenth are one each
    assert others - set(shared) and not [value for value in others - set(shared) if repr(value) in text("e/run.json")]
    assert "preprocessing.json holds the mean and the std of the client's training rows" in page


def test_clients_that_were_dealt_and_runs_that_are_not_finished(here: Path) -> None:
    class StopAfter(Silent):
        def update(self, round: int, metric: str, value: float | None) -> None:
            if round == 1:
                raise KeyboardInterrupt

    keys = ["data=digits", "clients=4", "model=logreg", "rounds=3", "executor=serial", "checkpoint_every=1", "out=r"]
    with pytest.raises(session.Stopped):
        execute(RunConfig.from_pairs(keys), progress=StopAfter())
    lines = export("r", to="e")
    page = Path("e/README.md").read_text()
    assert lines[0].startswith("fedavg after round ") and "of 3" in lines[0]
    assert "The run is not finished, so there are none." in page and "and nothing was measured." in page
    assert "- The clients are not real ones: the rows were dealt to them (split pathological)." in page
    assert "licence" in page and facts("e")["metrics"] is None
    assert tomllib.loads(Path("e/settings.toml").read_text())["data"] == "digits"


# -- models of one's own -------------------------------------------------------------------------------------------


def test_a_file_that_imports_more_is_told(here: Path) -> None:
    Path("net.py").write_text(
        "import numpy as np\nfrom torch import nn\nfrom fedchord.models import TwoNN\nimport os.path\n\n"
        "def make(inputs, classes):\n    return TwoNN(inputs, 5, classes)\n"
    )
    lines = export(run("model=net.py:make"), to="e")
    assert facts("e")["needs"] == ["torch", "numpy", "safetensors", "fedchord"]
    assert lines[-1] == "its own file imports fedchord, which must be installed where it is used"
    assert "the model's own file imports fedchord" in Path("e/README.md").read_text()
    assert Path("e/network.py").read_bytes() == Path("net.py").read_bytes()
    assert "return network.make(classes=2, inputs=2)" in Path("e/model.py").read_text()


def test_a_network_that_is_another_when_it_is_loaded_again(here: Path) -> None:
    """Weights that are no parameters and no buffers are lost: the folder is refused and nothing is left."""
    Path("net.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self, inputs):\n"
        "        super().__init__()\n        self.head = nn.Linear(inputs, 1)\n        self.noise = torch.rand(1)\n\n"
        "    def forward(self, x):\n        return self.head(x) + self.noise\n"
    )
    run("model=net.py:Net")
    with pytest.raises(FedchordError, match=r"^export: the network that was loaded again gives other outputs \(the la"):
        export("r")
    assert "export" not in names("r") and not [name for name in names("r") if "partial" in name]


def test_a_file_that_changed_is_refused(here: Path) -> None:
    Path("net.py").write_text("from torch import nn\n\ndef make(inputs):\n    return nn.Linear(inputs, 1)\n")
    run("model=net.py:make")
    Path("net.py").write_text("from torch import nn\n\ndef make(inputs):\n    return nn.Linear(inputs, 1, True)\n")
    with pytest.raises(FedchordError, match=r"net\.py:make has changed since the run was begun"):
        export("r")


def test_loading_again_leaves_nothing_behind(here: Path) -> None:
    Path("net.py").write_text("from torch import nn\n\ndef make(inputs):\n    return nn.Linear(inputs, 1)\n")
    export(run("model=net.py:make"), to="e")
    before = (set(sys.modules), list(sys.path))
    assert isinstance(again.loaded(Path("e")), nn.Linear)
    assert (set(sys.modules), list(sys.path)) == before and names("e") == FILES | {"network.py"}


# -- refused -------------------------------------------------------------------------------------------------------


def test_only_an_earlier_export_is_replaced(here: Path) -> None:
    export(run(), to="e")
    with pytest.raises(FedchordError, match=r"^export: e holds an earlier export; --replace writes it anew$"):
        export("r", to="e")
    Path("e/__pycache__").mkdir()
    export("r", "south", "e", replace=True)
    assert facts("e")["whose"] == "the model of client south" and names("e") == FILES
    Path("e/out.csv").write_text("mine")
    with pytest.raises(FedchordError, match=r"^export: e holds out\.csv, which no export wrote$"):
        export("r", to="e", replace=True)
    assert Path("e/out.csv").read_text() == "mine"
    Path("empty").mkdir()
    export("r", to="empty")
    Path("foreign").mkdir()
    Path("foreign/run.json").write_text('{"export": 7}')
    with pytest.raises(FedchordError, match=r"^export: foreign is not empty and no earlier export$"):
        export("r", to="foreign", replace=True)
    assert names("foreign") == {"run.json"}


def test_rows_with_several_labels_are_refused(here: Path) -> None:
    """As `fedchord predict` refuses them: texts of which every next word is a label."""
    chosen = choose(run())
    many = replace(chosen.federation, columns=chosen.federation.columns | {"y": torch.zeros(0, 4, dtype=torch.int64)})
    fitted = replace(chosen.fitted, work=replace(chosen.fitted.work, federation=many))
    with pytest.raises(FedchordError, match=r"^export: t has several labels per row; --to FILE\.safetensors"):
        preprocessing(replace(chosen, fitted=fitted))


def test_a_full_disk_is_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run()

    def full(tensors: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedchord.export.folder.save", full)
    with pytest.raises(FedchordError, match=r"^r/export cannot be written \(No space left on device\)$"):
        export("r")
    assert "export" not in names("r") and not [name for name in names("r") if "partial" in name]


def test_rows_that_are_needed_and_gone(here: Path) -> None:
    """fedavg-ft trains before use; other clients' models leave without the data."""
    run("method=fedavg-ft")
    run("method=ditto", out="d")
    Path("t.csv").rename("gone.csv")
    export("d", "south", "e")
    with pytest.raises(FedchordError, match=r"t\.csv"):
        export("r", "south")
    assert names("e") == FILES and not [name for name in names("r") if name.startswith("export")]


def test_a_folder_without_the_outline_reads_the_data(here: Path) -> None:
    export(run(), to="with")
    Path("r/data.safetensors").unlink()
    export("r", to="without")
    for name in ("weights.safetensors", "preprocessing.json", "model.py"):
        assert Path("with", name).read_bytes() == Path("without", name).read_bytes()
