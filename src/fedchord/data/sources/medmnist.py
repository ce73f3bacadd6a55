"""MedMNIST: small medical pictures with one label each (Yang et al., 2023), from the official .npz files.

Source: https://zenodo.org/records/10519652 (MedMNIST 3; the older 6496656 is known too). Licence: CC BY 4.0, for
DermaMNIST CC BY-NC 4.0. Layout: `medmnist/NAME.npz` (28 pixels) or `medmnist/NAME_64.npz` (also _128 and
_224), with the arrays train_images, train_labels, val_images, val_labels, test_images, test_labels; images are bytes,
(n, side, side) grey or (n, side, side, 3) colour, labels (n, 1). MD5 sums of all sizes are those of the package
medmnist 3.0.2.

The training part is what clients share (the thesis: by Dirichlet, K = 10 or 100, at 64 pixels), the test part is the
holdout, the validation part is not used. The thesis gives no counts but the classes: 7 for DermaMNIST and 11 for
OrganCMNIST. The official ones are in `OFFICIAL`; a file with another MD5 sum is loaded and named as not the official
one, even if its counts agree. Any other .npz file of this layout is read by `read_medmnist` (or `from_npz`). Sets with
several labels per picture (ChestMNIST) and volumes (the 3D sets) are refused.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedchord.check import fail, require
from fedchord.data.federation import DataSet
from fedchord.data.formats.npz import array_names, read_arrays
from fedchord.data.formats.table import md5
from fedchord.data.source import Source
from fedchord.tensors import Tensors

# Classes, then the training and test rows, of each set.
OFFICIAL: dict[str, tuple[int, int, int]] = {
    "pathmnist": (9, 89996, 7180),
    "dermamnist": (7, 7007, 2005),
    "octmnist": (4, 97477, 1000),
    "pneumoniamnist": (2, 4708, 624),
    "retinamnist": (5, 1080, 400),
    "breastmnist": (2, 546, 156),
    "bloodmnist": (8, 11959, 3421),
    "tissuemnist": (8, 165466, 47280),
    "organamnist": (11, 34561, 17778),
    "organcmnist": (11, 12975, 8216),
    "organsmnist": (11, 13932, 8827),
}
MD5: dict[str, str] = {
    "a8b06965200029087d5bd730944a56c1": "pathmnist",
    "55aa9c1e0525abe5a6b9d8343a507616": "pathmnist_64",
    "ac42d08fb904d92c244187169d1fd1d9": "pathmnist_128",
    "2c51a510bcdc9cf8ddb2af93af1eadec": "pathmnist_224",
    "0744692d530f8e62ec473284d019b0c7": "dermamnist",
    "b70a2f5635c6199aeaa28c31d7202e1f": "dermamnist_64",
    "2defd784463fa5243564e855ed717de1": "dermamnist_128",
    "8974907d8e169bef5f5b96bc506ae45d": "dermamnist_224",
    "c68d92d5b585d8d81f7112f81e2d0842": "octmnist",
    "e229e9440236b774d9f0dfef9d07bdaf": "octmnist_64",
    "0a97e76651ace45c5d943ee3f65b63ae": "octmnist_128",
    "abc493b6d529d5de7569faaef2773ba3": "octmnist_224",
    "28209eda62fecd6e6a2d98b1501bb15f": "pneumoniamnist",
    "8f4eceb4ccffa70c672198ea285246c6": "pneumoniamnist_64",
    "05b46931834c231683c68f40c47b2971": "pneumoniamnist_128",
    "d6a3c71de1b945ea11211b03746c1fe1": "pneumoniamnist_224",
    "bd4c0672f1bba3e3a89f0e4e876791e4": "retinamnist",
    "afda852cc34dcda56f86ad2b2457dbcc": "retinamnist_64",
    "e48e916a24454daf90583d4e6efb1a18": "retinamnist_128",
    "eae7e3b6f3fcbda4ae613ebdcbe35348": "retinamnist_224",
    "750601b1f35ba3300ea97c75c52ff8f6": "breastmnist",
    "742edef2a1fd1524b2efff4bd7ba9364": "breastmnist_64",
    "363e4b3f8d712e9b5de15470a2aaadf1": "breastmnist_128",
    "b56378a6eefa9fed602bb16d192d4c8b": "breastmnist_224",
    "7053d0359d879ad8a5505303e11de1dc": "bloodmnist",
    "2b94928a2ae4916078ca51e05b6b800b": "bloodmnist_64",
    "adace1e0ed228fccda1f39692059dd4c": "bloodmnist_128",
    "b718ff6835fcbdb22ba9eacccd7b2601": "bloodmnist_224",
    "ebe78ee8b05294063de985d821c1c34b": "tissuemnist",
    "123ece2eba09d0aa5d698fda57103344": "tissuemnist_64",
    "61b955355d7425a89687b06cca3ce0c2": "tissuemnist_128",
    "b077128c4a949f0a4eb01517f9037b9c": "tissuemnist_224",
    "68e3f8846a6bd62f0c9bf841c0d9eacc": "organamnist",
    "2dcccc29b88e6da5a01161ef20cda288": "organamnist_64",
    "eeae80d0a227a8d099027e1b3cfd3b60": "organamnist_128",
    "50747347e05c87dd3aaf92c49f9f3170": "organamnist_224",
    "b9ceb9546e10131b32923c5bbeaea2b1": "organcmnist",
    "3ce34a8724ea6f548e6db4744d03b6a9": "organcmnist_64",
    "773c1f009daa3fe5d9a2a201b2a7ed94": "organcmnist_128",
    "050f5e875dc056f6768abf94ec9995d1": "organcmnist_224",
    "0afa5834fb105f7705a7d93372119a21": "organcmnist of MedMNIST 2",
    "9ab87b696fb54e2a387ebe992d6ed5f1": "organsmnist",
    "53a6d115339d874c25e309a994ff46d3": "organsmnist_64",
    "ded0c5fa01a95dc4978b956f613e9b8e": "organsmnist_128",
    "b354719e553fbbb2513d5533f52a4cb1": "organsmnist_224",
}
PARTS = ("train", "test")


def read_medmnist(path: str | Path, name: str | None = None) -> DataSet:
    """A data set from any .npz file in MedMNIST's layout; images as bytes, (n, channels, side, side)."""
    file = Path(path)
    owner = name or file.stem
    arrays = _arrays(owner, file)
    train, test = (_part(owner, file, part, arrays) for part in PARTS)
    require(train["x"].shape[1:] == test["x"].shape[1:], owner, f"{file}: train and test images differ in shape")
    kind, _, side = owner.partition("_")
    seen = max(int(part["y"].max()) + 1 for part in (train, test))
    if kind not in OFFICIAL:
        return DataSet(owner, train, seen, holdout=test, origin=_origin(owner, file, train, test))
    classes, wanted, got = OFFICIAL[kind][0], int(side) if side.isdecimal() else 28, train["x"].shape[-1]
    require(got == wanted, owner, f"{file} holds images of {got} pixels, expected {wanted}")
    require(seen <= classes, owner, f"{file} has a label {seen - 1}, expected 0..{classes - 1}")
    return DataSet(owner, train, classes, holdout=test, origin=_origin(owner, file, train, test))


