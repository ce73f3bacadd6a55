"""Are these the official files? Checksums and counts tell originals from subsets and from re-encoded copies."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from fedchord.data.federation import DataSet, Federation
from fedchord.data.official.facts import FACTS, Facts
from fedchord.data.source import Source

OFFICIAL, REPACKED, RENAMED, ALTERED = "official", "repacked", "renamed", "altered"
STAND_IN, UNKNOWN, MISSING = "stand-in", "unknown", "missing"
"""What a file can be."""
_BLOCK = 1 << 20


@final
@dataclass(frozen=True)
class File:
    """An expected file, or all that match a pattern: where, how many, how large, what it is and why we think so."""

    place: str
    count: int
    size: int
    state: str
    told: str


def look(source: Source, root: Path) -> list[File]:
    """Every expected file of a data set with what its checksum says."""
    facts = FACTS.get(source.name, Facts())
    return [_look(source, root, places, facts) for places in source.files]


def _look(source: Source, root: Path, places: Sequence[str], facts: Facts) -> File:
    for place in places:
        found = sorted(path for path in root.glob(place) if path.is_file())
        if found:
            size = sum(path.stat().st_size for path in found)
            if "*" in place:
                return File(place, len(found), size, UNKNOWN, "no checksum is published for the unpacked files")
            if _name(place) != _name(places[0]):
                return File(place, 1, size, STAND_IN, f"stands in for {places[0]}")
            state, told = state_of(found[0], places[0], facts)
            return File(place, 1, size, state, told)
    return File(places[0], 0, 0, MISSING, "missing")


def state_of(path: Path, usual: str, facts: Facts) -> tuple[str, str]:
    """What one file is, by its checksum and by that of its content."""
    published, inner = facts.checksums.get(usual, ""), facts.unpacked.get(usual, "")
    if not published:
        return UNKNOWN, "no checksum is published"
    kind = published.partition(":")[0].upper()
    packed = path.suffix == ".gz" or not usual.endswith(".gz")
    if packed:
        got = checksum(path, published)
        if got == published:
            return OFFICIAL, f"the official file by its {kind} sum"
        other = _named(got, facts.checksums)
        if other:
            return RENAMED, f"is {other} by its {kind} sum"
    if usual.endswith(".gz") and facts.unpacked:
        got = content_checksum(path, published)
        if got == inner:
            return REPACKED, "the official content, packed anew" if packed else "the official content, unpacked"
        other = _named(got, facts.unpacked)
        if other:
            return RENAMED, f"is the content of {other} by its {kind} sum"
    if not packed and not inner:
        return UNKNOWN, "no checksum of the unpacked file is known"
    return ALTERED, f"not the official file by its {kind} sum"


def _name(place: str) -> str:
    return place.rpartition("/")[2].removesuffix(".gz")


def _named(got: str, known: Mapping[str, str]) -> str:
    return next((place for place, sum_ in known.items() if sum_ == got), "")


def checksum(path: Path, like: str) -> str:
    """The checksum of a file, of the kind of another one ("md5:..." or "sha256:...")."""
    kind = like.partition(":")[0]
    with path.open("rb") as stream:
        return f"{kind}:{hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()}"


def content_checksum(path: Path, like: str) -> str:
    """The checksum of what is in a file packed with gzip; "damaged" if it cannot be unpacked."""
    if path.suffix != ".gz":
        return checksum(path, like)
    kind = like.partition(":")[0]
    digest = hashlib.new(kind, usedforsecurity=False)
    try:
        with gzip.open(path, "rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return "damaged"
    return f"{kind}:{digest.hexdigest()}"


# -- the whole ------------------------------------------------------------------------------------------------------


def official_rows(source: Source) -> tuple[int, int]:
    """The rows, and the rows of the holdout, that the official files give."""
    rows = FACTS.get(source.name, Facts()).rows
    return (source.rows if rows is None else rows), source.holdout


def loaded_rows(dataset: DataSet | Federation) -> tuple[int, int]:
    """The rows, and the rows of the holdout, of a data set, given to clients or not.

    Rows of a validation part that the data come with do not count: the official numbers are of training and test rows.
    """
    parts = dataset.parts if isinstance(dataset, DataSet) else None
    rows = len(dataset.columns["y"]) - (0 if parts is None else int((parts == 1).sum()))
    return rows, 0 if dataset.holdout is None else len(dataset.holdout["y"])


def verdict(source: Source, files: Sequence[File], rows: tuple[int, int] | None, altered: str = "") -> tuple[str, str]:
    """One word for a copy of a data set, and a sentence: checksums first, then counts.

    `altered` is what the rows themselves say against an original (`DataSet.altered`).

    original, content (packed anew), counts (the official number of rows, but nothing to check their content by),
    altered (the official number of rows, but another content), derived (a derived file stands in for an official one),
    subset, other (no subset, no official counts), own (a set without an official copy), missing, or unread (the rows
    were not counted).
    """
    states = {file.state for file in files}
    if source.embedded:
        return "original", "it comes with fedchord"
    if MISSING in states:
        return "missing", f"missing {', '.join(file.place for file in files if file.state == MISSING)}"
    differing, official = [*_differing(files), *([altered] if altered else [])], official_rows(source)
    if rows is not None and official[0] and rows != official:
        fewer = all(mine <= theirs for mine, theirs in zip(rows, official, strict=True))
        unproven = states <= {UNKNOWN}  # without any checksum a smaller set may as well be another one
        kind = (
            "a subset or another preparation" if fewer and unproven else "a subset" if fewer else "another preparation"
        )
        told = f"{kind}: {_rows(rows)}, where the official files give {_rows(official)}"
        return "subset" if fewer else "other", "; ".join([told, *differing])
    if altered or states & {ALTERED, RENAMED}:
        kind = "a subset, or a re-encoded or altered copy" if rows is None else "a re-encoded or altered copy"
        return "altered", "; ".join([kind, *differing])
    if differing:
        return "derived", "; ".join(["derived in part", *differing])
    if states <= {OFFICIAL}:
        return "original", "the official files by their checksums"
    if states <= {OFFICIAL, REPACKED}:
        return "content", "the official content by its checksums; the files were packed anew"
    if not official[0]:
        return "own", "there is no official copy to compare with"
    if rows is None:
        return "unread", "no file differs from a published checksum, but some have none, and the rows were not counted"
    return "counts", f"the official number of rows ({_rows(rows)}); some files have no published checksum to check"


def _differing(files: Sequence[File]) -> list[str]:
    """What is not as published, in words."""
    altered = sum(file.state == ALTERED for file in files)
    counted = [f"{altered} of {len(files)} files are not the official ones by their checksums"] if altered else []
    named = [f"{file.place} {file.told}" for file in files if file.state in (RENAMED, STAND_IN)]
    return [*counted, *named]


def _rows(rows: tuple[int, int]) -> str:
    return f"{rows[0]} + {rows[1]} rows" if rows[1] else f"{rows[0]} rows"


def judged(source: Source, root: Path, dataset: DataSet) -> DataSet:
    """A data set with the word of `verdict` on its files, and where rows are as many as the official ones, but their
    content is not, a sentence in `origin`."""
    files = look(source, root)
    word, _ = verdict(source, files, loaded_rows(dataset), dataset.altered)
    return replace(dataset, verdict=word, origin=dataset.origin + _told(source, files, dataset))


def _told(source: Source, files: Sequence[File], dataset: DataSet) -> str:
    facts = FACTS.get(source.name, Facts())
    wrong = [file.place for file in files if file.state in (ALTERED, RENAMED)]
    if not facts.checksums or facts.tells or not wrong or loaded_rows(dataset) != official_rows(source):
        return ""
    return (
        f" By their checksums {len(wrong)} of the {len(source.files)} files are not the official ones (a re-encoded or "
        "altered copy); results are not comparable with published ones."
    )
