"""The embedded handwritten digits of scikit-learn: real data, no download."""

from __future__ import annotations

from pathlib import Path

import torch

from fedchord.data.federation import DataSet
from fedchord.data.sources.source import Source


def _load(root: Path) -> DataSet:
    """8x8 grey digits as float32 in [0, 1], (n, 1, 8, 8); there is no official test part."""
    from sklearn.datasets import load_digits  # here, so that importing fedchord does not load scikit-learn

    found = load_digits()
    x = torch.from_numpy(found.images).to(torch.float32).div_(16).unsqueeze(1)
    y = torch.from_numpy(found.target).to(torch.int64)
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
