"""Tensors by name, and the layout that tells which slice of one parameter vector belongs to which module.

Every state (what the server broadcasts, what a client keeps, what it uploads, what a rule remembers) is a flat
`dict[str, Tensor]`. A model's trainable parameters are one vector theta in R^d, as in the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedchord.check import FedchordError, unknown

Tensors = dict[str, Tensor]
BLOCK = 1 << 16
"""Numbers turned to float64 at a time."""


@dataclass(frozen=True)
class Entry:
    """One named tensor inside a flat vector."""

    name: str
    module: str
    shape: tuple[int, ...]
    start: int
    stop: int
    dtype: torch.dtype

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Layout:
    """Which slice of a flat float32 vector belongs to which named tensor and to which module."""

    entries: tuple[Entry, ...]

    @staticmethod
    def of(named: Iterable[tuple[str, Tensor]]) -> Layout:
        """The layout of named tensors, in their order; the module is the name up to its last dot."""
        entries, start = [], 0
        for name, tensor in named:
            stop = start + tensor.numel()
            module = name.rpartition(".")[0] or name
            entries.append(Entry(name, module, tuple(tensor.shape), start, stop, tensor.dtype))
            start = stop
        return Layout(tuple(entries))

    @staticmethod
    def of_parameters(module: nn.Module) -> Layout:
        """The layout of a module's trainable parameters (tied ones once)."""
        return Layout.of((n, p) for n, p in module.named_parameters() if p.requires_grad)

    @staticmethod
    def of_buffers(module: nn.Module) -> Layout:
        """The layout of a module's persistent buffers."""
        kept = set(module.state_dict(keep_vars=True))
        return Layout.of((n, b) for n, b in module.named_buffers() if n in kept)

    @cached_property
    def size(self) -> int:
        """The length d of the flat vector."""
        return self.entries[-1].stop if self.entries else 0

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The leaf modules that own entries, in order: the layers of layer-wise mixing."""
        return tuple(dict.fromkeys(entry.module for entry in self.entries))

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The slices of the vector by module, in the order of `modules`; neighbouring entries of a module are one
        slice."""
        spans: dict[str, tuple[int, int]] = {}
        for entry in self.entries:
            start, stop = spans.get(entry.module, (entry.start, entry.start))
            if stop != entry.start:
                raise FedchordError(f"Layout: the parameters of {entry.module} are not neighbours")
            spans[entry.module] = (start, entry.stop)
        return tuple(spans.values())

    @cached_property
    def counters(self) -> Tensor:
        """Which positions hold whole numbers (such as BatchNorm's batch count): combined by maximum, not by mean."""
        marks = torch.zeros(self.size, dtype=torch.bool)
        for entry in self.entries:
            marks[entry.slice] = not entry.dtype.is_floating_point
        return marks

    @cached_property
    def _owner(self) -> Tensor:
        rank = {module: i for i, module in enumerate(self.modules)}
        parts = [torch.full((e.stop - e.start,), rank[e.module]) for e in self.entries]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)

    def spread(self, values: Tensor) -> Tensor:
        """One value per module, written to every position of that module."""
        return values[self._owner.to(values.device)]

    def views(self, vector: Tensor) -> Tensors:
        """The named tensors inside a vector; they share its memory."""
        return {e.name: vector[e.start : e.stop].view(e.shape) for e in self.entries}

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """One vector from named tensors."""
        if not self.entries:
            return torch.zeros(0)
        return torch.cat([named[e.name].detach().reshape(-1).to(torch.float32) for e in self.entries])

    def select(self, names: Iterable[str]) -> Tensor:
        """The positions (a sorted index vector) of modules named exactly or by a leading part of their path.

        `select(["head"])` takes `head.weight`, `head.0.bias` and so on.
        """
        wanted = tuple(names)
        for name in wanted:
            if not any(_belongs(e.name, name) for e in self.entries):
                raise unknown("module", name, self.modules)
        rows = [torch.arange(e.start, e.stop) for e in self.entries if any(_belongs(e.name, n) for n in wanted)]
        return torch.cat(rows) if rows else torch.zeros(0, dtype=torch.int64)

    def rest(self, index: Tensor) -> Tensor:
        """The positions that are not in an index vector."""
        marks = torch.ones(self.size, dtype=torch.bool)
        marks[index] = False
        return marks.nonzero().flatten()

    @cached_property
    def _cuts(self) -> dict[tuple[str, ...], Cut]:
        return {}

    def cut(self, names: tuple[str, ...]) -> Cut:
        """The cut of the vector into the named modules and the rest; made once per choice of names."""
        if names not in self._cuts:
            named = self.select(names)
            self._cuts[names] = Cut(named, self.rest(named))
        return self._cuts[names]


@dataclass(frozen=True)
class Cut:
    """A parameter vector taken apart into named modules and the rest."""

    named: Tensor
    others: Tensor

    @cached_property
    def _tail(self) -> bool:
        """Whether the named modules are the end of the vector, so that slices do instead of index vectors."""
        return bool(len(self.named) == 0 or self.named[0] == len(self.others))

    @cached_property
    def _places(self) -> Tensor:
        return torch.argsort(torch.cat([self.others, self.named]))

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """(named, others) of a vector."""
        if self._tail:
            return vector[len(self.others) :], vector[: len(self.others)]
        return vector[self.named], vector[self.others]

    def join(self, named: Tensor, others: Tensor) -> Tensor:
        """The vector with these parts."""
        whole = torch.cat([others, named])
        return whole if self._tail else whole[self._places]


def _belongs(entry: str, name: str) -> bool:
    return entry == name or entry.startswith(name + ".")


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine of the angle between two vectors, <a, b> / (||a|| ||b||) (departs: E1); 0 if one of them is zero.

    The sums are float64, a block of the vectors at a time: in float32 they lose three digits over millions of numbers.
    """
    cross = first = second = torch.zeros((), dtype=torch.float64, device=a.device)
    for x, y in zip(a.split(BLOCK), b.split(BLOCK), strict=True):
        x, y = x.double(), y.double()
        cross, first, second = cross + x @ y, first + x @ x, second + y @ y
    norms = first.sqrt() * second.sqrt()
    return torch.where(norms > 0, cross / norms, 0.0).to(a.dtype)


def weighted_sum(coefficients: Tensor, stacked: Tensor) -> Tensor:
    """sum_i c_i x_i over the first axis, as one matrix-vector product.

    The single mean of the library: averaging of models, control variates and buffers all come here.
    """
    rows = stacked.shape[0]
    if not rows:
        return stacked.new_zeros(stacked.shape[1:])
    flat = stacked.reshape(rows, -1)
    return torch.mv(flat.t(), coefficients.to(flat)).reshape(stacked.shape[1:])


def owners(sizes: Tensor) -> Tensor:
    """Whose each row is, where owner 0 has the first sizes[0] rows, owner 1 the next sizes[1], and so on."""
    return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)


def stack(states: Iterable[Tensors]) -> Tensors:
    """Equal-shaped states, stacked along a new first axis."""
    rows = list(states)
    if not rows:
        raise FedchordError("stack: needs at least one state")
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def row(stacked: Tensors, index: int) -> Tensors:
    """One state out of a stack (views)."""
    return {name: tensor[index] for name, tensor in stacked.items()}


def clone(state: Mapping[str, Tensor]) -> Tensors:
    """A copy that shares no memory."""
    return {name: tensor.clone() for name, tensor in state.items()}


def num_bytes(state: Mapping[str, Tensor]) -> int:
    """How many bytes a state takes on the wire."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())
