"""Sets the formulas of docstrings in the API reference: an extension of griffe, which reads the code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from griffe import Extension, Object

sys.path.insert(0, str(Path(__file__).parent))

from formulas import set_blocks

ROOMS = ("clients", "mixing", "servers", "metrics", "tensors", "confusion", "regression")
"""Where indented blocks of docstrings are formulas."""


class SetFormulas(Extension):
    """Rewrites docstrings as they are read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        parts = obj.path.split(".")
        if obj.docstring and len(parts) > 1 and parts[1] in ROOMS:
            obj.docstring.value = set_blocks(obj.docstring.value)
