"""A federation without its rows: what its data look like, how they were prepared, who holds how many of them.

That is all that is needed to build the same model elsewhere and to treat new rows as the training rows were treated. It
is one safetensors file; names and shapes stand in its header.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as packed
from torch import Tensor

from fedchord.check import FedchordError, fail, require
from fedchord.core.inputs import Block, Inputs
from fedchord.data.augment import Pictures
from fedchord.data.features import Feature
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.data.scaling import Scaling
from fedchord.files import written
from fedchord.safe import json_of
from fedchord.tensors import Tensors

OUTLINE = "data.safetensors"
FORMAT = 1
MOST = 1 << 28
"""The most rows that an outline may tell of."""
_PARTS = ("train", "validation", "test")


def outline(federation: Federation, ranges: bool = False) -> Federation:
    """The same federation without a row; with `ranges` it keeps the ranges of numbers, which rules that make examples
    need and which are read off the training rows."""
    federation = federation.whole()
    columns = {name: column[:0] for name, column in federation.columns.items()}
    inputs = federation.inputs if ranges else federation.declared
    train, validation, test = (_numbered(getattr(federation, part).sizes) for part in _PARTS)
    return replace(
        federation, columns=columns, train=train, validation=validation, test=test, holdout=None, declared=inputs
    )


def save(federation: Federation, path: Path, ranges: bool = False) -> None:
    """Write the outline of a federation, whole or not at all."""
    told, tensors = _parts(outline(federation, ranges))
    with written(path) as beside:
        beside.write_bytes(packed(tensors, metadata={"fedchord": json.dumps(told)}))


def digest(found: Federation) -> str:
    """A hash of all that an outline tells."""
    told, tensors = _parts(found)
    mark = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        mark.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        mark.update(tensor.numpy().tobytes())
    return mark.hexdigest()


def _parts(found: Federation) -> tuple[dict[str, Any], Tensors]:
    """What an outline tells, and its tensors."""
    tensors: Tensors = {f"{part}.sizes": getattr(found, part).sizes for part in _PARTS}
    if found.scaling is not None:
        tensors |= {f"scaling.{name}": getattr(found.scaling, name) for name in ("scaled", "mean", "std", "pooled")}
    if found.declared is not None:
        for end in ("low", "high"):
            tensors[f"inputs.{end}"] = torch.as_tensor(getattr(found.declared, end))
    told = {
        "format": FORMAT,
        "name": found.name,
        "columns": {name: [_kind(column), list(column.shape[1:])] for name, column in found.columns.items()},
        "classes": found.classes,
        "class_names": found.class_names,
        "client_names": found.client_names,
        "features": [[feature.name, feature.categories] for feature in found.features],
        "blocks": found.blocks,
        "target": found.target,
        "pictures": None if found.pictures is None else asdict(found.pictures),
        "inputs": None if found.declared is None else {"observed": found.declared.observed},
        "notes": found.notes,
    }
    return told, {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def load(path: Path) -> Federation:
    """The outline that a file holds."""
    try:
        with safe_open(path, framework="pt") as stored:
            told = json_of((stored.metadata() or {})["fedchord"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118, it is no dict
        if told["format"] == FORMAT:
            return _made(told, tensors)
    except FileNotFoundError:
        raise fail(str(path), "no such file") from None
    except FedchordError as error:
        raise fail(str(path), f"is damaged ({error})") from None
    except (OSError, SafetensorError, KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise fail(str(path), f"is damaged ({type(error).__name__})") from None
    raise fail(str(path), f"is of another version of fedchord (format {told['format']!r})")


def _made(told: Mapping[str, Any], tensors: Tensors) -> Federation:
    columns = {
        name: torch.empty(0, *shape, dtype=getattr(torch, kind)) for name, (kind, shape) in told["columns"].items()
    }
    train, validation, test = (_numbered(_sizes(tensors[f"{part}.sizes"])) for part in _PARTS)
    scaling = None
    if "scaling.mean" in tensors:
        scaled, mean, std, pooled = (tensors[f"scaling.{name}"] for name in ("scaled", "mean", "std", "pooled"))
        scaling = Scaling(scaled, mean, std, pooled)
    pictures = None if told["pictures"] is None else _pictures(told["pictures"])
    made = Federation(
        told["name"],
        columns,
        told["classes"],
        train,
        validation,
        test,
        client_names=tuple(told["client_names"]),
        notes=tuple(told["notes"]),
        pictures=pictures,
        blocks=tuple(Block(*block) for block in told["blocks"]),
        class_names=tuple(told["class_names"]),
        features=tuple(Feature(name, tuple(categories)) for name, categories in told["features"]),
        scaling=scaling,
        target=None if told["target"] is None else tuple(told["target"]),
    )
    if told["inputs"] is None:
        return made
    low, high = (_end(tensors[f"inputs.{end}"]) for end in ("low", "high"))
    blocks = made.blocks if told["inputs"]["observed"] else ()
    inputs = Inputs(made.shape, made.classes, low, high, blocks, told["inputs"]["observed"])
    return replace(made, declared=inputs)


def _sizes(found: Tensor) -> Tensor:
    """Numbers of rows that somebody can have: memory is taken for each."""
    good = found.ndim == 1 and found.dtype == torch.int64 and bool(((found >= 0) & (found <= MOST)).all())
    require(good and int(found.sum()) <= MOST, "outline", f"sizes must be numbers of rows, at most {MOST} in all")
    return found


def _numbered(sizes: Tensor) -> Ragged:
    """Rows that are numbered through, as many as each client has."""
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    return Ragged(torch.arange(int(offsets[-1])), offsets)


def _end(value: Tensor) -> float | Tensor:
    return value if value.ndim else float(value)


def _pictures(told: Mapping[str, Any]) -> Pictures:
    lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
    return Pictures(**lists)


def _kind(column: Tensor) -> str:
    return str(column.dtype).removeprefix("torch.")
