"""One client's rows alone, at that client's place among all: what a machine holds that takes part for one client.

The federation has as many clients as the whole one, of which all but one have no rows. So a client keeps its number,
and with it every key that is drawn by it, though nobody else's rows are here.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedchord.check import require
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.data.scaling import Scaling

_PARTS = ("train", "validation", "test")


def alone(federation: Federation, client: int) -> Federation:
    """The rows of one client, copied; the others have none. Pictures are varied as in the whole federation."""
    clients = federation.num_clients
    require(0 <= client < clients, federation.name, f"there is no client {client}")
    rows = torch.cat([federation.part(part)[client] for part in _PARTS])
    columns = {name: column[rows] for name, column in federation.columns.items()}
    sizes = [len(federation.part(part)[client]) for part in _PARTS]
    numbers = rows if federation.numbers is None else federation.numbers[rows]
    own = replace(
        federation, columns=columns, holdout=None, numbers=numbers, scaling=_unknown(federation.scaling, client)
    )
    return _seated(own, list(torch.arange(len(rows)).split(sizes)), client, clients)


def seated(own: Federation, client: int, names: tuple[str, ...]) -> Federation:
    """A federation of one client as that client of many, whose names are given."""
    require(own.num_clients == 1, own.name, f"must hold the rows of one client, got {own.num_clients}")
    require(0 <= client < len(names), own.name, f"there is no client {client}, only {len(names)} from 0")
    scaling = own.scaling
    if scaling is not None:
        place = torch.zeros(len(names), dtype=torch.int64)
        scaling = _unknown(replace(scaling, mean=scaling.mean[place], std=scaling.std[place]), client)
    found = replace(own, client_names=names, scaling=scaling)
    return _seated(found, [own.part(part)[0] for part in _PARTS], client, len(names))


def _seated(own: Federation, rows: list[Tensor], client: int, clients: int) -> Federation:
    nothing = torch.zeros(0, dtype=torch.int64)
    train, validation, test = (
        Ragged.of(part if number == client else nothing for number in range(clients)) for part in rows
    )
    return replace(own, train=train, validation=validation, test=test)


def _unknown(scaling: Scaling | None, client: int | None) -> Scaling | None:
    """The scaling of one client; that of the others is not known here."""
    if scaling is None:
        return None
    theirs = torch.ones(len(scaling.mean), 1, dtype=torch.bool)
    if client is not None:
        theirs[client] = False
    return replace(
        scaling,
        mean=scaling.mean.masked_fill(theirs, torch.nan),
        std=scaling.std.masked_fill(theirs, torch.nan),
    )


def impersonal(federation: Federation) -> Federation:
    """The same without what was read off any single client's rows: how each client scales stays with it."""
    return replace(federation, scaling=_unknown(federation.scaling, None), notes=(), numbers=None)
