"""The local split: each client's rows into training, validation and test rows, stratified by label."""

from __future__ import annotations

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import below, require
from fedchord.data.ragged import Ragged


def split_sizes(sizes: Tensor, test: float, validation: float) -> tuple[Tensor, Tensor]:
    """How many test and validation rows clients of these sizes give: round(fraction * n), halves upwards.

    A fraction above zero gives at least one row where one can be spared, the test part first, and a training row always
    stays: a client with one row only trains.
    """
    below("split", "test", test, 1.0)
    below("split", "validation", validation, 1.0)
    require(
        test + validation < 1, "split", f"test and validation must leave training rows, got {test} and {validation}"
    )
    tests = _share(sizes, test, sizes - 1)
    return tests, _share(sizes, validation, sizes - 1 - tests)


def _share(sizes: Tensor, fraction: float, spare: Tensor) -> Tensor:
    # The small number keeps 0.15 * 10 + 0.5, which floats put just below 2, on the side that decimals put it.
    wanted = torch.floor(sizes.double() * fraction + 0.5 + 1e-9).to(torch.int64)
    least = 1 if fraction > 0 else 0
    return torch.minimum(wanted.clamp_min(least), spare.clamp_min(0))


def split_client(labels: Tensor, test: float, validation: float, key: int) -> tuple[Tensor, Tensor, Tensor]:
    """The training, validation and test rows (numbers into `labels`) of one client; see `split_clients`."""
    held = Ragged.of([torch.arange(len(labels))])
    train, valid, tests = split_clients(held, labels, test, validation, rng.as_tensor([key]))
    return train[0], valid[0], tests[0]


def split_clients(
    held: Ragged, labels: Tensor, test: float, validation: float, keys: Tensor
) -> tuple[Ragged, Ragged, Ragged]:
    """Every client's rows as training, validation and test rows, in the order they had; one key per client.

    The m test rows of a client with n rows are spread over its classes in proportion: class c with n_c rows gives
    floor(m n_c / n), and what is left of m goes, one row each, to the classes with the largest remainders of m n_c / n
    (equal remainders: to the larger class, then by lot). With a fifth for testing, classes of 1 to 4 rows have the
    quotas 0.2, 0.4, 0.6 and 0.8, so of the small classes the larger ones are tested first, and a class of one row stays
    in training unless nothing larger is due. Validation rows are taken in the same way from what the test part left.
    """
    tests, valids = split_sizes(held.sizes, test, validation)
    width = int(labels.max()) + 1 if len(labels) else 1
    group, member = torch.unique(held.owners * width + labels[held.rows], return_inverse=True)
    counts, owner = torch.bincount(member, minlength=len(group)), group // width
    lots = rng.fold(rng.fold(keys[owner], -1), group % width)
    assert isinstance(lots, Tensor)
    first = _quotas(counts, owner, tests, lots)
    second = _quotas(counts - first, owner, valids, lots)
    rank = _rank(held, member, counts, keys)
    tested = rank < first[member]
    validated = ~tested & (rank < (first + second)[member])
    return (
        _keep(held, ~tested & ~validated),
        _keep(held, validated),
        _keep(held, tested),
    )


def own_split(
    held: Ragged, parts: Tensor, labels: Tensor, validation: float, keys: Tensor
) -> tuple[Ragged, Ragged, Ragged]:
    """The split that the data come with: `parts` tells for each row 0 training, 1 validation or 2 test.

    Validation rows are used if `validation` is above zero. Where the data have none, that share of each client's
    training rows is taken instead, as `split_clients` does.
    """
    below("split", "validation", validation, 1.0)
    part = parts[held.rows]
    train, valid, tests = (_keep(held, part == code) for code in (0, 1, 2))
    if len(valid.rows) and not validation:
        valid = _keep(held, torch.zeros_like(part, dtype=torch.bool))
    elif validation and not len(valid.rows):
        train, valid, _ = split_clients(train, labels, 0.0, validation, keys)
    return train, valid, tests


def _quotas(counts: Tensor, owner: Tensor, wanted: Tensor, lots: Tensor) -> Tensor:
    """Largest remainders: rows to take from each (client, class), in whole-number arithmetic."""
    totals = torch.zeros_like(wanted).index_add_(0, owner, counts).clamp_min(1)
    ideal = counts * wanted[owner]
    floor, remainder = ideal // totals[owner], ideal % totals[owner]
    short = wanted.index_add(0, owner, -floor)
    order = torch.argsort(lots)
    for column in (-counts, -remainder, owner):
        order = order[torch.argsort(column[order], stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - torch.searchsorted(owner, owner[order])
    return floor + (rank < short[owner]).to(torch.int64)


def _rank(held: Ragged, member: Tensor, counts: Tensor, keys: Tensor) -> Tensor:
    """The rank of each row in a random order of its client's rows of the same class."""
    dice = rng.fold(keys[held.owners], torch.arange(len(held.rows)) - held.offsets[held.owners])
    assert isinstance(dice, Tensor)
    order = torch.argsort(dice)
    order = order[torch.argsort(member[order], stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order)) - (torch.cumsum(counts, 0) - counts)[member[order]]
    return rank


def _keep(held: Ragged, mask: Tensor) -> Ragged:
    sizes = torch.bincount(held.owners[mask], minlength=len(held))
    return Ragged.cut(held.rows[mask], sizes)
