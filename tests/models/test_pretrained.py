"""EfficientNet-B0 with torchvision's names, and text encoders from a folder: weights are read, checked and kept."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from fedchord.check import FedchordError
from fedchord.core.task import Task
from fedchord.data import DataSet, Iid, federate
from fedchord.data.sources.mqp import PIECES
from fedchord.experiments.config import RunConfig
from fedchord.models import EfficientNetB0, TextEncoder, build, masked
from fedchord.models.efficientnet import Excitation, Residual


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def normed(name: str, conv: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """A convolution (`.0`) and its BatchNorm (`.1`)."""
    shapes = {f"{name}.1.{part}": (conv[0],) for part in ("weight", "bias", "running_mean", "running_var")}
    return {f"{name}.0.weight": conv} | shapes | {f"{name}.1.num_batches_tracked": ()}


def torchvision_shapes() -> dict[str, tuple[int, ...]]:
    """The names and shapes of torchvision's efficientnet_b0, listed from the paper's table and torchvision's scheme."""
    found = normed("features.0", (32, 3, 3, 3))
    table = [(1, 3, 16, 1), (6, 3, 24, 2), (6, 5, 40, 2), (6, 3, 80, 3), (6, 5, 112, 3), (6, 5, 192, 4), (6, 3, 320, 1)]
    inputs = 32
    for stage, (expansion, kernel, outputs, layers) in enumerate(table, 1):
        for layer in range(layers):
            name, wide, part = f"features.{stage}.{layer}.block", inputs * expansion, 0
            if expansion > 1:
                found |= normed(f"{name}.0", (wide, inputs, 1, 1))
                part = 1
            found |= normed(f"{name}.{part}", (wide, 1, kernel, kernel))
            squeezed = inputs // 4
            found[f"{name}.{part + 1}.fc1.weight"] = (squeezed, wide, 1, 1)
            found[f"{name}.{part + 1}.fc1.bias"] = (squeezed,)
            found[f"{name}.{part + 1}.fc2.weight"] = (wide, squeezed, 1, 1)
            found[f"{name}.{part + 1}.fc2.bias"] = (wide,)
            found |= normed(f"{name}.{part + 2}", (outputs, wide, 1, 1))
            inputs = outputs
    found |= normed("features.8", (1_280, 320, 1, 1))
    return found | {"classifier.1.weight": (1_000, 1_280), "classifier.1.bias": (1_000,)}


def published() -> dict[str, Tensor]:
    """Random weights with torchvision's names."""
    generator = torch.Generator().manual_seed(3)
    return {
        name: torch.tensor(7) if name.endswith("tracked") else torch.rand(shape, generator=generator) + 0.5
        for name, shape in torchvision_shapes().items()
    }


def test_names_and_shapes_are_torchvisions() -> None:
    with torch.device("meta"):
        model = EfficientNetB0()
    ours = {f"features.{n}": tuple(t.shape) for n, t in model.features.state_dict().items()}
    theirs = torchvision_shapes()
    assert len(theirs) == 360
    assert ours == {name: shape for name, shape in theirs.items() if name.startswith("features.")}


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_weights_are_read_and_never_drawn_anew(tmp_path: Path, kind: str) -> None:
    state, file = published(), tmp_path / f"b0.{kind}"
    if kind == "pth":
        torch.save(state, file)
    else:
        safetensors.torch.save_file(state, file)
    task = Task(lambda: build(f"efficientnet-b0:{file}", (3, 32, 32), 2))
    model = EfficientNetB0(2, weights=file)
    for name, tensor in model.features.state_dict().items():
        assert torch.equal(tensor, state[f"features.{name}"]), name
    given = Task(model)
    features = given.layout.select(["features"])
    starts = [task.init(1), task.fresh(2), given.fresh(3)]  # a function, a private copy, a module drawn anew
    for start in starts:
        assert torch.equal(start["theta"][features], given.init(0)["theta"][features])
        assert torch.equal(start["buffers"], given.init(0)["buffers"])
    heads = [start["theta"][given.layout.select(["head"])] for start in starts]
    assert not torch.equal(heads[0], heads[1]) and not torch.equal(heads[1], heads[2])


def _without(state: dict[str, Tensor]) -> None:
    del state["features.3.1.block.2.fc1.bias"]


