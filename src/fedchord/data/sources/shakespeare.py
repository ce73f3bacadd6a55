"""Shakespeare: the next letter of a role's lines, in LEAF's layout (Caldas et al., 2018; McMahan et al., 2017).

Licence: the text is in the public domain, LEAF's scripts are BSD 2-Clause. Source: made by LEAF's scripts
(data/shakespeare) from Project Gutenberg's edition; the result depends on their sampling options, so there is no
official checksum, and a set is recognised by its counts. Layout: `shakespeare/train/*.json`, `shakespeare/test/*.json`;
x are windows of 80 letters, y is the letter that follows, all from LEAF's alphabet of 80 (`ALPHABET`). A letter is
stored as its place in the alphabet and batched as int64; rows are complete, so nothing is padded.

Clients are the roles (PLAY_ROLE). LEAF's split is kept: the first 80 % of a role's windows are for training, then comes
a gap of 79, so that no window shares a letter with both parts; a random split would leak. All of LEAF's set are
4,226,158 rows of 1,129 roles; the thesis has 660 clients.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchord.check import fail, require
from fedchord.data.federation import DataSet
from fedchord.data.formats.leaf import HOME, places, read_leaf
from fedchord.data.source import Source

# In the order of the character codes, as LEAF has it.
ALPHABET = "".join(sorted(string.ascii_letters + string.digits + "\n !\"&'(),-.:;>?[]}"))
WINDOW = 80
_TABLE = np.full(256, -1, dtype=np.int8)
_TABLE[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))


def _load(root: Path) -> DataSet:
    """Letters as numbers, (n, 80); the label is the next letter; clients are the roles."""
    return read_leaf(SOURCE, root, _encode, "the thesis has 660 clients")


def _encode(where: str, x: list[Any], y: list[Any]) -> dict[str, NDArray[Any]]:
    for name, texts, length in (("x", x, WINDOW), ("y", y, 1)):
        fits = all(isinstance(text, str) and len(text) == length for text in texts)
        require(fits, "shakespeare", f"{where}: {name} must hold texts of {length} letters")
    windows, following = (_letters(where, "".join(texts)) for texts in (x, y))
    return {"x": windows.reshape(-1, WINDOW), "y": following.astype(np.int64)}


def _letters(where: str, text: str) -> NDArray[np.int8]:
    """The places of letters in the alphabet."""
    numbers = _TABLE[np.frombuffer(text.encode("latin-1", "replace"), dtype=np.uint8)]
    # A letter outside latin-1 becomes a question mark, which is in the alphabet, so it is looked for by itself.
    if bool((numbers < 0).any()) or not text.isascii():
        odd = next(letter for letter in text if letter not in ALPHABET)
        raise fail("shakespeare", f"{where}: {odd!r} is not in LEAF's alphabet of {len(ALPHABET)}")
    return numbers


SOURCE = Source(
    name="shakespeare",
    title="Shakespeare's plays by role, next letter after 80",
    licence="public domain, LEAF BSD 2-Clause",
    home=f"{HOME} (data/shakespeare)",
    load=_load,
    classes=len(ALPHABET),
    natural=True,
    model="lstm-characters",
    rows=4226158,
    files=tuple(places("shakespeare", part) for part in ("train", "test")),
)
