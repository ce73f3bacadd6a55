"""What can be named on the command line: methods, data, models, splits, rules and keys, with a line on each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from functools import partial
from typing import Any

from fedchord import models
from fedchord.catalog import METHODS, MIXINGS, SERVERS, Method, fields
from fedchord.check import unknown
from fedchord.data import PARTITIONS, SOURCES, data_root, status
from fedchord.experiments.config import about


@dataclass(frozen=True)
class Entry:
    """A name, what it is, and a second line (parameters and their defaults)."""

    name: str
    about: str
    more: str = ""


@dataclass(frozen=True)
class Section:
    """A kind of names."""

    title: str
    use: str
    entries: tuple[Entry, ...]


def sections(what: str = "all") -> Iterator[Section]:
    """The sections asked for."""
    if what != "all" and what not in SECTIONS:
        raise unknown("list", what, SECTIONS)
    for name, make in SECTIONS.items():
        if what in ("all", name):
            yield make()


def lines(section: Section) -> Iterator[str]:
    """A section as plain lines."""
    yield f"{section.title} ({section.use})"
    width = max(len(entry.name) for entry in section.entries)
    for entry in section.entries:
        yield f"  {entry.name:<{width}}  {entry.about}".rstrip()
        if entry.more:
            yield f"  {'':<{width}}  {entry.more}"


def _methods() -> Section:
    entries = [Entry(name, method.about, _method_parameters(method)) for name, method in METHODS.items()]
    return Section("methods", "method=NAME, parameters method.x=VALUE", tuple(entries))


def _method_parameters(method: Method) -> str:
    parts = {"client": method.client, "mixing": method.mixing, "server": method.server}
    owners = [(part, name, default) for part, rule in parts.items() for name, default in _defaults(rule)]
    names = [name for _, name, _ in owners]
    return "  ".join(
        f"{'method' if names.count(name) == 1 else part}.{name}={_shown(default)}" for part, name, default in owners
    )


def _data() -> Section:
    entries = []
    for name, source in SOURCES.items():
        there = "comes with fedchord" if source.embedded else status(source).partition(":")[0]
        entries.append(Entry(name, f"{source.title} ({there})"))
    own = Entry("FILE.npz, FILE.csv", "your own: arrays x, y, client; or columns label, client and features")
    return Section("data", f"data=NAME; data root {data_root()}", (*entries, own))


def _models() -> Section:
    entries = []
    for name, model in models.MODELS.items():
        module = models.build(name, model.shape, model.classes)
        size = sum(parameter.numel() for parameter in module.parameters())
        sides = "x".join(map(str, (*model.shape[1:], *model.shape[:1])))
        outputs = f"{model.classes:,} class{'es' if model.classes > 1 else ''}"
        entries.append(Entry(name, f"{_first_line(type(module))} {size:,} parameters at {sides}, {outputs}"))
    for name, kind in models.GENERATIVE.items():
        module = models.build(name, (1, 28, 28), 10)
        size = sum(parameter.numel() for parameter in module.parameters())
        entries.append(Entry(name, f"{_first_line(kind)} {size:,} parameters at 28x28x1, 10 classes; {name}:WIDTH"))
    encoder = Entry("encoder:FOLDER", f"{_first_line(models.TextEncoder)} Needs the extra text")
    return Section("models", "model=NAME; efficientnet-b0:FILE reads weights", (*entries, encoder))


def _splits() -> Section:
    entries = [Entry(name, _first_line(kind), _parameters("split", kind)) for name, kind in PARTITIONS.items()]
    return Section("splits", "split=NAME, parameters split.x=VALUE", tuple(entries))


def _mixings() -> Section:
    entries = [Entry(name, _first_line(rule), _parameters("mixing", rule)) for name, rule in MIXINGS.items()]
    return Section("mixings", "mixing=NAME with any method, parameters mixing.x=VALUE", tuple(entries))


def _servers() -> Section:
    entries = [Entry(name, _first_line(rule), _parameters("server", rule)) for name, rule in SERVERS.items()]
    return Section("servers", "server=NAME with any method, parameters server.x=VALUE", tuple(entries))


def _keys() -> Section:
    entries = [
        Entry(key, text if default is None else f"{text} (default: {_shown(default)})")
        for key, (default, text) in about().items()
    ]
    return Section("keys", "key=VALUE on the command line, the same names in a TOML file", tuple(entries))


SECTIONS: dict[str, Callable[[], Section]] = {
    "methods": _methods,
    "mixings": _mixings,
    "servers": _servers,
    "data": _data,
    "splits": _splits,
    "models": _models,
    "keys": _keys,
}


def _defaults(rule: Callable[..., object]) -> list[tuple[str, Any]]:
    return list(fields(rule).items())


def _parameters(owner: str, rule: Callable[..., object]) -> str:
    return "  ".join(f"{owner}.{name}={_shown(default)}" for name, default in _defaults(rule))


def _shown(default: object) -> str:
    if default is MISSING:
        return "(needed)"
    if default is None:
        return "(by the rule)"
    if default == "":
        return "(none)"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _first_line(kind: object) -> str:
    kind = kind.func if isinstance(kind, partial) else kind
    return (inspect.getdoc(kind) or "").partition("\n")[0]
