"""Fed-ISIC2019: skin lesions of 8 kinds by centre (Codella et al., 2018; Tschandl et al., 2018; FLamby, 2022).

Licence: CC BY-NC 4.0. Source: the ISIC 2019 challenge, prepared by FLamby's scripts (they scale the shorter side to 224
and even the colours out), so there is no checksum, and a subset is recognised by its counts. Layout:
`fed_isic2019/train_test_split` (a table with image, target, center, fold) and
`fed_isic2019/ISIC_2019_Training_Input_preprocessed/IMAGE.jpg`.

Stored is the middle square of a picture, its shorter side scaled to 224 where it is not, as bytes in a file that is
mapped into memory. A model sees 200x200 pixels with ImageNet's mean and std: the middle, and in training, if `augment`
is asked for, a random crop of a picture whose colours were jittered by 5 %, which was mirrored, upended and slanted by
up to 0.1 (FLamby crops from the whole picture, whose ends we do not see). Labels are MEL, NV, BCC, AK, BKL, DF, VASC,
SCC. `class_weights` weighs them against each other, as the thesis does.

Clients are the six centres, of four hospitals, one of which had three devices; FLamby's fold is the local split. 23,247
rows (18,597 and 4,650); the thesis leaves out those with a gap in their metadata, and splits 21,310 anew. In FLamby's
fold pictures of one lesion may lie on both sides: where the table has a column lesion_id, `origin` counts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchord.data.augment import IMAGENET, Pictures
from fedchord.data.federation import DataSet
from fedchord.data.formats.cache import Writer, cached, fill_files, skipped_note
from fedchord.data.formats.images import read_image
from fedchord.data.formats.table import Row, read_rows
from fedchord.data.source import Source

CENTRES = ("BCN", "HAM_vidir_molemax", "HAM_vidir_modern", "HAM_rosendahl", "MSK", "HAM_vienna_dias")
KINDS = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
FOLDS = {"train": 0, "test": 2}
COLUMNS = ("image", "target", "center", "fold")
STORED, SHOWN = 224, 200
TABLE = "fed_isic2019/train_test_split"
PICTURES = "fed_isic2019/ISIC_2019_Training_Input_preprocessed"
PLAIN = Pictures(SHOWN, *IMAGENET)
VARIED = Pictures(SHOWN, *IMAGENET, jitter=0.05, mirror=True, upend=True, shear=0.1, shift=True)


def read(root: Path, skip_damaged: bool = False) -> DataSet:
    """Pictures as bytes, (n, 3, 224, 224); clients are the centres. A damaged one is an error, or skipped if asked."""
    table = SOURCE.locate(root, TABLE)
    rows = list(read_rows("isic", table, COLUMNS))
    folder = table.parent / Path(PICTURES).name
    items = [(folder / f"{row.text('image')}.jpg", _values(row)) for row in rows]
    small: list[Path] = []

    def picture(path: Path) -> NDArray[np.uint8]:
        pixels, size = read_image("isic", path, STORED, middle=True)
        small.extend([path] if min(size) < STORED else [])
        return pixels

    def build(writer: Writer) -> dict[str, Any]:
        return {"skipped": fill_files("isic", writer, items, picture, skip_damaged), "small": len(small)}

    there = [path for path, _ in items if path.is_file()]
    columns, facts = cached("isic", root, [table, *there], f"{STORED} {skip_damaged}", build)
    centre, part = columns.pop("centre"), columns.pop("part")
    small_ones = (
        f"{facts['small']} pictures were smaller than {STORED} pixels and were enlarged" if facts["small"] else ""
    )
    enlarged = f" {small_ones}." * bool(small_ones)
    return DataSet(
        "isic",
        columns,
        len(KINDS),
        groups=centre,
        group_names=CENTRES,
        origin=SOURCE.origin(len(centre), 0) + enlarged + _shared(rows) + skipped_note(facts["skipped"]),
        parts=part,
        shown=PLAIN,
        augmented=VARIED,
        altered=small_ones,
    )


def _values(row: Row) -> dict[str, int]:
    centre, target = (row.code(column, range(n)) for column, n in (("center", len(CENTRES)), ("target", len(KINDS))))
    assert centre is not None and target is not None
    return {"y": target, "centre": centre, "part": FOLDS[row.category("fold", tuple(FOLDS))]}


def _shared(rows: list[Row]) -> str:
    """How many test pictures show a lesion that is in the training part too."""
    if "lesion_id" not in rows[0].cells:
        return ""
    trained = {row.text("lesion_id") for row in rows if row.text("fold") == "train"} - {""}
    twice = sum(row.text("lesion_id") in trained for row in rows if row.text("fold") == "test")
    return f" {twice} test pictures show a lesion that is among the training pictures too."


SOURCE = Source(
    name="isic",
    title="Fed-ISIC2019 skin lesions by centre, 200x200 RGB",
    licence="CC BY-NC 4.0",
    home="https://challenge.isic-archive.com/data/#2019 by FLamby's scripts (https://github.com/owkin/FLamby)",
    load=read,
    skips=True,
    augments=True,
    classes=len(KINDS),
    natural=True,
    rows=23247,
    files=((TABLE,), (f"{PICTURES}/*.jpg",)),
)
