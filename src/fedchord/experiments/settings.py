"""Settings as a user writes them: key=value texts and TOML files, read into one flat mapping of dotted keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedchord.check import FedchordError, require
from fedchord.safe import TEXT, toml_of

Scalar = str | int | float | bool

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def parse_pairs(pairs: Iterable[str], words: Iterable[str] = ()) -> dict[str, Scalar]:
    """Settings from key=value texts; the values of the keys in `words` stay text even if they look like numbers."""
    return {key: parse_value(text, key in words) for key, text in texts_of(pairs).items()}


def texts_of(pairs: Iterable[str], owner: str = "run", example: str = "rounds=50") -> dict[str, str]:
    """The values of key=value texts as they are written, by key."""
    texts: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise FedchordError(f"{owner}: {pair!r} is not a setting; settings are key=value, for example {example}")
        require(key not in texts, owner, f"{key} is given twice")
        require(bool(text), owner, f"{key} has no value; write {key}=VALUE")
        texts[key] = text
    return texts


def split_values(text: str) -> list[str]:
    """The values of a text with commas; what stands in quotes is one value."""
    parts, quote = [""], ""
    for letter in text:
        if letter == "," and not quote:
            parts.append("")
            continue
        if letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
        parts[-1] += letter
    return [part.strip() for part in parts]


def parse_value(text: str, word: bool = False) -> Scalar:
    """A TOML scalar, a number written like .5, or the text itself; a `word` stays text unless it is a TOML string."""
    try:
        found = toml_of(f"value = {text}")
    except ValueError:
        found = {}
    value = found.get("value") if len(found) == 1 else None
    if isinstance(value, str) or (isinstance(value, Scalar) and not word):
        return value
    return float(text) if _NUMBER.fullmatch(text) and not word else text


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        with open(path, "rb") as handle:
            return toml_of(handle.read(TEXT + 1))
    except FileNotFoundError:
        raise FedchordError(f"{path}: no such file") from None
    except OSError as error:
        raise FedchordError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise FedchordError(f"{path}: is not a text file in UTF-8") from None
    except ValueError as error:
        hint = '; dotted names go in quotes: "method.mu" = 0.1' if "overwrite" in str(error) else ""
        raise FedchordError(f"{path}: is not valid TOML: {error}{hint}") from None


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables as dotted keys; `name` in a table is the value of the key itself."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        table = value.items() if isinstance(value, Mapping) else [("name", value)]
        for inner, one in table:
            full = key if inner == "name" else f"{key}.{inner}"
            require(full not in flat, "run", f"{full} is given twice")
            flat[full] = one
    return flat