def _other_shape(state: dict[str, Tensor]) -> None:
    state["features.2.0.block.0.0.weight"] = torch.zeros(96, 24, 1, 1)


def _wider(state: dict[str, Tensor]) -> None:
    state["features.7.1.block.0.0.weight"] = torch.zeros(1)


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (_without, "has no features.3.1.block.2.fc1.bias: not weights of torchvision's efficientnet_b0"),
        (_other_shape, r"features.2.0.block.0.0.weight of .* must have shape \(96, 16, 1, 1\), got \(96, 24, 1, 1\)"),
        (_wider, "has features.7.1.block.0.0.weight, which EfficientNet-B0 has not"),
    ],
)
def test_the_first_mismatch_is_named(tmp_path: Path, spoil: Any, line: str) -> None:
    state = published()
    spoil(state)
    torch.save(state, tmp_path / "b0.pth")
    with pytest.raises(FedchordError, match=line):
        EfficientNetB0(weights=tmp_path / "b0.pth")


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("hello")
    (tmp_path / "text.safetensors").write_text("hello")
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save(torch.nn.Linear(1, 1), tmp_path / "code.pth")  # a pickled object would be run
    cases = {
        "none.pth": "EfficientNetB0: no such file of weights",
        "text.pth": "EfficientNetB0: .* is not a file of weights",
        "text.safetensors": "EfficientNetB0: .* is not a file of weights",
        "list.pth": "EfficientNetB0: .* holds no tensors by name",
        "code.pth": "EfficientNetB0: .* is not a file of weights",
    }
    for name, line in cases.items():
        with pytest.raises(FedchordError, match=line):
            EfficientNetB0(weights=tmp_path / name)


def test_names_with_paths() -> None:
    with pytest.raises(
        FedchordError, match=r"unknown model 'efficientnet:b0.pth'; did you mean 'efficientnet-b0:PATH'"
    ):
        build("efficientnet:b0.pth", (3, 32, 32), 2)
    with pytest.raises(FedchordError, match="encoder: a path must follow the colon, got nothing"):
        build("encoder:", (8,), 2)
    with pytest.raises(FedchordError, match="resnet10: a width must follow the colon, got 'x'"):
        build("resnet10:x", (3, 32, 32), 2)


def test_excitation_by_hand() -> None:
    part, x = Excitation(4, 2), torch.randn(3, 4, 5, 6)
    squeezed = x.mean((2, 3)) @ part.fc1.weight[:, :, 0, 0].t() + part.fc1.bias
    gate = (squeezed * torch.sigmoid(squeezed)) @ part.fc2.weight[:, :, 0, 0].t() + part.fc2.bias
    torch.testing.assert_close(part(x), x * torch.sigmoid(gate)[:, :, None, None])


def test_rows_skip_a_residual_in_training_only() -> None:
    part, x = Residual(8, 8, 6, 3, 1, skip=0.5), torch.randn(64, 8, 4, 4)
    new = part.train().block(x)
    y = part(x) - x
    skipped = (y == 0).flatten(1).all(1)
    assert 16 < int(skipped.sum()) < 48
    torch.testing.assert_close(y[~skipped], 2 * new[~skipped], atol=1e-5, rtol=1e-4)
    part.eval()
    torch.testing.assert_close(part(x), x + part.block(x))
    shifted = Residual(8, 8, 6, 3, 2, skip=0.5)
    torch.testing.assert_close(shifted(x), shifted.block(x), atol=1e-5, rtol=1e-4)


def test_the_head_sees_a_map_of_seven_by_seven() -> None:
    model = EfficientNetB0(8).eval()
    with torch.no_grad():
        x = torch.randn(1, 3, 200, 200)
        maps = model.features(x)
        assert maps.shape == (1, 1_280, 7, 7)
        torch.testing.assert_close(model(x), maps.flatten(1) @ model.head.weight.t() + model.head.bias)
    assert model.dropout.p == 0.1


# -- text encoders ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny DistilBERT with random weights."""
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    config = transformers.DistilBertConfig(
        vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=20, pad_token_id=0
    )
    transformers.DistilBertModel(config).save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


IDS = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 3, 2, 1]])


