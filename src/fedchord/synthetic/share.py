"""A synthetic set given to clients as training rows: to all (a shared public set), or where rows are few."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedchord.check import fail, one_of, require, whole
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.synthetic.set import OWNER, SyntheticSet, as_bytes, check_fits

ADDS = ("all", "poor", "missing")


def share(federation: Federation, made: SyntheticSet, add: str = "all", least: int | None = None) -> Federation:
    """The federation with the synthetic rows added to the training rows of some clients; all else stays.

    `add` is "all" (every client gets the whole set: public data for FedAvg), "poor" (clients with fewer training rows
    than `least`, by default the median over clients, get the whole set), or "missing" (every client gets the rows of
    the classes of which it has fewer than `least`, by default fewer than the set has). Weights by size count the new
    rows. The set must be in the range of the data; rows that are vectors of numbers are taken as they are, in the units
    of the clients' rows.
    """
    one_of(OWNER, "add", add, ADDS)
    x, y = federation.columns["x"], federation.columns["y"]
    shape, inputs = tuple(x.shape[1:]), federation.inputs
    require(set(federation.columns) == {"x", "y"}, OWNER, f"{federation.name} has columns that the set has not")
    require(made.shape == shape, OWNER, f"the samples have shape {made.shape}, the rows of {federation.name} {shape}")
    check_fits(made, federation)
    wanted = _wanted(federation, made, add, least)
    require(bool(wanted.any()), OWNER, f"add={add}: no client is to get a row; raise least, or add to all")
    new = torch.arange(len(y), len(y) + len(made.y))
    held = [federation.train[client] for client in range(federation.num_clients)]
    rows = [torch.cat([own, new[gets[made.y]]]) for own, gets in zip(held, wanted, strict=True)]
    if x.dtype == torch.uint8:
        values = as_bytes(made.x, inputs.low, inputs.high)
    elif x.is_floating_point():
        values = (made.x if federation.pictures is None else inputs.to_unit(made.x)).to(x.dtype)
    else:
        raise fail(OWNER, f"rows of {federation.name} are {x.dtype}; only numbers and bytes can be added to")
    columns = {"x": torch.cat([x, values]), "y": torch.cat([y, made.y])}
    whose = f"{int(wanted.any(1).sum())} of {federation.num_clients} clients"
    count = int(wanted.sum()) * made.spc
    note = (
        f"A synthetic set of {len(made.y)} rows was added to the training rows of {whose} ({add}: {count} rows in all)."
    )
    return replace(federation, columns=columns, train=Ragged.of(rows), notes=(*federation.notes, note))


def _wanted(federation: Federation, made: SyntheticSet, add: str, least: int | None) -> Tensor:
    """Which client gets the rows of which class, (clients, classes)."""
    bound = None if least is None else whole(OWNER, "least", least, 1)
    sizes, shape = federation.train.sizes, (federation.num_clients, federation.classes)
    if add == "all":
        return torch.ones(shape, dtype=torch.bool)
    if add == "poor":
        limit = float(sizes.double().quantile(0.5)) if bound is None else bound
        return (sizes < limit).unsqueeze(1).expand(shape)
    label = federation.columns["y"][federation.train.rows]
    counts = torch.bincount(federation.train.owners * shape[1] + label, minlength=shape[0] * shape[1]).reshape(shape)
    return counts < (made.spc if bound is None else bound)
