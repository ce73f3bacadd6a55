"""Messages are checked before anything is done with them, on both sides: what came is not trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import fedchord
from fedchord.check import fail, require
from fedchord.data.federation import Federation
from fedchord.remote.parcel import Parcel
from fedchord.remote.plan import Plan
from fedchord.tensors import Tensors, num_bytes

FACTS = 1 << 16
"""The most bytes that the facts of a parcel may have as JSON."""


def signed(plan: Plan, **told: Any) -> dict[str, Any]:
    """Facts with the marks by which both sides know that they speak of the same: the plan and the version."""
    return {"plan": plan.fingerprint, "version": fedchord.__version__, **told}


def check_marks(plan: Plan, facts: Mapping[str, Any], owner: str) -> None:
    """Refuse a message of another plan or of another version."""
    version, here = facts.get("version"), fedchord.__version__
    require(version == here, owner, f"speaks for fedchord {version}, this is {here}")
    mark = str(facts.get("plan"))
    require(mark == plan.fingerprint, owner, f"is for another plan ({mark[:8]}, this one is {plan.fingerprint[:8]})")


def welcomed(plan: Plan, hello: Parcel) -> int:
    """The client that a node's hello speaks for; refused where it is of another plan or version, or no client."""
    check_marks(plan, hello.facts, "node")
    return whole(hello.facts, "client", "node", 0, plan.clients - 1)


def whole(facts: Mapping[str, Any], name: str, owner: str, low: int, high: int) -> int:
    """A whole number among facts."""
    value = facts.get(name)
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    require(good, owner, f"{name} must be a whole number from {low} to {high}, got {value!r}")
    assert isinstance(value, int)
    return value


def number(facts: Mapping[str, Any], name: str, owner: str, low: float, high: float) -> float:
    """A finite number among facts."""
    value = facts.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    require(good, owner, f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
    assert isinstance(value, int | float)
    return float(value)


def check_size(parcel: Parcel, most: int, owner: str) -> None:
    """Refuse a parcel that is larger than any that is expected."""
    found = num_bytes(parcel.tensors)
    require(found <= most, owner, f"is too large: {found} bytes, at most {most} were expected")
    try:
        length = len(json.dumps(parcel.facts))
    except (TypeError, ValueError):
        raise fail(owner, "holds facts that are no JSON") from None
    require(length <= FACTS, owner, f"is too large: {length} bytes of facts, at most {FACTS} were expected")


def check_tensors(
    found: Tensors, expected: Tensors, owner: str, finite: bool = True, optional: frozenset[str] = frozenset()
) -> None:
    """Refuse other names, shapes or types than expected, and, with `finite`, numbers that are none."""
    strange = sorted(found.keys() - expected.keys())
    require(not strange, owner, f"holds {', '.join(strange[:3])}, which nobody asked for")
    lacking = sorted(expected.keys() - found.keys() - optional)
    require(not lacking, owner, f"lacks {', '.join(lacking[:3])}")
    for name, tensor in found.items():
        like = expected[name]
        require(isinstance(tensor, Tensor), owner, f"{name} is no tensor")
        same = tensor.shape == like.shape and tensor.dtype == like.dtype
        told = f"{_kind(tensor)}, {_kind(like)} was expected"
        require(same, owner, f"{name} is {told}")
        if finite and tensor.is_floating_point():
            require(bool(torch.isfinite(tensor).all()), owner, f"{name} holds numbers that are not finite")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def fits(plan: Plan, client: int, rows: Federation) -> None:
    """Refuse rows that are not what the plan says of this client."""
    known = plan.outline
    require(0 <= client < plan.clients, "node", f"there is no client {client}, only {plan.clients} from 0")
    name = known.client_names[client]
    if rows.num_clients != plan.clients:
        raise fail("node", f"{rows.name} has {rows.num_clients} clients, the plan has {plan.clients}")
    others = [part for part in range(plan.clients) if part != client and len(rows.train[part])]
    require(not others, "node", f"holds rows of client {others[0] if others else ''} besides those of {name}")
    for column, like in known.columns.items():
        there = column in rows.columns
        require(there, "node", f"the rows of {name} lack the column {column}")
        found = rows.columns[column]
        same = found.shape[1:] == like.shape[1:] and found.dtype == like.dtype
        told = f"{found.dtype} {tuple(found.shape[1:])}, the plan says {like.dtype} {tuple(like.shape[1:])}"
        require(same, "node", f"the rows of {name} have {column} of {told}".replace("torch.", ""))
    require(rows.classes == known.classes, "node", f"{rows.classes} classes, the plan says {known.classes}")
    for part in ("train", "validation", "test"):
        here, there_ = len(rows.part(part)[client]), int(known.part(part).sizes[client])
        require(here == there_, "node", f"{name} has {here} {part} rows, the plan says {there_}")
