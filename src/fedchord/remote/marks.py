"""Hashes of what travels, the names under which an upload travels, how it is weighed, and how large it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedchord.core.records import Log, Upload
from fedchord.remote.parcel import Parcel
from fedchord.tensors import Tensors, num_bytes

LOSS, REPORT = "loss", "report"
GROUPS = ("mix", "carry", "mean", "log.means", "log.sums")


def packed(upload: Upload) -> Tensors:
    """An upload as tensors by name: mix/theta, carry/buffers, ..."""
    parts = (upload.mix, upload.carry, upload.mean, upload.log.means, upload.log.sums)
    return {
        f"{group}/{name}": tensor for group, part in zip(GROUPS, parts, strict=True) for name, tensor in part.items()
    }


def grouped(tensors: Tensors) -> dict[str, Tensors]:
    """The same the other way round: tensors by group and name."""
    found: dict[str, Tensors] = {group: {} for group in GROUPS}
    for name, tensor in tensors.items():
        group, _, key = name.partition("/")
        if key and group in found:
            found[group][key] = tensor
    return found


def unpacked(tensors: Tensors) -> Upload:
    """The upload inside what came."""
    found = grouped(tensors)
    return Upload(found["mix"], found["carry"], found["mean"], Log(found["log.means"], found["log.sums"]))


def weighted(sent: Tensors, coefficient: float, share: float, counters: Tensor) -> Tensors:
    """The second of two phases: what is mixed is weighed here, so that a sum over clients is all that is needed.

    Plain means stay as they are (they have equal weights), and so do whole-number counters among the buffers.
    """
    found = dict(sent)
    for name, tensor in sent.items():
        if name.startswith("mix/"):
            found[name] = tensor * coefficient
        elif name.startswith("carry/"):
            counts = counters if counters.shape == tensor.shape else torch.zeros_like(tensor, dtype=torch.bool)
            found[name] = torch.where(counts, tensor, tensor * share)
    return found


def digest(tensors: Mapping[str, Tensor], facts: Mapping[str, Any] | None = None) -> str:
    """The SHA-256 of tensors by name, with their types and shapes, and of facts."""
    mark = hashlib.sha256(json.dumps(facts or {}, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        mark.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        mark.update(tensor.numpy().tobytes())
    return mark.hexdigest()


def size(parcel: Parcel) -> int:
    """How many bytes a parcel has, its facts as JSON."""
    return num_bytes(parcel.tensors) + len(json.dumps(parcel.facts))
