"""TinyImageNet: photographs of 200 classes, 64x64 RGB (Stanford CS231n; ImageNet, Russakovsky et al., 2015).

Licence: none stated; ImageNet's terms are for non-commercial research. Source: tiny-imagenet-200.zip, MD5
90528d7ca1a48142e341f4ef8d21d0de, unpacked into `tiny-imagenet-200/`: wnids.txt (the classes),
train/CLASS/images/*.JPEG, val/val_annotations.txt and val/images/*.JPEG. An unpacked folder has no checksum; a subset
is recognised by its counts, and pictures that are not 64x64 are refused.

The training part, 100,000 rows, is what clients share (the thesis: by Dirichlet, K = 200 or 1,000), the validation
part, 10,000, is the holdout; the test part has no labels and is not read. Classes are numbered in sorted order. Grey
pictures become RGB. Pictures are bytes in a file that is mapped into memory. If `augment` is asked for, training
pictures are mirrored and turned by up to 20 degrees, and all have ImageNet's mean and std, as in the thesis (whose code
varies the local test pictures, too).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchord.check import fail, require, unknown
from fedchord.data.augment import IMAGENET, Pictures
from fedchord.data.federation import DataSet
from fedchord.data.formats.cache import Writer, cached, fill_files, skipped_note
from fedchord.data.formats.images import read_image
from fedchord.data.source import Source

SIDE, CLASSES = 64, 200
FOLDER = "tiny-imagenet-200"
VARIED = Pictures(0, *IMAGENET, mirror=True, turn=20.0)


def read(root: Path, skip_damaged: bool = False) -> DataSet:
    """Photographs as bytes, (n, 3, 64, 64). A damaged one is an error, or skipped and counted if asked for."""
    folder = SOURCE.locate(root, f"{FOLDER}/wnids.txt").parent
    classes = sorted(_text(folder / "wnids.txt").split())
    fits = len(classes) == len(set(classes)) == CLASSES
    require(fits, "tinyimagenet", f"{folder / 'wnids.txt'} must list {CLASSES} classes, got {len(set(classes))}")
    number = {name: i for i, name in enumerate(classes)}
    train, val = _train(folder / "train", number), _val(folder / "val", number)
    items = [(path, {"y": label, "held": held}) for held, part in enumerate((train, val)) for path, label in part]

    def build(writer: Writer) -> dict[str, Any]:
        return {"skipped": fill_files("tinyimagenet", writer, items, _picture, skip_damaged)}

    inputs = [folder / "wnids.txt", folder / "val/val_annotations.txt", *(path for path, _ in items)]
    columns, facts = cached("tinyimagenet", root, inputs, f"{SIDE} {skip_damaged}", build)
    held = columns.pop("held")
    rows = int((held == 0).sum())
    return DataSet(
        "tinyimagenet",
        {name: column[:rows] for name, column in columns.items()},
        CLASSES,
        holdout={name: column[rows:] for name, column in columns.items()},
        origin=SOURCE.origin(rows, len(held) - rows) + skipped_note(facts["skipped"]),
        augmented=VARIED,
    )


def _train(folder: Path, number: dict[str, int]) -> list[tuple[Path, int]]:
    found = []
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        if place.name not in number:
            raise unknown(f"class in {folder}", place.name, number)
        pictures = sorted((place / "images").glob("*.JPEG"))
        require(bool(pictures), "tinyimagenet", f"{place / 'images'} holds no pictures (*.JPEG)")
        found += [(path, number[place.name]) for path in pictures]
    return found


def _val(folder: Path, number: dict[str, int]) -> list[tuple[Path, int]]:
    path, found = folder / "val_annotations.txt", []
    for line, text in enumerate(_text(path).splitlines(), 1):
        cells = text.split("\t")
        require(len(cells) >= 2, "tinyimagenet", f"{path} line {line} must hold a picture and a class")
        if cells[1] not in number:
            raise unknown(f"class in line {line} of {path}", cells[1], number)
        found.append((folder / "images" / cells[0], number[cells[1]]))
    missing = next((picture for picture, _ in found if not picture.is_file()), None)
    require(missing is None, "tinyimagenet", f"{missing} is in {path.name}, but there is no such picture")
    require(bool(found), "tinyimagenet", f"{path} lists no pictures")
    return found


def _picture(path: Path) -> NDArray[np.uint8]:
    return read_image("tinyimagenet", path, SIDE, (SIDE, SIDE))[0]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise fail("tinyimagenet", f"{path} is damaged: expected text") from None


SOURCE = Source(
    name="tinyimagenet",
    title="TinyImageNet photographs, 64x64 RGB",
    licence="none stated; ImageNet's terms, non-commercial research",
    home="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    load=read,
    skips=True,
    augments=True,
    classes=CLASSES,
    rows=100000,
    holdout=10000,
    files=(
        (f"{FOLDER}/wnids.txt",),
        (f"{FOLDER}/val/val_annotations.txt",),
        (f"{FOLDER}/train/*/images/*.JPEG",),
        (f"{FOLDER}/val/images/*.JPEG",),
    ),
)
