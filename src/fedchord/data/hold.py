"""Rows that clients hold out of training to choose by."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import fail, require
from fedchord.data.federation import Federation
from fedchord.data.split import split_clients


def hold_out(federation: Federation, share: float, seed: int = 0) -> Federation:
    """A share of every client's training rows, stratified by label, becomes its `held` rows.

    They keep the labels that training sees, wrong ones included (validation and test labels are clean under label
    noise): who chooses by them knows no more than a client does. A client with one training row holds none out.
    """
    require(0 < share < 1, "hold_out", f"the share must lie between 0 and 1, got {share}")
    require(federation.held is None, federation.name, "rows are held out already")
    labels = federation.columns["y"].cpu()
    classed = labels.ndim == 1 and not labels.is_floating_point()
    strata = labels if classed else torch.zeros(len(labels), dtype=torch.int64)
    keys = rng.fold(rng.key(seed, "held"), torch.arange(federation.num_clients))
    assert isinstance(keys, Tensor)
    train, _, held = split_clients(federation.train, strata, share, 0.0, keys)
    if not len(held.rows):
        raise fail(federation.name, "no client has a training row to spare")
    without = int((held.sizes == 0).sum())
    told = (
        f"{len(held.rows)} of {len(federation.train.rows)} training rows are held out to choose by, with their labels"
    )
    note = f"{told}{f'; {without} clients have none' if without else ''}."
    return replace(federation, train=train, held=held, notes=(*federation.notes, note))
