"""The json files of LEAF (Caldas et al., 2018): who has which rows, in a training and a test part.

A file holds `users` (names), `num_samples` and `user_data`, which maps a name to its `x` and `y`. A part is a folder
with any number of such files: NAME/train/*.json and NAME/test/*.json, or the same under NAME/data/ as LEAF's scripts
leave it. Clients are the users, in sorted order. The parts are LEAF's own split of each user's rows and are kept
(`DataSet.parts`). A user without training rows cannot take part: it is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedchord.check import fail, require
from fedchord.data.federation import DataSet
from fedchord.data.formats.cache import Writer, cached, progress
from fedchord.data.source import Source
from fedchord.safe import json_of

HOME = "https://github.com/TalwalkarLab/leaf"
CODES = {"train": 0, "val": 1, "test": 2}
WORDS = {"train": "training", "val": "validation", "test": "test"}

Encode = Callable[[str, list[Any], list[Any]], dict[str, NDArray[Any]]]
"""From a place (file and user, for errors), x and y to columns of equal length."""


def places(folder: str, part: str) -> tuple[str, ...]:
    """Where the files of a part may lie."""
    return (f"{folder}/{part}/*.json", f"{folder}/data/{part}/*.json")


def part_files(source: Source, root: Path, part: str) -> list[Path]:
    """The files of a part, sorted; an optional part may have none."""
    wanted = next((files for files in source.files if files[0] == f"{source.folder}/{part}/*.json"), None)
    for place in wanted or places(source.folder, part):
        found = sorted(path for path in root.glob(place) if path.is_file())
        if found:
            return found
    if wanted:
        raise source.absent(root, [wanted[0]])
    return []


def read_users(owner: str, path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """The users of one file with their x and y, as they stand there."""
    try:
        held = json_of(path.read_bytes())
    except (ValueError, RecursionError) as error:  # not json, or not text
        raise fail(owner, f"{path} is damaged: expected a LEAF json file, got {error}") from None
    require(isinstance(held, dict), owner, f"{path} holds a {type(held).__name__}, expected a dict")
    for key in ("users", "user_data"):
        require(key in held, owner, f"{path} has no entry {key!r} (entries: {', '.join(sorted(held)[:8])})")
    users, data = held["users"], held["user_data"]
    fits = isinstance(users, list) and isinstance(data, dict)
    require(fits, owner, f"{path}: users must be a list and user_data a dict")
    odd = [type(user).__name__ for user in users if not isinstance(user, str | int)]
    require(not odd, owner, f"{path}: users must be names, got a {odd[0] if odd else ''}")
    stray = sorted(set(data) ^ {str(user) for user in users})
    require(not stray, owner, f"{path}: user {stray[0] if stray else ''} is not in both users and user_data")
    require(len(data) == len(users), owner, f"{path}: a user is listed twice")
    for user in users:
        rows = data[str(user)]
        whole = isinstance(rows, dict) and all(isinstance(rows.get(key), list) for key in "xy")
        require(whole, owner, f"{path}: user {user} must have a list x and a list y")
        sizes = (len(rows["x"]), len(rows["y"]))
        require(sizes[0] == sizes[1], owner, f"{path}: user {user} has {sizes[0]} rows of x and {sizes[1]} of y")
        yield str(user), rows["x"], rows["y"]


def read_leaf(
    source: Source,
    root: Path,
    encode: Encode,
    thesis: str,
    parts: tuple[str, ...] = ("train", "test"),
    also: tuple[Path, ...] = (),
    before: Callable[[], None] | None = None,
) -> DataSet:
    """The rows of all parts; `thesis` goes into `origin`, and `also` are further files that `encode` reads.

    `before` is called before the rows are read, if they must be: at no time more than one file is in memory.
    """
    files = [(part, path) for part in parts for path in part_files(source, root, part)]

    def build(writer: Writer) -> dict[str, Any]:
        if before is not None:
            before()
        return fill(source.name, writer, files, encode)

    columns, facts = cached(source.name, root, [*also, *(path for _, path in files)], source.name, build)
    names = facts["users"]
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = torch.empty(len(names), dtype=torch.int64)
    rank[order] = torch.arange(len(names))
    groups, own = rank[columns.pop("client")], columns.pop("part")
    return DataSet(
        source.name,
        columns,
        source.classes,
        groups=groups,
        group_names=tuple(names[i] for i in order),
        origin=origin(source, facts, thesis),
        parts=own,
    )


def fill(owner: str, writer: Writer, files: list[tuple[str, Path]], encode: Encode) -> dict[str, Any]:
    """Write all rows, the training part first; returns users, rows per part and how many users were left out."""
    number: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    rows = dict.fromkeys(CODES, 0)
    untrained: set[str] = set()
    for part, path in progress(owner, files, len(files)):
        for user, x, y in read_users(owner, path):
            require((part, user) not in seen, owner, f"{path}: user {user} is in two {part} files")
            seen.add((part, user))
            columns = encode(f"{path}: user {user}", x, y) if x else {}
            count = len(columns["y"]) if columns else 0
            if not count or (part != "train" and user not in number):
                untrained |= {user} if user not in number else set()
                continue
            client = number.setdefault(user, len(number))
            columns["part"] = np.full(count, CODES[part], np.int8)
            columns["client"] = np.full(count, client, np.int64)
            writer.add(**columns)
            rows[part] += count
    require(bool(number), owner, "no user has training rows")
    return {"users": list(number), "rows": rows, "untrained": len(untrained - set(number))}


def origin(source: Source, facts: dict[str, Any], thesis: str) -> str:
    """What the files hold, beside the full set and the thesis."""
    rows = facts["rows"]
    counts = ", ".join(f"{count} {WORDS[part]} rows" for part, count in rows.items() if count)
    whole = rows["train"] + rows["test"] == source.rows  # the full set is counted without a validation part
    kind = "the full set" if whole else f"a subset or another preparation than the full set of {source.rows} rows"
    kind = f"{kind}; {thesis}" if source.rows else thesis
    left = f" Users left out for want of training rows: {facts['untrained']}." if facts["untrained"] else ""
    return f"{source.title}: {len(facts['users'])} clients, {counts}; {kind}.{left}"
