"""Reddit: the next word of a user's comments, in LEAF's layout (Caldas et al., 2018); and Shakespeare's words alike.

Licence: none stated (comments of December 2017 from pushshift.io), LEAF's scripts are BSD 2-Clause. Source: LEAF's
subsampled set (data/reddit), which has no published checksum and is recognised by its counts. Layout:
`reddit/train/*.json`, `reddit/test/*.json`, maybe `reddit/val/*.json`. A comment is cut into rows of 10 tokens: x holds
the rows of each comment, y for each comment `target_tokens` (the tokens that follow, same shape) and maybe
`count_tokens` (0 where a token is padding).

The vocabulary has 10,000 entries: PAD, UNK, BOS and EOS are 0 to 3, then come the most frequent words of the training
part (equally frequent ones by spelling), or what `reddit/vocab.json` says; LEAF's pickled vocabulary is not read. Rows
are batched as x and y, int64 of (n, 10), and `mask`, which is false where the target is padding or one of the four
special tokens: those count in no loss and no accuracy, so F_i is per word. Rows without any word to predict are left
out.

Clients are the users, with LEAF's own training and test rows; LEAF's validation rows are used if a validation part is
asked for. The thesis has 817 clients with 97,961 rows (119.90 on average, std 229.85).

`shakespeare_words` has lines of roles in place of comments of users. It is a substitute, and not in the thesis.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchord.check import fail, require
from fedchord.data.federation import DataSet
from fedchord.data.formats.leaf import HOME, Encode, part_files, places, read_leaf, read_users
from fedchord.data.source import Source
from fedchord.safe import json_of

SPECIAL = ("<PAD>", "<UNK>", "<BOS>", "<EOS>")
SIZE, LENGTH, UNKNOWN = 10000, 10, 1


def vocabulary(root: Path, name: str = "reddit") -> dict[str, int]:
    """The number of each word."""
    source = SOURCES[name]
    file = _file(source, root)
    return _count(source, root) if file is None else stored(name, file)


def _load(name: str, root: Path) -> DataSet:
    """Words as numbers, (n, 10), the words that follow, and which of them count; clients are the users."""
    source, file = SOURCES[name], _file(SOURCES[name], root)
    told = "the thesis has 817 clients and 97961 rows" if name == "reddit" else "a substitute that the thesis has not"
    also = () if file is None else (file,)
    known: dict[str, int] = {}

    def learn() -> None:
        known.update(vocabulary(root, name))

    return read_leaf(source, root, _encoder(name, known), told, ("train", "val", "test"), also, learn)


def _encoder(name: str, known: dict[str, int]) -> Encode:
    def encode(where: str, x: list[Any], y: list[Any]) -> dict[str, NDArray[Any]]:
        targets = [comment.get("target_tokens") if isinstance(comment, dict) else None for comment in y]
        require(None not in targets, name, f"{where}: y must hold target_tokens for every comment")
        words, following = _rows(name, f"{where}: x", x), _rows(name, f"{where}: target_tokens", targets)
        require(len(words) == len(following), name, f"{where}: x and target_tokens differ in length")
        numbers = np.array([[known.get(word, UNKNOWN) for word in row] for row in words], np.int32).reshape(-1, LENGTH)
        labels = np.array([[known.get(word, UNKNOWN) for word in row] for row in following], np.int64)
        labels = labels.reshape(-1, LENGTH)
        mask = (labels >= len(SPECIAL)) & _counted(name, where, y, labels)
        kept = mask.any(axis=1)
        return {"x": numbers[kept], "y": labels[kept], "mask": mask[kept]}

    return encode


def _rows(name: str, where: str, comments: list[Any]) -> list[list[str]]:
    """All rows of all comments."""
    for comment in comments:
        fits = isinstance(comment, list) and all(isinstance(row, list) and len(row) == LENGTH for row in comment)
        fits = fits and all(isinstance(word, str) for row in comment for word in row)
        require(fits, name, f"{where} must hold rows of {LENGTH} words for every comment")
    return list(chain.from_iterable(comments))


def _counted(name: str, where: str, y: list[Any], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where count_tokens is not 0; everywhere if the file has none."""
    if not all("count_tokens" in comment for comment in y):
        return np.ones(labels.shape, dtype=np.bool_)
    try:
        counts = np.array(list(chain.from_iterable(comment["count_tokens"] for comment in y)), dtype=np.float64)
        return counts.reshape(labels.shape) > 0
    except (ValueError, TypeError, OverflowError):
        raise fail(name, f"{where}: count_tokens must have the shape of target_tokens") from None


def _file(source: Source, root: Path) -> Path | None:
    found = (root / source.folder / place for place in ("vocab.json", "data/vocab.json"))
    return next((path for path in found if path.is_file()), None)


def stored(name: str, path: Path) -> dict[str, int]:
    try:
        held = json_of(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise fail(name, f"{path} is damaged: expected a json file, got {error}") from None
    words = held.get("vocab") if isinstance(held, dict) else None
    if not isinstance(words, dict):
        raise fail(name, f"{path} has no entry 'vocab'")
    known = [words.get(word) for word in SPECIAL] == list(range(len(SPECIAL)))
    require(known, name, f"{path}: {', '.join(SPECIAL)} must be 0 to {len(SPECIAL) - 1}")
    numbered = len(words) <= SIZE and all(type(number) is int for number in words.values())
    numbered = numbered and set(words.values()) == set(range(len(words)))
    require(numbered, name, f"{path} must number at most {SIZE} words from 0 on, got {len(words)}")
    return dict(words)


def _count(source: Source, root: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for path in part_files(source, root, "train"):
        for user, x, _ in read_users(source.name, path):
            counts.update(chain.from_iterable(_rows(source.name, f"{path}: user {user}: x", x)))
    for word in SPECIAL:
        counts.pop(word, None)
    words = sorted(counts, key=lambda word: (-counts[word], word))[: SIZE - len(SPECIAL)]
    return {word: number for number, word in enumerate((*SPECIAL, *words))}


def _source(name: str, title: str, licence: str, home: str, rows: int) -> Source:
    return Source(
        name=name,
        title=title,
        licence=licence,
        home=home,
        load=partial(_load, name),
        classes=SIZE,
        natural=True,
        model="lstm-words",
        rows=rows,
        files=tuple(places(name, part) for part in ("train", "test")),
    )


SOURCES = {
    "reddit": _source(
        "reddit",
        "Reddit comments by user, next word, rows of 10",
        "none stated, LEAF BSD 2-Clause",
        f"{HOME} (data/reddit, the subsampled set)",
        97961,
    ),
    "shakespeare_words": _source(
        "shakespeare_words",
        "Shakespeare's plays by role, next word, rows of 10",
        "public domain",
        "your own preparation, in the layout of LEAF's Reddit",
        0,
    ),
}
