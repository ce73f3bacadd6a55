"""Partitions: which client gets which rows.

A partition is a frozen record with one method, `assign`, that returns a list of row numbers per client. The lists are
disjoint, none is empty, and they depend on the key alone, so the same seed gives the same clients anywhere. The draws
of the two Dirichlet partitions come from NumPy, whose streams may change between its versions; the others do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Protocol, final

import numpy as np
import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import fail, positive, require, unknown, whole
from fedchord.data.dirichlet import Ints, cut, fill, log_dirichlet, normalise, top_up
from fedchord.data.ragged import Ragged
from fedchord.tensors import owners


class Partition(Protocol):
    """What every partition has; your own need not inherit from anything."""

    def assign(
        self, labels: Tensor, num_clients: int, classes: int, key: int, groups: Tensor | None
    ) -> Iterable[Tensor]:
        """The row numbers of each client; disjoint."""
        ...


@final
@dataclass(frozen=True)
class Iid:
    """Rows at random; sizes differ by at most one."""

    def assign(self, labels: Tensor, num_clients: int, classes: int, key: int, groups: Tensor | None) -> Ragged:
        _serve("Iid", num_clients, 1, len(labels))
        owner = torch.empty(len(labels), dtype=torch.int64)
        owner[rng.permutation(key, len(labels))] = owners(_equal_sizes(len(labels), num_clients))
        return _by_owner(owner, num_clients)


@final
@dataclass(frozen=True)
class Pathological:
    """Few classes per client: sort by label, cut into shards * K equal shards, give each client `shards` at random.

    McMahan et al. (2017), with two shards; the sort is stable. Every row is used. Where the shards cannot be equal,
    some have one row more, spread so that the sizes of the clients differ by at most one.
    """

    shards: int = 2

    def __post_init__(self) -> None:
        whole("Pathological", "shards", self.shards, 1)

    def assign(self, labels: Tensor, num_clients: int, classes: int, key: int, groups: Tensor | None) -> Ragged:
        rows, shards = len(labels), self.shards * num_clients
        _serve("Pathological", num_clients, self.shards, rows)
        holder = rng.permutation(key, shards) % num_clients
        longer = _equal_sizes(rows % shards, num_clients)
        turn = torch.empty(shards, dtype=torch.int64)
        turn[torch.argsort(holder, stable=True)] = torch.arange(shards) % self.shards
        sizes = rows // shards + (turn < longer[holder]).to(torch.int64)
        owner = torch.empty(rows, dtype=torch.int64)
        owner[torch.argsort(labels, stable=True)] = torch.repeat_interleave(holder, sizes)
        return _by_owner(owner, num_clients)


@final
@dataclass(frozen=True)
class Dirichlet:
    """A label distribution per client: q_i ~ Dir(alpha N p), and client i fills its quota n/K from q_i.

    Hsu et al. (2019). p are the class frequencies and N the number of classes that occur, so on balanced data this is
    the symmetric Dir(alpha, ..., alpha) that most papers mean; Hsu's own alpha, the sum of all parameters, is N times
    ours. Rows are drawn without replacement: when a class is exhausted, q_i is renormalised over the others (see
    `dirichlet.fill`), so clients that come late, in random order, may hold classes they did not ask for. Every row is
    used and sizes differ by at most one, so no repair is needed: n/K below `minimum` is refused before the draw.
    """

    alpha: float
    minimum: int = 10

    def __post_init__(self) -> None:
        positive("Dirichlet", "alpha", self.alpha)
        whole("Dirichlet", "minimum", self.minimum, 1)

    def assign(self, labels: Tensor, num_clients: int, classes: int, key: int, groups: Tensor | None) -> Ragged:
        _serve("Dirichlet", num_clients, self.minimum, len(labels))
        generator = rng.generator(key)
        supply = np.bincount(labels.numpy(), minlength=classes)
        prior = supply / len(labels)
        logs = log_dirichlet(self.alpha * np.count_nonzero(supply) * prior, num_clients, generator)
        held = fill(logs, supply, _equal_sizes(len(labels), num_clients).numpy(), generator)
        return _by_owner(torch.from_numpy(_hand_out(labels, held.T, generator)), num_clients)


@final
@dataclass(frozen=True)
class ClassDirichlet:
    """The shares of each class over the clients: s_c ~ Dir(alpha, ..., alpha) in R^K, client i gets s_ci n_c rows.

    Yurochkin et al. (2019), the rule of most other libraries; it skews sizes as well as labels. They redraw everything
    until each client has a minimum, which at a small alpha never happens. Here one draw is made and then repaired: rows
    move from the largest clients, one by one, to those below `minimum` (see `dirichlet.top_up`). Every row is used.
    """

    alpha: float
    minimum: int = 10

    def __post_init__(self) -> None:
        positive("ClassDirichlet", "alpha", self.alpha)
        whole("ClassDirichlet", "minimum", self.minimum, 1)

    def assign(self, labels: Tensor, num_clients: int, classes: int, key: int, groups: Tensor | None) -> Ragged:
        _serve("ClassDirichlet", num_clients, self.minimum, len(labels))
        generator = rng.generator(key)
        supply = np.bincount(labels.numpy(), minlength=classes)
        shares = normalise(log_dirichlet(np.full(num_clients, self.alpha), classes, generator))
        owner = _hand_out(labels, cut(shares, supply), generator)
        owner = top_up(owner, labels.numpy(), num_clients, self.minimum, generator)
        return _by_owner(torch.from_numpy(owner), num_clients)


@final
@dataclass(frozen=True)
class Natural:
    """The clients the data come with: one per group (a writer, a hospital), in the order of their keys.

    Groups with fewer than `minimum` rows are left out. If fewer clients are asked for than there are, that many groups
    are taken at random; if more, all are taken.
    """

    minimum: int = 1

    def __post_init__(self) -> None:
        whole("Natural", "minimum", self.minimum, 1)

    def assign(self, labels: Tensor, num_clients: int, classes: int, key: int, groups: Tensor | None) -> Ragged:
        whole("Natural", "num_clients", num_clients, 1)
        if groups is None:
            raise fail("Natural", "the data have no client key to split by; name another split, such as split=iid")
        kept = (torch.bincount(groups) >= self.minimum).nonzero().flatten()
        require(len(kept) > 0, "Natural", f"no client has at least {self.minimum} rows")
        if num_clients < len(kept):
            kept = kept[torch.tensor(rng.choose(key, len(kept), num_clients))]
        number = torch.full((int(groups.max()) + 1,), -1)
        number[kept] = torch.arange(len(kept))
        rows = (number[groups] >= 0).nonzero().flatten()
        parts = _by_owner(number[groups[rows]], len(kept))
        return replace(parts, rows=rows[parts.rows])


PARTITIONS: dict[str, type] = {
    "iid": Iid,
    "pathological": Pathological,
    "dirichlet": Dirichlet,
    "dirichlet-classes": ClassDirichlet,
    "natural": Natural,
}


def make_partition(name: str, **params: Any) -> Partition:
    """A partition from its name and its parameters, as the command line gives them (split, split.alpha, ...)."""
    if name not in PARTITIONS:
        raise unknown("partition", name, PARTITIONS)
    kind = PARTITIONS[name]
    known = {field.name: field for field in fields(kind)}
    for param in params:
        require(bool(known), name, f"takes no parameters, got {param}")
        if param not in known:
            raise unknown(f"parameter of {name}", param, known)
    for field in known.values():
        require(field.name in params or field.default is not MISSING, name, f"{field.name} is needed")
    made: Partition = kind(**params)
    return made


def _serve(owner: str, num_clients: int, each: int, rows: int) -> None:
    """Refuse more clients than the rows can serve."""
    whole(owner, "num_clients", num_clients, 1)
    need = each * num_clients
    require(rows >= need, owner, f"{num_clients} clients need at least {need} rows, got {rows}")


def _equal_sizes(rows: int, parts: int) -> Tensor:
    """Sizes that add up to `rows` and differ by at most one, the larger ones first."""
    return rows // parts + (torch.arange(parts) < rows % parts).to(torch.int64)


def _by_owner(owner: Tensor, num_clients: int) -> Ragged:
    """The rows of each client, ascending, from the client of each row."""
    return Ragged.cut(torch.argsort(owner, stable=True), torch.bincount(owner, minlength=num_clients))


def _hand_out(labels: Tensor, counts: Ints, generator: np.random.Generator) -> Ints:
    """The client of each row, if client i gets counts[c, i] rows of class c, at random within the class."""
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels.numpy()[order], kind="stable")]
    owner = np.empty(len(labels), dtype=np.int64)
    owner[order] = np.concatenate([np.repeat(np.arange(counts.shape[1]), row) for row in counts])
    return owner
