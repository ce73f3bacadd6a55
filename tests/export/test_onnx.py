"""ONNX files give what torch gives, for any number of rows; what cannot be written is refused and leaves nothing."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedchord import models
from fedchord.check import FedchordError
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute
from fedchord.export import to_onnx
from fedchord.export.to_onnx import write_onnx
from fedchord.export.write import export

SMALL: dict[str, tuple[tuple[int, ...], int]] = {
    "logreg": ((5,), 1),
    "twonn": ((1, 4, 4), 3),
    "twocnn": ((1, 8, 8), 3),
    "smallconv:4": ((3, 8, 8), 1),
    "resnet9:8": ((3, 16, 16), 3),
    "mobilenet-short": ((1, 16, 16), 3),
    "vgg9": ((1, 16, 16), 3),
    "leafconv": ((3, 16, 16), 1),
    "efficientnet-b0": ((1, 32, 32), 2),
    "m5": ((1100,), 3),
    "lstm-characters": ((4,), 6),
    "lstm-words": ((4,), 6),
}
"""One of every network, at a small size; resnet18, mobilenet and lstm-words-200 are the same classes."""
STAGES = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2))
"""EfficientNet's first two stages have all kinds of blocks; the exporter takes ten seconds for seven."""


def onnxruntime() -> Any:
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason="the extra onnx is not installed")
    return pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


def test_every_class_is_tried() -> None:
    def kind(name: str, shape: tuple[int, ...], classes: int) -> object:
        return models.recipe(name, shape, classes).kind

    shown = {kind(name, entry.shape, entry.classes) for name, entry in models.MODELS.items()}
    assert shown == {kind(name, *sizes) for name, sizes in SMALL.items()}


@pytest.mark.parametrize("name", SMALL)
def test_every_model_is_what_torch_gives(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = onnxruntime()
    monkeypatch.setattr("fedchord.models.efficientnet.STAGES", STAGES)
    shape, classes = SMALL[name]
    torch.manual_seed(0)
    network = models.build(name, shape, classes).eval()
    for part in network.modules():  # statistics that change something
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            assert part.running_mean is not None and part.running_var is not None
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)

    def examples(rows: int) -> Tensor:
        draw = torch.Generator().manual_seed(rows)
        if name.startswith("lstm"):
            return torch.randint(0, classes, (rows, *shape), generator=draw)
        return torch.randn(rows, *shape, generator=draw)

    apart = write_onnx(network, examples, tmp_path / "model.onnx")
    assert apart < 1e-4 and [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    x = examples(12)  # another number of rows than was traced or tried
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    assert [part.name for part in session.get_inputs()] == ["x"]
    scores, probabilities = session.run(["scores", "probabilities"], {"x": x.numpy()})
    with torch.no_grad():
        expected = network(x)
    assert np.allclose(scores, expected.numpy(), atol=1e-4)
    chance = torch.sigmoid(expected) if classes == 1 else torch.softmax(expected, -1)
    found = probabilities[:, 1:] if classes == 1 else probabilities
    assert np.allclose(found, chance.numpy(), atol=1e-5) and np.allclose(probabilities.sum(-1), 1, atol=1e-5)


# -- whole folders -------------------------------------------------------------------------------------------------


def run(here: Path, *pairs: str) -> None:
    draw = np.random.default_rng(0)
    rows = [
        f"{draw.normal(5e4, 9e3):.1f},{draw.normal():.3f},{row % 3},{3e5 + 4e4 * draw.normal():.0f}"
        for row in range(60)
    ]
    (here / "t.csv").write_text("\n".join(["dose,bmi,client,cost", *rows]))
    keys = ["data=t.csv", "data.target=cost", "rounds=1", "lr=0.01", "executor=serial", f"out={here / 'r'}"]
    execute(RunConfig.from_pairs([*keys, *pairs]))


def test_a_folder_with_numbers_to_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = onnxruntime()
    monkeypatch.chdir(tmp_path)
    run(tmp_path)
    lines = export("r", format="onnx")
    assert lines[2].startswith("model.onnx was run beside torch on 1 and 7 rows; the largest difference is ")
    told = json.loads(Path("r/export/run.json").read_text())
    assert told["onnx"]["outputs"] == ["scores", "prediction"] and told["onnx"]["difference"] < 1e-5
    assert "model.onnx" in told["files"]
    page = Path("r/export/README.md").read_text()
    assert "`model.onnx` takes `x` (float32, (rows, 2)), rows that are ready as under Input" in page
    target = json.loads(Path("r/export/preprocessing.json").read_text())["target"]
    session = runtime.InferenceSession("r/export/model.onnx", providers=["CPUExecutionProvider"])
    scores, prediction = session.run(None, {"x": np.zeros((3, 2), dtype=np.float32)})
    assert np.allclose(prediction, scores * target["std"] + target["mean"], rtol=1e-6)


def test_texts_of_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime()
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    monkeypatch.chdir(tmp_path)
    shape: dict[str, Any] = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 16}
    transformers.DistilBertModel(transformers.DistilBertConfig(vocab_size=9, **shape)).save_pretrained("small")
    network = models.build("encoder-mean:small", (8,), 2).eval()

    def examples(rows: int) -> Tensor:
        ids = torch.randint(1, 9, (rows, 8), generator=torch.Generator().manual_seed(rows))
        return ids * (torch.arange(8) < 1 + torch.arange(rows)[:, None] % 8)

    assert write_onnx(network, examples, tmp_path / "model.onnx") < 1e-4


def test_a_difference_is_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime()
    monkeypatch.chdir(tmp_path)
    run(tmp_path, "model=logreg")
    run_beside = to_onnx.Answering.forward
    monkeypatch.setattr(to_onnx.Answering, "forward", _drifting(run_beside))
    with pytest.raises(FedchordError, match=r"^export: .* as ONNX: outputs differ from torch by up to 0\.5, more than"):
        export("r", format="onnx")
    assert not [path.name for path in Path("r").iterdir() if "export" in path.name]


def _drifting(forward: Any) -> Any:
    """Torch that answers otherwise when it is asked without being traced."""

    def drifted(self: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        scores, answer = forward(self, x)
        return (scores, answer) if torch.compiler.is_exporting() else (scores + 0.5, answer)

    return drifted


def test_what_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime()
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self, inputs):\n"
        "        super().__init__()\n        self.head = nn.Linear(inputs, 1)\n\n"
        "    def forward(self, x):\n        return self.head(x) if float(x.sum()) > 1 else -self.head(x)\n"
    )
    run(tmp_path, "model=net.py:Net")
    with pytest.raises(FedchordError) as error:
        export("r", format="onnx")
    assert str(error.value).startswith("export: Net cannot be written as ONNX (") and "\n" not in str(error.value)
    assert not [path.name for path in Path("r").iterdir() if "export" in path.name]
    export("r")


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "onnxscript":
            raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FedchordError, match=r"^export: --format onnx needs onnx.*: pip install 'fedchord\[onnx\]'$"):
        export("r", to="e", format="onnx")
    assert list(tmp_path.iterdir()) == []