def test_an_encoder_without_transformers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(FedchordError) as error:
        TextEncoder(tmp_path)
    assert str(error.value) == "TextEncoder: needs transformers: pip install 'fedchord[text]'"


def test_encoder_head_by_hand(folder: Path) -> None:
    from transformers import DistilBertModel

    model = TextEncoder(folder, classes=3).eval()
    plain = DistilBertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        first = plain(input_ids=IDS, attention_mask=(IDS != 0).long()).last_hidden_state[:, 0]
        hidden = (first @ model.hidden.weight.t() + model.hidden.bias).clamp_min(0)
        torch.testing.assert_close(model(IDS), hidden @ model.head.weight.t() + model.head.bias)
    added = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in plain.parameters())
    assert added == 16 * 16 + 16 + 16 * 3 + 3
    assert model.dropout.p == 0.1


@pytest.mark.parametrize("pool", ["first", "mean"])
def test_padding_and_masks(folder: Path, pool: str) -> None:
    model = TextEncoder(folder, pool=pool).eval()
    torch.testing.assert_close(model(IDS)[:1], model(IDS[:1, :3]), atol=1e-5, rtol=1e-4)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    torch.testing.assert_close(masked(model, {"x": IDS, "attention": mask}), model(IDS))
    assert not torch.allclose(model(IDS, torch.ones_like(IDS))[0], model(IDS)[0])


def test_encoder_in_a_task(folder: Path) -> None:
    task = Task(lambda: build(f"encoder:{folder}", (5,), 2))
    kept = task.layout.select(["encoder"])
    first, second = task.init(1), task.fresh(2)
    assert torch.equal(first["theta"][kept], second["theta"][kept])
    assert not torch.equal(first["theta"], second["theta"])
    assert torch.equal(Task(TextEncoder(folder)).fresh(3)["theta"][kept], first["theta"][kept])
    batch = {"x": IDS, "y": torch.tensor([0, 1])}
    slope, _ = task.grad(first["theta"], first["buffers"], batch, key=4)
    assert slope.isfinite().all() and float(slope[kept].norm()) > 0  # all layers are trained
    with_mask = Task(TextEncoder(folder), apply=masked)
    outputs = with_mask.outputs(first["theta"], first["buffers"], batch | {"attention": (IDS != 0).long()})
    torch.testing.assert_close(outputs, task.outputs(first["theta"], first["buffers"], batch))


def test_other_encoders_lose_their_pooling_layer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    model = TextEncoder(tmp_path, pool="mean").eval()
    assert not any("pooler" in name for name, _ in model.named_parameters())
    assert model(IDS).shape == (2, 2)


def test_folders_that_are_no_encoders(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FedchordError, match=r"TextEncoder: needs a folder with config.json, got .*nowhere"):
        TextEncoder(tmp_path / "nowhere")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    name = sorted(weights)[0]
    del weights[name]
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(FedchordError, match=f"TextEncoder: .* has no weight {name}"):
        TextEncoder(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FedchordError, match="TextEncoder: cannot read"):
        TextEncoder(folder)