def _arrays(owner: str, file: Path) -> dict[str, NDArray[Any]]:
    require(file.is_file(), owner, f"{file}: no such file")
    needed = [f"{part}_{what}" for part in PARTS for what in ("images", "labels")]
    try:
        found = array_names(file)
        missing = [key for key in needed if key not in found]
        arrays = {} if missing else read_arrays(file, needed)
    except ValueError as error:
        raise fail(owner, f"{file} is damaged: expected an .npz file of plain arrays, got {error}") from None
    require(not missing, owner, f"{file} has no array {', '.join(missing)} (arrays: {', '.join(found)})")
    return arrays


def _part(owner: str, file: Path, part: str, arrays: dict[str, NDArray[Any]]) -> Tensors:
    images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    square = images.ndim in (3, 4) and images.dtype == np.uint8 and images.shape[1] == images.shape[2]
    flat = square and (images.ndim == 3 or images.shape[3] == 3)
    shape = f"{images.dtype} of {images.shape}"
    require(flat, owner, f"{file}: {part}_images must be bytes of (n, side, side) or (n, side, side, 3), got {shape}")
    single = labels.ndim == 1 or (labels.ndim == 2 and labels.shape[1] == 1)
    single = single and labels.dtype.kind in "iu"
    require(single, owner, f"{file}: {part}_labels must hold one whole number per image, got {labels.shape}")
    rows = (len(labels), len(images))
    require(rows[0] == rows[1], owner, f"{file} holds {rows[0]} {part} labels for {rows[1]} images")
    require(rows[0] > 0, owner, f"{file} holds no {part} images")
    return {"x": _channels_first(images), "y": torch.from_numpy(labels.reshape(-1).astype(np.int64))}


def _channels_first(images: NDArray[Any]) -> Tensor:
    turned = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(turned))


def _origin(owner: str, file: Path, train: Tensors, test: Tensors) -> str:
    rows = f"{len(train['y'])} training and {len(test['y'])} test rows"
    match, known = MD5.get(md5(file)), OFFICIAL.get(owner.partition("_")[0])
    if match is not None:
        renamed = known is not None and match.partition(" ")[0] != owner
        require(not renamed, owner, f"{file} is {match} by its MD5 sum")
        return f"{match} ({file.name}): {rows}, the official file by its MD5 sum; the validation part is not used."
    official = ""
    if known:
        agree = (len(train["y"]), len(test["y"])) == known[1:]
        official = (
            f" (official: {known[1]} and {known[2]}{', which agrees, but the content does not' if agree else ''})"
        )
    return (
        f"{file.name}: {rows}{official}; not an official MedMNIST file by its MD5 sum (a subset, an own split or a "
        "re-encoded copy), so results are not comparable with published ones. The validation part is not used."
    )


def _source(name: str, title: str, licence: str) -> Source:
    classes, rows, holdout = OFFICIAL[name.partition("_")[0]]
    file = f"medmnist/{name}.npz"
    return Source(
        name=name,
        title=title,
        licence=licence,
        home="https://zenodo.org/records/10519652",
        load=partial(_load, name),
        classes=classes,
        rows=rows,
        holdout=holdout,
        files=((file, f"{name}.npz"),),
    )


def _load(name: str, root: Path) -> DataSet:
    source = next(source for source in SOURCES if source.name == name)
    return read_medmnist(source.locate(root, source.files[0][0]), name)


SOURCES = (
    _source("dermamnist", "DermaMNIST skin lesions, 28x28 RGB", "CC BY-NC 4.0"),
    _source("dermamnist_64", "DermaMNIST skin lesions, 64x64 RGB", "CC BY-NC 4.0"),
    _source("organcmnist", "OrganCMNIST organs in CT (coronal), 28x28 grey", "CC BY 4.0"),
    _source("organcmnist_64", "OrganCMNIST organs in CT (coronal), 64x64 grey", "CC BY 4.0"),
)
