"""Digits: handwritten digits, 8x8 grey, 10 classes, which come with scikit-learn (Alpaydin and Kaynak, 1998).

Licence: CC BY 4.0 (UCI, data set 80), scikit-learn is BSD 3-Clause. Source: `sklearn.datasets.load_digits`, a copy of
the test part of the UCI set; nothing is downloaded, and there are no files under the data root. A pixel is a whole
number 0 to 16, divided by 16 here.

1,797 rows, 174 to 183 of a class, are what clients share by a split: 13 persons wrote them, but the copy does not say
who wrote which. There is no holdout. The thesis does not use it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from fedchord.check import FedchordError
from fedchord.data.federation import DataSet
from fedchord.data.source import Source


def _file() -> Path:
    """The file in scikit-learn's package, found without importing it, which takes as long as importing torch."""
    spec = find_spec("sklearn")
    places = (spec.submodule_search_locations if spec else None) or []
    for place in places:
        if (file := Path(place, "datasets", "data", "digits.csv.gz")).is_file():
            return file
    raise FedchordError("digits come with scikit-learn, which is not here: pip install scikit-learn")


def _load(root: Path) -> DataSet:
    """8x8 grey digits as float32 in [0, 1], (n, 1, 8, 8); there is no official test part."""
    table = np.loadtxt(_file(), dtype=np.uint8, delimiter=",")
    x = torch.from_numpy(table[:, :-1]).to(torch.float32).div_(16).view(-1, 1, 8, 8)
    y = torch.from_numpy(table[:, -1]).to(torch.int64)
    return DataSet("digits", {"x": x, "y": y}, 10, origin=SOURCE.origin(len(y), 0))


SOURCE = Source(
    name="digits",
    title="Optical recognition of handwritten digits (UCI, the copy in scikit-learn), 8x8 grey",
    licence="CC BY 4.0 (UCI), scikit-learn BSD 3-Clause",
    home="comes with scikit-learn",
    load=_load,
    classes=10,
    rows=1797,
    embedded=True,
)
