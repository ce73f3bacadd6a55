"""What can be named on the command line: methods, data, models, splits, rules, keys and studies, with a line on each.

It is read from index.json, which `fedchord.cli.index` writes (make index): the catalogue itself needs torch, and a list
should not have to wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedchord.check import unknown
from fedchord.paths import data_root, missing
from fedchord.plugins import GROUPS, installed, package

INDEX = Path(__file__).with_name("index.json")
SECTIONS = ("methods", "mixings", "servers", "data", "splits", "models", "loggers", "keys")
KINDS = {"data": "source", "loggers": "log"}
"""The kinds of code that are not called as their section is."""


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


def index() -> dict[str, Any]:
    """The index as it was written."""
    found: dict[str, Any] = json.loads(INDEX.read_text(encoding="utf-8"))
    return found


def sections(what: str = "all") -> Iterator[Section]:
    """The sections asked for."""
    if what != "all" and what not in SECTIONS:
        raise unknown("list", what, SECTIONS)
    known = index()
    for name in SECTIONS:
        if what in ("all", name):
            found = _data(known["data"]) if name == "data" else _section(known["sections"][name])
            yield replace(found, entries=(*found.entries, *_packages(name, found)))


def lines(section: Section) -> Iterator[str]:
    """A section as plain lines."""
    yield f"{section.title} ({section.use})"
    width = max(len(entry.name) for entry in section.entries)
    for entry in section.entries:
        yield f"  {entry.name:<{width}}  {entry.about}".rstrip()
        if entry.more:
            yield f"  {'':<{width}}  {entry.more}"


def studies() -> Iterator[str]:
    """The built-in studies as plain lines: name, title and size."""
    for name, study in index()["studies"].items():
        later = f" ({study['absent']} methods are not in this version)" if study["absent"] else ""
        parts = [(study[f"{what}s"], what) for what in ("method", "setting", "seed")]
        size = " x ".join(f"{n} {what}{'' if n == 1 else 's'}" for n, what in parts)
        yield from (name, f"  {study['title']}", f"  {study['runs']} runs: {size}{later}")


def _packages(section: str, found: Section) -> Iterator[Entry]:
    """What installed packages add to a section, by their metadata alone; names of ours are ours."""
    kind = KINDS.get(section) or section.removesuffix("s")
    ours = {entry.name for entry in found.entries}
    for name, entry in installed(kind).items() if kind in GROUPS else ():
        if name not in ours:
            yield Entry(name, f"from the package {package(entry)}")


def _section(record: dict[str, Any]) -> Section:
    return Section(record["title"], record["use"], tuple(Entry(**entry) for entry in record["entries"]))


def _data(sources: dict[str, Any]) -> Section:
    """The data sets; whether their files are there is looked up now."""
    root, entries = data_root(), []
    for name, source in sources.items():
        there = "missing" if missing(root, source["files"]) else "present"
        there = "comes with fedchord" if source["embedded"] else there
        entries.append(Entry(name, f"{source['title']} ({there})"))
    own = Entry("FILE.npz, FILE.csv", "your own: arrays x, y, client; or columns label, client and features")
    return Section("data", f"data=NAME; data root {root}", (*entries, own))
