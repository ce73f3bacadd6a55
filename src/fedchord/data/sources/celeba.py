"""CelebA: does this celebrity smile? Photographs by person, 84x84 RGB (Liu et al., 2015; LEAF).

Licence: for non-commercial research only, and the pictures may not be passed on. Source: the aligned and cropped JPEGs
(img_align_celeba.zip, MD5 00d2c5bc6d35e252742224ab0c1e8fcb) of 178x218 pixels, unpacked into
`celeba/img_align_celeba/`, and one of

- `celeba/identity_CelebA.txt` (MD5 32bd1bd63d3c78cd57e08160ec5ed1e2) and `celeba/list_attr_celeba.txt` (MD5
  75e246fa4810816ffd6ee81facbd244c), the official lists, or the same under `celeba/raw/`, where LEAF wants them;
- LEAF's `celeba/train/*.json` and `celeba/test/*.json`, where x are names of pictures and y is Smiling, 0 or 1. They
  are taken if they are there, and LEAF's split with them; otherwise `federate` splits each client's rows.

Clients are the persons with at least 5 pictures: 9,343 with 200,288 rows (21.44 on average, std 7.63), the thesis'
counts. The whole picture is squeezed to 84x84, as in LEAF. Pictures are bytes in a file that is mapped into memory.
Pictures of another size than 178x218, which a re-encoded copy may have, are counted in `origin`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from fedchord.check import fail, require
from fedchord.data.federation import DataSet
from fedchord.data.formats.cache import Writer, cached, fill_files, skipped_note
from fedchord.data.formats.images import read_image
from fedchord.data.formats.leaf import CODES, part_files, places, read_users
from fedchord.data.formats.table import md5
from fedchord.data.source import Source

SIDE, LEAST, LABEL, SIZE = 84, 5, "Smiling", (178, 218)
MD5 = {
    "identity_CelebA.txt": "32bd1bd63d3c78cd57e08160ec5ed1e2",
    "list_attr_celeba.txt": "75e246fa4810816ffd6ee81facbd244c",
}
_FOLDERS = ("celeba", "celeba/raw", "celeba/data/raw", "celeba/Anno")


@final
@dataclass(frozen=True)
class Photo:
    """One row before its picture is read."""

    file: str
    person: str
    smiling: int
    part: int = 0


def read(root: Path, skip_damaged: bool = False) -> DataSet:
    """Photographs as bytes, (n, 3, 84, 84); the label is 1 for a smile; clients are the persons.

    A damaged picture is an error, or skipped and counted if asked for; the rule of 5 pictures counts it all the same.
    """
    leaf = any(any(root.glob(place)) for place in places("celeba", "train"))
    photos, lists = _from_leaf(root) if leaf else _from_lists(root)
    counts = Counter(photo.person for photo in photos)
    trained = {photo.person for photo in photos if photo.part == 0}
    names = sorted(person for person, count in counts.items() if count >= LEAST and person in trained)
    require(bool(names), "celeba", f"no person has at least {LEAST} pictures")
    number = {person: i for i, person in enumerate(names)}
    folder = SOURCE.locate(root, "celeba/img_align_celeba/*.jpg").parent
    items = [
        (folder / photo.file, {"y": photo.smiling, "client": number[photo.person], "part": photo.part})
        for photo in photos
        if photo.person in number
    ]
    missing = next((path for path, _ in items if not path.is_file()), None)
    require(missing is None or skip_damaged, "celeba", f"{missing} is in the lists, but there is no such picture")

    def build(writer: Writer) -> dict[str, Any]:
        other: list[str] = []

        def picture(path: Path) -> NDArray[np.uint8]:
            pixels, size = read_image("celeba", path, SIDE)
            if size != SIZE:
                other.append(path.name)
            return pixels

        return {"skipped": fill_files("celeba", writer, items, picture, skip_damaged), "other": len(other)}

    inputs = [*lists, *(path for path, _ in items if path.is_file())]
    columns, facts = cached("celeba", root, inputs, f"{SIDE} {skip_damaged}", build)
    part, client = columns.pop("part"), columns.pop("client")
    return DataSet(
        "celeba",
        columns,
        2,
        groups=client,
        group_names=tuple(names),
        origin=_origin(len(names), len(part), lists, leaf, facts),
        altered=_other_sizes(facts["other"]),
        parts=part.to(torch.int8) if leaf else None,
    )


def _from_lists(root: Path) -> tuple[list[Photo], list[Path]]:
    """All photographs of the official lists."""
    paths = [SOURCE.locate(root, f"celeba/{name}") for name in MD5]
    person = {}
    for line, cells in _lines(paths[0]):
        require(len(cells) == 2, "celeba", f"{paths[0]} line {line} must hold a picture and a person")
        person[cells[0]] = cells[1]
    rows = iter(_lines(paths[1]))
    next(rows, None)  # the number of pictures
    _, header = next(rows, (0, []))
    names = ", ".join(header[:3])
    require(LABEL in header, "celeba", f"{paths[1]} has no column {LABEL} in its second line ({names} ...)")
    column, photos = header.index(LABEL) + 1, []
    for line, cells in rows:
        fits = len(cells) == len(header) + 1 and cells[column] in ("1", "-1")
        require(fits, "celeba", f"{paths[1]} line {line} must hold a picture and {len(header)} times 1 or -1")
        require(cells[0] in person, "celeba", f"{cells[0]} of {paths[1].name} is not in {paths[0]}")
        photos.append(Photo(cells[0], person[cells[0]], int(cells[column] == "1")))
    without = len(person) - len(photos)
    require(without == 0, "celeba", f"{paths[1]} has no line for {without} of the {len(person)} pictures in {paths[0]}")
    return photos, paths


def _from_leaf(root: Path) -> tuple[list[Photo], list[Path]]:
    """All photographs of LEAF's files."""
    photos, paths = [], []
    for part in ("train", "test"):
        for path in part_files(SOURCE_LEAF, root, part):
            paths.append(path)
            for person, x, y in read_users("celeba", path):
                named = all(isinstance(file, str) and Path(file).name == file for file in x)
                fits = named and all(label in (0, 1) for label in y)
                require(fits, "celeba", f"{path}: user {person}: x must be names of pictures and y 0 or 1")
                photos += [Photo(file, person, int(label), CODES[part]) for file, label in zip(x, y, strict=True)]
    return photos, paths


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise fail("celeba", f"{path} is damaged: expected text") from None
    return [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]


