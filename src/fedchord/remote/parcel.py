"""All that ever travels between a server and its nodes: tensors by name, and plain facts by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedchord.tensors import Tensors


@dataclass(frozen=True)
class Parcel:
    """Tensors by name and facts by name; facts are what JSON can hold."""

    tensors: Tensors = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
