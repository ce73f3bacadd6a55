"""The attack on data: hostile clients train on wrong labels of their own rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fedchord.check import require
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged


def flipped(federation: Federation, clients: Sequence[int]) -> Federation:
    """The federation in which these clients train on the labels L - 1 - y, for L classes.

    Their training rows are copied: rows that several clients share stay right for the others, and so do validation and
    test rows.
    """
    labels = federation.columns["y"]
    classed = labels.ndim == 1 and not labels.is_floating_point()
    require(classed, "run", f"attack=label-flip needs one class for each row, which {federation.name} has not")
    if not clients:
        return federation
    count = len(labels)
    old = torch.cat([federation.train[client] for client in clients])
    columns = {name: torch.cat([column, column[old]]) for name, column in federation.columns.items()}
    columns["y"] = torch.cat([labels, (federation.classes - 1) - labels[old]])
    sizes = [len(federation.train[client]) for client in clients]
    new = dict(zip(clients, (torch.arange(len(old), device=old.device) + count).split(sizes), strict=True))
    train = Ragged.of(new.get(c, federation.train[c]) for c in range(federation.num_clients))
    numbers = torch.arange(count, device=old.device) if federation.numbers is None else federation.numbers
    return replace(federation, columns=columns, train=train, numbers=torch.cat([numbers, numbers[old]]))
