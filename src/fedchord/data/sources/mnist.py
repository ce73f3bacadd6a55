"""MNIST: handwritten digits, 28x28 grey, 10 classes (LeCun et al., 1998).

Licence: CC BY-SA 3.0. Source: the four files of yann.lecun.com/exdb/mnist, of which there are mirrors; their MD5 sums,
packed and unpacked, are in `facts`, and files with other sums load and are told in `origin`. Layout:
`mnist/train-images-idx3-ubyte.gz`, `mnist/train-labels-idx1-ubyte.gz` and the same with t10k, packed with gzip or not,
or under `MNIST/raw/`, where torchvision puts them.

The training part, 60,000 rows, is what clients share by a split: it names no writers (`qmnist` does). The thesis has
50, 100 and 500 clients with two shards each. The test part, 10,000 rows, is the holdout. Pixels are stored as bytes and
batched as numbers in [0, 1].
"""

from __future__ import annotations

from pathlib import Path

import torch

from fedchord.data.federation import DataSet
from fedchord.data.formats.idx import places, read_idx, read_images, same_rows
from fedchord.data.source import Source
from fedchord.tensors import Tensors

_PARTS = ("train", "t10k")


def _load(root: Path) -> DataSet:
    """Images as bytes, (n, 1, 28, 28); the official test part is the holdout."""
    train, test = (_part(root, part) for part in _PARTS)
    return DataSet("mnist", train, 10, holdout=test, origin=SOURCE.origin(len(train["y"]), len(test["y"])))


def _part(root: Path, part: str) -> Tensors:
    images = read_images("mnist", SOURCE.locate(root, f"mnist/{part}-images-idx3-ubyte.gz"), 28)
    path = SOURCE.locate(root, f"mnist/{part}-labels-idx1-ubyte.gz")
    labels = read_idx("mnist", path, 8, 1)
    same_rows("mnist", images, labels, path)
    return {"x": images, "y": labels.to(torch.int64)}


SOURCE = Source(
    name="mnist",
    title="MNIST handwritten digits, 28x28 grey",
    licence="CC BY-SA 3.0",
    home="https://yann.lecun.com/exdb/mnist/ (mirror: https://ossci-datasets.s3.amazonaws.com/mnist/)",
    load=_load,
    classes=10,
    rows=60000,
    holdout=10000,
    files=tuple(
        places("mnist", f"{part}-{what}", "MNIST")
        for part in _PARTS
        for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ),
)
