"""FEMNIST: handwritten digits and letters by writer, 28x28 grey, 62 classes (Caldas et al., 2018; NIST SD 19).

Licence: NIST data are in the public domain in the USA, LEAF's scripts are BSD 2-Clause. Source: made by LEAF's scripts
(data/femnist); the result depends on their sampling options, so there is no official checksum, and a set is recognised
by its counts. Layout: `femnist/train/*.json`, `femnist/test/*.json`; x are 784 numbers in [0, 1] (white is 1), all
whole 255ths, which are stored as bytes again; y is 0 to 61.

Clients are the writers, with LEAF's own training and test rows. All of LEAF's set are 805,263 rows of 3,550 writers;
the thesis uses LEAF's small sample (5 %) and reports 730 clients.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchord.check import fail, require
from fedchord.data.federation import DataSet
from fedchord.data.formats.leaf import HOME, places, read_leaf
from fedchord.data.source import Source

SIDE, CLASSES = 28, 62


def _load(root: Path) -> DataSet:
    """Images as bytes, (n, 1, 28, 28); clients are the writers."""
    return read_leaf(SOURCE, root, _encode, "the thesis has 730 clients")


def _encode(where: str, x: list[Any], y: list[Any]) -> dict[str, NDArray[Any]]:
    try:
        pixels = np.asarray(x, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise fail("femnist", f"{where}: x must hold {SIDE * SIDE} numbers per row") from None
    fits = pixels.ndim == 2 and pixels.shape[1] == SIDE * SIDE
    require(fits, "femnist", f"{where}: x must hold {SIDE * SIDE} numbers per row, got {pixels.shape[1:]}")
    levels = np.rint(255 * pixels)
    whole = bool(np.all(np.abs(255 * pixels - levels) < 0.01) and levels.min() >= 0 and levels.max() <= 255)
    require(whole, "femnist", f"{where}: pixels must be whole 255ths between 0 and 1, as LEAF writes them")
    known = all(type(label) is int and 0 <= label < CLASSES for label in y)
    require(known, "femnist", f"{where}: y must hold whole numbers 0..{CLASSES - 1}")
    return {"x": levels.astype(np.uint8).reshape(-1, 1, SIDE, SIDE), "y": np.array(y, np.int64)}


SOURCE = Source(
    name="femnist",
    title="FEMNIST handwritten digits and letters by writer, 28x28 grey",
    licence="public domain (NIST), LEAF BSD 2-Clause",
    home=f"{HOME} (data/femnist)",
    load=_load,
    classes=CLASSES,
    natural=True,
    rows=805263,
    files=tuple(places("femnist", part) for part in ("train", "test")),
)
