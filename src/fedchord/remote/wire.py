"""A parcel as bytes: safetensors for its tensors, JSON for its facts. Nothing in either can be run."""

from __future__ import annotations

import json

from safetensors import SafetensorError
from safetensors.torch import load, save

from fedchord.check import FedchordError
from fedchord.remote.parcel import Parcel
from fedchord.safe import json_of


def encode(parcel: Parcel) -> tuple[bytes, str]:
    """The tensors as safetensors and the facts as JSON."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in parcel.tensors.items()}
    return save(tensors), json.dumps(parcel.facts, sort_keys=True)


def decode(tensors: bytes, facts: str) -> Parcel:
    """What `encode` made; damage is one line."""
    try:
        told = json_of(facts)
        if not isinstance(told, dict):
            raise ValueError("facts are not a table")
        return Parcel(load(tensors), told)
    except (SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise FedchordError(f"a message is damaged ({' '.join(str(error).split())[:200]})") from error


def size(parcel: Parcel) -> int:
    """The bytes of its tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in parcel.tensors.values())