@pytest.mark.parametrize("size", [0, 500, 5000])
def test_truncated_weights(folder: Path, size: int) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(FedchordError, match=f"TextEncoder: cannot read {folder}: .") as error:
        TextEncoder(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "config",
    [
        *("[]", "3", "null", "{}", "{", '{"model_type": ["a"]}', '{"model_type": "distilbert", "dim": "a"}'),
        *('{"model_type": "distilbert", "n_heads": 0}', '{"model_type": "distilbert", "activation": "none"}'),
    ],
)
def test_a_config_that_is_none(folder: Path, config: str) -> None:
    (folder / "config.json").write_text(config)
    with pytest.raises(FedchordError, match=f"TextEncoder: cannot read {folder}: .") as error:
        TextEncoder(folder)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_texts_are_compared_with_the_folder(folder: Path) -> None:
    """The folder has 50 pieces, 20 positions and the padding id 0."""
    ids = torch.zeros(3, 30, dtype=torch.int32)
    ids[:, 0], ids[1, :20] = 1, 49

    def task(x: Tensor) -> Task:
        found = federate(DataSet("mqp", {"x": x, "y": torch.tensor([0, 1, 1])}, 2), Iid(), 1, test=0.0)
        return RunConfig.from_pairs(["data=mqp", f"model=encoder:{folder}", "method=fedavg"]).task(found)

    made = task(ids)
    start = made.init(0)
    assert made.outputs(start["theta"], start["buffers"], {"x": ids.long(), "y": ids[:, 0]}).isfinite().all()
    cases = {
        (1, 19, 50): "has a vocabulary of 50 (ids 0..49), but the data hold 50",
        (1, 19, -1): "has a vocabulary of 50 (ids 0..49), but the data hold -1",
        (2, 20, 7): "has positions for 20 tokens, but the data have a text of 21",
        (1, 29, 7): "has positions for 20 tokens, but the data have a text of 30",
    }
    for (row, place, value), line in cases.items():
        wrong = ids.clone()
        wrong[row, place] = value
        with pytest.raises(FedchordError) as error:
            task(wrong)
        assert str(error.value) == f"TextEncoder: {folder} {line}"
    for padding in ("1", "null"):
        file = folder / "config.json"
        changed = re.sub(r'"pad_token_id": \w+', f'"pad_token_id": {padding}', file.read_text())
        file.write_text(changed)
        told = "None" if padding == "null" else padding
        with pytest.raises(FedchordError, match=f"has the padding id {told}, but the data are padded with 0"):
            task(ids)
    with pytest.raises(FedchordError, match=r"needs token ids, which are whole numbers, got torch\.float32"):
        TextEncoder(folder).check(torch.ones(2, 3))


def test_positions_that_count_from_the_padding_id_on(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    config = transformers.RobertaConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=22,
        pad_token_id=1,
    )
    transformers.RobertaModel(config).save_pretrained(tmp_path)
    model, ids = TextEncoder(tmp_path).eval(), torch.full((2, 21), 5)
    model.check(ids[:, :20])
    assert model(ids[:, :20]).shape == (2, 2)
    with pytest.raises(FedchordError, match="has positions for 20 tokens, but the data have a text of 21"):
        model.check(ids)


def test_distilberts_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """66,362,880 parameters in the base model and 592,130 after it, without weights and without memory."""
    transformers = pytest.importorskip("transformers", reason="the extra text is not installed")
    with torch.device("meta"):
        base = transformers.DistilBertModel(transformers.DistilBertConfig())
        monkeypatch.setattr("fedchord.models.encoder._read", lambda folder, empty: base)
        model = TextEncoder(tmp_path, classes=2)
    counts = [sum(p.numel() for p in part.parameters()) for part in (model.encoder, model.hidden, model.head, model)]
    assert counts[0] == 66_362_880 and counts[1] + counts[2] == 592_130 and counts[3] == 66_955_010
    assert base.get_input_embeddings().num_embeddings == PIECES  # MQP's vocabulary


@pytest.mark.parametrize("pool", ["first", "mean"])
def test_batches_are_cut_at_their_longest_text(folder: Path, pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in any order and company give the same outputs; the encoder never sees a column of padding only."""
    monkeypatch.setattr("fedchord.models.encoder.ROWS", 3)
    model = TextEncoder(folder, pool=pool, dropout=0.0)
    ids, lengths = torch.zeros(8, 20, dtype=torch.int64), [4, 1, 9, 2, 7, 3, 9, 5]
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.arange(1, length + 1) + row
    seen: list[int] = []
    inner = model.encoder.forward
    monkeypatch.setattr(
        model.encoder, "forward", lambda **given: (seen.append(given["input_ids"].shape[1]), inner(**given))[1]
    )
    whole = model.eval()(ids)
    assert seen == [3, 7, 9]  # three rows at a time, in the order of their lengths
    for row, length in enumerate(lengths):
        torch.testing.assert_close(whole[row : row + 1], model(ids[row : row + 1, :length]), atol=1e-5, rtol=1e-4)
    seen.clear()
    model.train()(ids[:2])
    assert seen == [4]
    assert model.eval()(torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 2)  # padding only


def test_the_marks_of_padding_are_not_those_of_targets() -> None:
    """`mask` tells which targets of a text count; an encoder must not take it for padding."""
    with pytest.raises(KeyError, match="attention"):
        masked(torch.nn.Identity(), {"x": IDS, "mask": IDS != 0})
