"""Text and archives of unknown origin, read within limits.

Whatever is wrong is a `ValueError` of one line, which a reader turns into its own error: text nested deeper than a
parser can follow, whole numbers that no tensor holds, an archive that unpacks to far more than its size.
"""

from __future__ import annotations

import json
import tomllib
from typing import Any

from fedchord.check import LARGEST

TEXT = 1 << 24
"""The most bytes of a file of settings."""
SMALL = 1 << 30
"""Up to here an archive may unpack to any multiple of its size."""
RATIO = 100
"""How many times its size an archive may unpack to beyond that."""


def json_of(text: str | bytes) -> Any:
    """What a JSON text holds."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def toml_of(text: str | bytes) -> dict[str, Any]:
    """What a TOML text holds; whole numbers have at most 64 bits, as TOML has it."""
    if len(text) > TEXT:
        raise ValueError(f"it is longer than {TEXT} bytes")
    try:
        found = tomllib.loads(text if isinstance(text, str) else text.decode())
        _check_numbers(found)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def _check_numbers(value: Any) -> None:
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise ValueError(f"it holds a whole number above {LARGEST}")
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_numbers(part)


def check_growth(packed: int, unpacked: int) -> None:
    """Refuse an archive that unpacks to far more than its size."""
    if unpacked > max(SMALL, RATIO * packed):
        raise ValueError(f"its {packed} bytes would unpack to {unpacked / 1e9:.1f} GB or more")
