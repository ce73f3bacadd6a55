"""What study files share: `include`, rows with a name, and sets of them (study_file.py has the form)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedchord.check import FedchordError, require, unknown
from fedchord.experiments.settings import flatten, read_toml

SET = "set:"
"""How `methods` names a set."""

Table = dict[str, Any]


def read(path: Path, library: Path | None = None, above: Sequence[Path] = ()) -> Table:
    """The content of a study file on top of what it includes, from its own folder or else the library's."""
    content = read_toml(path)
    asked, owner = content.pop("include", []), f"study {path.stem}"
    names = asked if isinstance(asked, list) else [asked]
    require(all(isinstance(name, str) for name in names), owner, f"include must name study files, got {asked!r}")
    found: Table = {}
    for name in names:
        other = _find(owner, name, path.parent, library)
        ring = [*above, path.resolve()]
        require(other.resolve() not in ring, owner, f"include = {name!r} leads back to itself")
        found = join(found, read(other, library, ring))
    return join(found, content)


def files(path: Path, library: Path | None = None, above: Sequence[Path] = ()) -> list[Path]:
    """A study file and those it includes, itself first; what cannot be read is told by `read`."""
    try:
        asked = read_toml(path).get("include", [])
        names = [name for name in (asked if isinstance(asked, list) else [asked]) if isinstance(name, str)]
        others = [_find("", name, path.parent, library) for name in names]
    except FedchordError:
        others = []
    fresh = [other for other in others if other not in above]
    return [path, *(file for other in fresh for file in files(other, library, [*above, path]))]


def located(error: FedchordError, places: Sequence[Path]) -> FedchordError:
    """An error about a name that nobody knows, with the file and the line that have it, keys before other words."""
    named = re.search(r"unknown [^']*'([^']+)'", str(error))
    texts = [(place, place.read_text(encoding="utf-8").splitlines()) for place in places if named and place.is_file()]
    for key in dict.fromkeys((named[1], named[1].rpartition(".")[2])) if named else ():
        for before, after in ((r"(?:^|[^\w-])", r"[\"']?\s*[=\].]"), ("[\"']", "[\"']")):
            word = re.compile(before + re.escape(key) + after)
            for place, lines in texts:
                for number, line in enumerate(lines, 1):
                    if word.search(line):
                        return FedchordError(f"{place.name}, line {number}: {error}")
    return error


def _find(owner: str, name: str, folder: Path, library: Path | None) -> Path:
    places = [place for place in (folder, library) if place is not None]
    for place in places:
        if (place / f"{name}.toml").is_file():
            return place / f"{name}.toml"
    known = [str(file.relative_to(place).with_suffix("")) for place in places for file in place.glob("**/*.toml")]
    raise unknown(f"study that {owner} includes", name, sorted(set(known)))


def join(base: Table, own: Table) -> Table:
    """One file on top of another: run keys are joined, all else is taken whole; rows of its own replace all."""
    if "methods" in own or "method" in own:
        base = {key: value for key, value in base.items() if key not in ("methods", "method")}
    found = base | own
    for key in ("settings", "scale", "row", "set"):
        if key in base and key in own:
            found[key] = _over(base[key], own[key]) if key == "settings" else _each(base[key], own[key])
    return found


def _each(base: Any, own: Any) -> Any:
    """Tables by name, those of the same name joined."""
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    return base | own | {name: _over(base[name], own[name]) for name in base if name in own}


def _over(base: Any, own: Any) -> Any:
    """Run keys on top of others, dotted or as tables; `in` is joined by pattern."""
    if not (isinstance(base, dict) and isinstance(own, dict)):
        return own
    plain = [flatten({key: value for key, value in table.items() if key != "in"}) for table in (base, own)]
    inside = _each(base.get("in", {}), own.get("in", {}))
    return plain[0] | plain[1] | ({"in": inside} if inside else {})


def rows(owner: str, content: Mapping[str, Any]) -> list[Any]:
    """The rows of a study: those that `methods` names, then those written out as [[method]]."""
    named, sets = (_tables(owner, content, key) for key in ("row", "set"))
    picked, written = content.get("methods", []), content.get("method", [])
    for key, value in (("methods", picked), ("method", written)):
        require(isinstance(value, list), owner, f"{key} must be a list, got {value!r}")
    found: list[Any] = []
    for label in _labels(owner, picked, sets):
        found.append({"label": label} | _row(owner, label, named))
    for row in written:
        found.append(_row(owner, row, named) if isinstance(row, dict) and "like" in row else row)
    return found


def _labels(owner: str, picked: Sequence[Any], sets: Mapping[str, Any]) -> list[str]:
    labels: list[str] = []
    for name in picked:
        require(isinstance(name, str), owner, f"methods must name rows, got {name!r}")
        if not name.startswith(SET):
            labels.append(name)
            continue
        if name.removeprefix(SET) not in sets:
            raise unknown(f"set of {owner}", name, [f"{SET}{known}" for known in sets])
        held = sets[name.removeprefix(SET)]
        require(isinstance(held, list), owner, f"the set {name.removeprefix(SET)} must be a list of rows, got {held!r}")
        labels += [str(label) for label in held]
    return labels


def _row(owner: str, row: str | Table, named: Mapping[str, Any], above: Sequence[str] = ()) -> Table:
    """A row, by its label or as it is written, on top of the one it is `like`."""
    if isinstance(row, str):
        if row not in named:
            raise unknown(f"row of {owner}", row, named)
        require(row not in above, owner, f"row {row!r} is like itself")
        above = [*above, row]
        require(isinstance(named[row], dict), owner, f"row {row!r} must be a table, got {named[row]!r}")
        row = dict(named[row])
    other = row.get("like")
    own = {key: value for key, value in row.items() if key != "like"}
    return own if other is None else _over(_row(owner, str(other), named, above), own)


def _tables(owner: str, content: Mapping[str, Any], key: str) -> Table:
    value = content.get(key, {})
    require(isinstance(value, dict), owner, f"{key} must be a table, got {value!r}")
    return dict(value)
