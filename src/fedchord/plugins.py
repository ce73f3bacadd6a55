"""Code that is not ours: a file of the user's (`my_net.py:Net`), and what installed packages offer by entry points.

A file is imported by its path under a name of its own, so it hides no module and two files of the same name do not
meet. What was used has a mark, the file's SHA-256 or the package and its version, which enters a run's fingerprint.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import sys
import traceback
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from fedchord.check import FedchordError, fail, require, unknown
from fedchord.paths import expanded

GROUPS = {kind: f"fedchord.{kind}s" for kind in ("method", "mixing", "server", "model", "source")}
GROUPS["log"] = "fedchord.loggers"
"""The entry-point groups by what they offer."""

_OWN = re.compile(r"(?P<path>.+\.py)(:(?P<name>.*))?")


def is_own(name: str) -> bool:
    """Whether a name means a file of the user's: my_net.py:Net."""
    return _OWN.fullmatch(name) is not None


def is_foreign(kind: str, name: str) -> bool:
    """Whether a name means a file of the user's or something an installed package offers."""
    return is_own(name) or name in installed(kind)


def find(kind: str, name: str) -> Any:
    """The object behind a foreign name; a file or a name that is not there, or does not import, is told."""
    if not is_own(name):
        return _offered(installed(kind)[name])
    path, inside = _parts(name)
    require(bool(inside), f"{kind}={name}", f"name what is in the file, such as {kind}={path}:{_example(kind)}")
    module = _imported(path, str(_file(path)), _read(kind, path))
    if not hasattr(module, inside):
        raise unknown(f"name in {path}", inside, _names(module))
    return getattr(module, inside)


def mark(kind: str, name: str) -> str:
    """What tells two versions of foreign code apart: the SHA-256 of a file, or a package and its version."""
    if is_own(name):
        return hashlib.sha256(_read(kind, _parts(name)[0])).hexdigest()
    return package(installed(kind)[name])


def package(entry: EntryPoint) -> str:
    """The package an entry point is from, and its version."""
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


@cache
def installed(kind: str) -> dict[str, EntryPoint]:
    """What installed packages offer, by name; nothing of them is imported."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUPS[kind]), key=lambda entry: entry.name)}


def failed(owner: str, path: str, error: Exception) -> FedchordError:
    """The one line about an error that foreign code raised: the last line of its own file, the kind and the words."""
    if isinstance(error, FedchordError):
        return error
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if path and Path(frame.filename) == _file(path) else line
    where = "" if line is None else f"line {line}: "
    words = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return fail(owner, f"{where}{type(error).__name__}: {words}".rstrip(": "))


def path_of(name: str) -> str:
    """The file of a foreign name, as it was given; empty for a package's."""
    return _parts(name)[0] if is_own(name) else ""


def _parts(name: str) -> tuple[str, str]:
    found = _OWN.fullmatch(name)
    assert found is not None
    return found["path"], found["name"] or ""


def _example(kind: str) -> str:
    return {"model": "Net", "method": "Rule", "mixing": "Mix", "log": "Log"}.get(kind, "Server")


def _file(path: str) -> Path:
    return expanded(path).resolve()


def _read(kind: str, path: str) -> bytes:
    file = expanded(path)
    try:
        return file.read_bytes()
    except FileNotFoundError:
        others = [other.name for other in file.parent.glob("*.py")] if file.parent.is_dir() else []
        near = difflib.get_close_matches(file.name, others, n=1, cutoff=0.5)
        hint = f"; did you mean {file.with_name(near[0])}?" if near else ""
        raise fail(kind, f"{path}: no such file{hint}") from None
    except OSError as error:
        raise fail(kind, f"{path}: cannot be read ({error.strerror})") from None


@cache
def _imported(path: str, file: str, source: bytes) -> ModuleType:
    """The module of a file; one whose content has changed is another module. No bytecode is read or written."""
    told = hashlib.sha256(f"{file}\n".encode() + source).hexdigest()
    name = f"fedchord_own_{re.sub(r'[^0-9A-Za-z]', '_', Path(file).stem)}_{told[:12]}"
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # dataclasses look their module up while they are made
    try:
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise failed(path, file, error) from None
    return module


def _names(module: ModuleType) -> list[str]:
    """What a file itself defines."""
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return [name for name in own if not name.startswith("_")]


def _offered(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise fail(
            f"{entry.name} of {package(entry)}", f"cannot be imported: {type(error).__name__}: {error}"
        ) from None
