"""A federation without its rows: what is kept, that no row is, and what a damaged file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedchord.check import FedchordError, RowsMissing
from fedchord.data import Natural, Pathological, federate, from_arrays, from_table, load, outline
from fedchord.data.augment import Pictures
from fedchord.data.federation import DataSet, Federation


def table() -> Federation:
    draw = np.random.default_rng(0)
    columns = {
        "age": draw.normal(60, 9, 80),
        "ward": draw.choice(["A", "B"], 80),
        "who": draw.choice(["n", "s"], 80),
        "y": draw.choice(["no", "yes"], 80),
    }
    return federate(from_table(columns, "y", "who"), Natural(), validation=0.1)


def pictures() -> Federation:
    data = DataSet(
        "p",
        {"x": torch.zeros(12, 3, 8, 8, dtype=torch.uint8), "y": torch.arange(12) % 3},
        3,
        shown=Pictures(side=6, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2)),
    )
    return federate(data, Pathological(), 3)


def numbers() -> Federation:
    draw = np.random.default_rng(1)
    return federate(from_arrays(draw.normal(size=(40, 2)), draw.normal(size=40), [0, 1] * 20), Natural())


@pytest.mark.parametrize("make", [table, pictures, numbers, lambda: federate(load("digits"), Pathological(), 5)])
def test_it_is_the_federation_without_rows(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    made: Federation = make()
    outline.save(made, tmp_path / "data.safetensors", ranges=True)
    found = outline.load(tmp_path / "data.safetensors")
    for name in ("name", "classes", "client_names", "class_names", "features", "blocks", "target", "notes", "pictures"):
        assert getattr(found, name) == getattr(made, name), name
    for part in ("train", "validation", "test"):
        assert torch.equal(found.part(part).sizes, made.part(part).sizes)
    assert (found.shape, found.num_clients, found.regression) == (made.shape, made.num_clients, made.regression)
    assert torch.equal(torch.as_tensor(found.inputs.low), torch.as_tensor(made.inputs.low))
    assert torch.equal(torch.as_tensor(found.inputs.high), torch.as_tensor(made.inputs.high))
    assert (found.inputs.blocks, found.inputs.observed) == (made.inputs.blocks, made.inputs.observed)
    for name, column in made.columns.items():
        assert found.columns[name].dtype == column.dtype and len(found.columns[name]) == 0
        assert found.example(2)[name].shape[1:] == made.batch(torch.tensor([0, 1]))[name].shape[1:]
    if made.scaling is not None:
        assert found.scaling is not None
        assert torch.equal(found.scaling.mean, made.scaling.mean) and torch.equal(found.scaling.std, made.scaling.std)
    with pytest.raises(RowsMissing, match="the rows that are needed are not here"):
        found.batch(torch.tensor([0]))


def test_no_row_is_kept(tmp_path: Path) -> None:
    """A value that stands in one row only, and is no client's smallest or largest, is nowhere in the file."""
    marked = 123.4567
    x = np.linspace(0, 1000, 60)[:, None].repeat(2, 1)
    x[30, 0] = marked
    made = federate(from_arrays(x, np.arange(60) % 2, ["a"] * 60, scale="client"), Natural())
    outline.save(made, tmp_path / "o", ranges=False)
    content = (tmp_path / "o").read_bytes()
    assert np.float32(marked).tobytes() not in content and np.float64(marked).tobytes() not in content
    assert len(content) < 3000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[: len(content) // 2], "is damaged"),
        (lambda content: b"", "is damaged"),
        (lambda content: content.replace(b"classes", b"klasses"), "is damaged"),
        (lambda content: content.replace(b'\\"format\\": 1', b'\\"format\\": 7'), "is of another version of fedchord"),
    ],
)
def test_damage(tmp_path: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "data.safetensors"
    outline.save(table(), file)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(FedchordError, match=message) as error:
        outline.load(file)
    assert "\n" not in str(error.value)
    with pytest.raises(FedchordError, match="no such file"):
        outline.load(tmp_path / "none")
