"""A TOML file read key by key: what is wrong is told in one line that names the file, the table and the key."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedchord.check import FedchordError, fail, require, unknown
from fedchord.experiments.settings import read_toml
from fedchord.paths import expanded


@final
@dataclass(frozen=True)
class TomlTable:
    """A table of a TOML file: its values, and who is told of a mistake in it."""

    path: Path
    owner: str
    values: dict[str, Any]

    @staticmethod
    def read(path: str | Path, known: Collection[str] | None) -> TomlTable:
        """A whole file; None takes any key."""
        return TomlTable(expanded(path).absolute(), str(path), read_toml(path))._checked(known)

    def _checked(self, known: Collection[str] | None) -> TomlTable:
        for key in self.values:
            if known is not None and key not in known:
                raise unknown(f"key of {self.owner}", key, known)
        return self

    def has(self, key: str) -> bool:
        return key in self.values

    def need(self, key: str) -> Any:
        """A value that must be there."""
        require(key in self.values, self.owner, f"{key} is missing")
        return self.values[key]

    def table(self, key: str, known: Collection[str] | None = None) -> TomlTable:
        """A table within; one that is not there is empty."""
        found = self.values.get(key, {})
        require(isinstance(found, dict), self.owner, f"{key} must be a table, [{key}], got {found!r}")
        return TomlTable(self.path, f"{self.owner}, [{key}]", found)._checked(known)

    def word(self, key: str, default: str | None = None) -> str:
        """A text; it must be there unless it has a default."""
        found = self.need(key) if default is None else self.values.get(key, default)
        good = isinstance(found, str) and (bool(found.strip()) or found == default)
        require(good, self.owner, f"{key} must be a word, got {found!r}")
        return str(found)

    def place(self, key: str, default: str | None = None) -> Path:
        """A path, from the folder of the file on."""
        return self.path.parent / expanded(self.word(key, default))

    def names(self, key: str, check_one: Callable[[str], Any] | None = None) -> tuple[str, ...]:
        """Different words; none where the key is not there."""
        found = self.values.get(key, [])
        good = isinstance(found, list) and all(isinstance(name, str) for name in found)
        require(good, self.owner, f"{key} must be a list of words, got {found!r}")
        for name in found:
            require(found.count(name) == 1, self.owner, f"{key} names {name!r} twice")
            if check_one is not None:
                try:
                    check_one(name)
                except FedchordError as error:
                    raise fail(f"{self.owner}, {key}", str(error)) from None
        return tuple(found)


def is_fed(path: str | Path) -> bool:
    """Whether a file is a server's, by its clients or its plan, and not a party's."""
    found = read_toml(path)
    return "clients" in found or isinstance(found.get("plan"), dict)
