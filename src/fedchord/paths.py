"""Where files are looked for. It imports nothing heavy, so that they can be listed at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def expanded(path: str | Path) -> Path:
    """A path with the home folder in the place of `~`; a `~name` of nobody stays as it is, and is then not there."""
    return Path(os.path.expanduser(path))


def data_root() -> Path:
    """The folder of the data sets: FEDCHORD_DATA, or else fedchord/ in the user's cache folder."""
    chosen = os.environ.get("FEDCHORD_DATA")
    if chosen:
        return expanded(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fedchord"


def first(root: Path, name: str) -> Path | None:
    """A file by its name under a folder, or one that matches it where it holds a `*`."""
    if "*" in name:
        return next((path for path in root.glob(name) if path.is_file()), None)
    return root / name if (root / name).is_file() else None


def missing(root: Path, files: Iterable[Sequence[str]]) -> list[str]:
    """The files that are not there, by their usual names; of each the accepted names are given, the usual one first."""
    return [names[0] for names in files if not any(first(root, name) for name in names)]
