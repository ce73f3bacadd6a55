"""QMNIST: the MNIST digits with their writers, which are the clients, 28x28 grey (Yadav and Bottou, 2019).

Licence: BSD-style. Source: github.com/facebookresearch/qmnist; the MD5 sums of the four files are in `facts`, and files
with other sums load and are told in `origin`. Layout: `qmnist/qmnist-train-images-idx3-ubyte.gz`,
`qmnist/qmnist-train-labels-idx2-int.gz` and the same with test, packed with gzip or not, or under `QMNIST/raw/`, where
torchvision puts them. A label is eight numbers, of which the digit (0) and the writer (2) are used.

Clients are the writers of the training part: 60,000 rows of 539 writers, 111.32 on average with std 15.56 (ddof 0), 19
to 131. The test part, 60,000 rows of which the first 10,000 are MNIST's, is the holdout; none of its writers is in the
training part. The thesis does not use it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from fedchord.check import require
from fedchord.data.federation import DataSet
from fedchord.data.formats.idx import places, read_idx, read_images, same_rows
from fedchord.data.source import Source

# The columns of the official label files: digit, form series, writer, number within the writer, NIST class, NIST
# number, duplicate, unused.
_COLUMNS, _DIGIT, _WRITER = 8, 0, 2


def _load(root: Path) -> DataSet:
    """Images as bytes, (n, 1, 28, 28); clients are the writers of the training part; the test part is the holdout."""
    images, labels = _part(root, "train")
    writers, groups = torch.unique(labels[:, _WRITER], return_inverse=True)
    test_images, test_labels = _part(root, "test")
    return DataSet(
        "qmnist",
        {"x": images, "y": labels[:, _DIGIT].contiguous()},
        10,
        groups=groups,
        group_names=tuple(str(writer) for writer in writers.tolist()),
        holdout={"x": test_images, "y": test_labels[:, _DIGIT].contiguous()},
        origin=SOURCE.origin(len(images), len(test_images)),
    )


def _part(root: Path, part: str) -> tuple[Tensor, Tensor]:
    images = read_images("qmnist", SOURCE.locate(root, f"qmnist/qmnist-{part}-images-idx3-ubyte.gz"), 28)
    path = SOURCE.locate(root, f"qmnist/qmnist-{part}-labels-idx2-int.gz")
    labels = read_idx("qmnist", path, 12, 2).to(torch.int64)
    width = labels.shape[1]
    require(width == _COLUMNS, "qmnist", f"{path} has {width} label columns, expected {_COLUMNS}")
    same_rows("qmnist", images, labels, path)
    return images, labels


SOURCE = Source(
    name="qmnist",
    title="QMNIST handwritten digits by writer, 28x28 grey",
    licence="BSD-style",
    home="https://github.com/facebookresearch/qmnist",
    load=_load,
    classes=10,
    natural=True,
    rows=60000,
    holdout=60000,
    files=tuple(
        places("qmnist", f"qmnist-{part}-{what}", "QMNIST")
        for part in ("train", "test")
        for what in ("images-idx3-ubyte", "labels-idx2-int")
    ),
)
