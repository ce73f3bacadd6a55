"""CIFAR-10 and CIFAR-100: photographs, 32x32 RGB, 10 and 100 classes (Krizhevsky, 2009).

Licence: none is stated. Source: cifar-10-python.tar.gz (MD5 c58f30108f718f92721af3b95e74349a) and
cifar-100-python.tar.gz (MD5 eb9058c3a382ffc7106e4002c42a8d85) of www.cs.toronto.edu/~kriz, unpacked; the MD5 sums of
the files in them are in `facts`, and files with other sums load and are told in `origin`. Layout:
`cifar-10-batches-py/data_batch_1` to `data_batch_5` and `test_batch`; `cifar-100-python/train` and `test`. They are
pickles, and are read by a reader that runs nothing (`batches`). Labels of CIFAR-100 are the 100 fine ones.

The training part, 50,000 rows, is what clients share by a split; there are no clients of its own. The thesis has 50,
100 and 500 clients with two shards each for CIFAR-10, and 100 by Dirichlet for CIFAR-100. The test part, 10,000 rows,
is the holdout. Pixels are stored as bytes and batched as numbers in [0, 1].
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch

from fedchord.data.federation import DataSet
from fedchord.data.formats.batches import read_images
from fedchord.data.source import Source
from fedchord.tensors import Tensors


def _load(source: str, label: str, root: Path) -> DataSet:
    """Images as bytes, (n, 3, 32, 32); the last file is the official test part and becomes the holdout."""
    known = {"cifar10": CIFAR10, "cifar100": CIFAR100}[source]
    *train, test = (places[0] for places in known.files)
    columns, holdout = _part(known, label, root, train), _part(known, label, root, [test])
    origin = known.origin(len(columns["y"]), len(holdout["y"]))
    return DataSet(source, columns, known.classes, holdout=holdout, origin=origin)


def _part(source: Source, label: str, root: Path, files: list[str]) -> Tensors:
    parts = [read_images(source.name, source.locate(root, file), label) for file in files]
    x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
    return {"x": torch.from_numpy(x), "y": torch.from_numpy(y)}


CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10 photographs, 32x32 RGB",
    licence="none stated",
    home="https://www.cs.toronto.edu/~kriz/cifar.html (cifar-10-python.tar.gz, unpacked)",
    load=partial(_load, "cifar10", "labels"),
    classes=10,
    model="twocnn",
    rows=50000,
    holdout=10000,
    files=tuple((f"cifar-10-batches-py/{name}",) for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")),
)

CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100 photographs, 32x32 RGB",
    licence="none stated",
    home="https://www.cs.toronto.edu/~kriz/cifar.html (cifar-100-python.tar.gz, unpacked)",
    load=partial(_load, "cifar100", "fine_labels"),
    classes=100,
    model="twocnn",
    rows=50000,
    holdout=10000,
    files=(("cifar-100-python/train",), ("cifar-100-python/test",)),
)
