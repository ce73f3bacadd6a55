"""Cohorts made of plain lists."""

from __future__ import annotations

import torch

from fedchord.core.rules import Cohort, RoundInfo


def cohort(losses=None, ids=None, sizes=None, updates=None) -> Cohort:
    """Clients with these losses, numbers, sizes and updates."""
    count = len(losses if losses is not None else updates)
    ids = list(range(count)) if ids is None else ids
    rows = None if updates is None else torch.tensor(updates, dtype=torch.float64)
    gram = None if rows is None else rows @ rows.t()
    return Cohort(
        torch.tensor(ids),
        torch.tensor([1] * count if sizes is None else sizes),
        None if losses is None else torch.as_tensor(losses, dtype=torch.float64),
        torch.zeros(count) if gram is None else gram.diagonal().sqrt(),
        gram,
    )


def info(round: int = 0, clients: int = 3, size: int | None = None, lr: float = 0.1) -> RoundInfo:
    return RoundInfo(round, 1000, clients, clients if size is None else size, lr, 1, 0)
