"""The contract of a method that is named like in a run: by the catalogue, a file or a package, with parameters."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedchord import catalog, plugins
from fedchord.check import fail, unknown
from fedchord.core.rules import Algorithm
from fedchord.experiments.settings import parse_pairs
from fedchord.paths import expanded
from fedchord.testing.contract import Contract

RULES = ("method", "mixing", "server")
KEYS = (*RULES, "client")


class Named(Contract):
    """The contract of one method: `my_rule.py:Rule method.mu=0.5`, or `mixing=term mixing.alpha=2`.

    The first word may be the name of the method alone; all others are key=value as in a run. Files are looked for from
    `home` on.
    """

    def __init__(self, asked: str, home: str | Path = ".") -> None:
        self.label = " ".join(asked.split())
        self._values = _read(asked, Path(home))
        self.algorithm()

    def algorithm(self) -> Algorithm:
        """The method, made anew."""
        values = self._values
        mine, mixing, server, client = (
            {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{rule}.")}
            for rule in KEYS
        )
        name = values.get("method", "fedavg")
        return catalog.build(name, mine, values.get("mixing"), mixing, values.get("server"), server, client)


def checks(contract: Contract) -> Iterator[tuple[str, Callable[..., None]]]:
    """The tests of a contract by name, in the order in which they are written."""
    names = {name: None for kind in reversed(type(contract).__mro__) for name in vars(kind)}
    for name in names:
        if name.startswith("test_"):
            yield name, getattr(contract, name)


def wants_folder(check: Callable[..., None]) -> bool:
    """Whether a test needs a folder of its own."""
    return "tmp_path" in inspect.signature(check).parameters


def _read(asked: str, home: Path) -> dict[str, Any]:
    """The rules and their parameters by key."""
    try:
        first, *others = shlex.split(asked) or [""]
    except ValueError as error:
        raise fail("method", f"{asked!r} cannot be read ({error})") from None
    pairs = [first if "=" in first else f"method={first}", *others]
    values = parse_pairs(pairs, RULES)
    for key in values:
        if key.partition(".")[0] not in KEYS or key == "client":
            raise unknown("key of a method", key, (*RULES, *(f"{rule}.x" for rule in KEYS)))
    for rule in RULES:
        if rule in values:
            values[rule] = _found(str(values[rule]), home)
    return values


def _found(name: str, home: Path) -> str:
    """A name; of a file its place."""
    path = plugins.path_of(name)
    if not path or home == Path("."):
        return name
    return f"{home / expanded(path)}{name.removeprefix(path)}"