def _origin(persons: int, rows: int, lists: list[Path], leaf: bool, facts: dict[str, Any]) -> str:
    told = f"{SOURCE.title}: {persons} persons with at least {LEAST} pictures, {rows} rows"
    changed = [] if leaf else [path.name for path in lists if md5(path) != MD5[path.name]]
    if (persons, rows) == (9343, SOURCE.rows) and not changed and not facts["other"]:
        return f"{told}, the official number and the thesis'.{skipped_note(facts['skipped'])}"
    if (persons, rows) != (9343, SOURCE.rows):
        told += f", not the 9343 and {SOURCE.rows} of LEAF and the thesis"
    if changed:
        told += f"; not the official file by its MD5 sum: {', '.join(changed)}"
    if facts["other"]:
        told += f"; {_other_sizes(facts['other'])}"
    return f"{told}; results are not comparable with published ones.{skipped_note(facts['skipped'])}"


def _other_sizes(count: int) -> str:
    return f"{count} pictures are not {SIZE[0]}x{SIZE[1]}, so not the official ones" if count else ""


def _source(files: tuple[tuple[str, ...], ...]) -> Source:
    return Source(
        name="celeba",
        title="CelebA photographs by person, smiling or not, 84x84 RGB",
        licence="non-commercial research only; not to be passed on",
        home="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        load=read,
        skips=True,
        classes=2,
        natural=True,
        rows=200288,
        files=files,
    )


_PICTURES = tuple(f"{folder}/img_align_celeba/*.jpg" for folder in _FOLDERS[:3])
SOURCE_LEAF = _source((*(places("celeba", part) for part in ("train", "test")), _PICTURES))
SOURCE = _source(
    (
        _PICTURES,
        *(
            (*(f"{folder}/{name}" for folder in _FOLDERS), *places("celeba", part))
            for name, part in (("identity_CelebA.txt", "train"), ("list_attr_celeba.txt", "test"))
        ),
    )
)
