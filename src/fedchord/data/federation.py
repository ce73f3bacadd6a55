"""The clients' data: rows of one data set, and which client holds which rows.

All rows lie in one set of columns (`x`, `y`, masks ...), so nothing is copied per client; a client is three lists of
row numbers (train, validation, test). Images stay bytes until they are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fedchord import notebook, rng
from fedchord.check import RowsMissing, one_of, require
from fedchord.core.inputs import Block, Inputs
from fedchord.data.augment import Pictures
from fedchord.data.features import Feature
from fedchord.data.ragged import Ragged
from fedchord.data.scaling import Scaling
from fedchord.tensors import Tensors


@dataclass(frozen=True)
class DataSet:
    """Rows before they are given to clients; what a source returns.

    `groups` holds a client number per row where the data have natural clients (a writer, a hospital), named by
    `group_names`. `holdout` is the official test part, kept apart from the clients. `scaled` marks the features (of
    rows that are vectors) that every client standardises with its own training rows; where it is given, NaN is a gap.
    `parts` tells, for data that come with a split of every client's rows, the part of each row: 0 training, 1
    validation, 2 test. `shown` is how pictures are shown to a model, `augmented` how where augmentation is asked for.
    `blocks` tells which features of a table are categories. `altered` says what in the rows shows that they are a
    re-encoded copy, whatever their number; `verdict` is the word of `data check` on the files. `class_names` names the
    classes, where they have names, and `features` the columns of a table. Where y holds floats they are targets of
    regression, and `classes` is 1.
    """

    name: str
    columns: Tensors
    classes: int
    groups: Tensor | None = None
    group_names: tuple[str, ...] = ()
    holdout: Tensors | None = None
    origin: str = ""
    scaled: Tensor | None = None
    usual: Tensor | None = None
    parts: Tensor | None = None
    shown: Pictures | None = None
    augmented: Pictures | None = None
    blocks: tuple[Block, ...] = ()
    altered: str = ""
    class_names: tuple[str, ...] = ()
    features: tuple[Feature, ...] = ()
    verdict: str = ""

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted, not classes."""
        return self.columns["y"].is_floating_point()

    def __repr__(self) -> str:
        rows = f"{notebook.counted(len(self.columns['y']), 'row')} of {notebook.shape(self.columns['x'].shape[1:])}"
        groups = "" if self.groups is None else f", {notebook.counted(len(self.groups.unique()), 'group')}"
        return f"DataSet({notebook.one_line(self.name)}: {rows}, {notebook.counted(self.classes, 'class')}{groups})"


@dataclass(frozen=True)
class Federation:
    """K clients with their training, validation and test rows.

    `scaling` is how the features of a table were scaled, `target` the mean and the std of the numbers to predict, over
    all training rows.
    """

    name: str
    columns: Tensors
    classes: int
    train: Ragged
    validation: Ragged
    test: Ragged
    client_names: tuple[str, ...]
    holdout: Tensors | None = None
    notes: tuple[str, ...] = field(default=())
    pictures: Pictures | None = None
    blocks: tuple[Block, ...] = ()
    class_names: tuple[str, ...] = ()
    features: tuple[Feature, ...] = ()
    scaling: Scaling | None = None
    target: tuple[float, float] | None = None
    declared: Inputs | None = None
    """What `inputs` is where the rows are not here to tell."""
    numbers: Tensor | None = None
    """The number of each row in a larger federation of which these rows are a part; pictures are varied by it."""
    verdict: str = ""
    """The word of `data check` on the files the rows come from; "" where nobody looked."""
    held: Ragged | None = None
    """Rows cut from the training rows, with their labels as training sees them: what clients choose by."""

    def __repr__(self) -> str:
        return f"Federation({notebook.one_line(self.name)}: {self._size})"

    def _repr_html_(self) -> str:
        """Sizes and, of up to a hundred clients, the split as a picture and a table."""
        from fedchord.data.page import page  # here, since it is made of federations

        return page(self, self._size)

    @property
    def _size(self) -> str:
        """Clients, rows and classes in words."""
        rows = sum(len(part.rows) for part in (self.train, self.validation, self.test))
        parts = {"client": self.num_clients, "row": rows, "class": self.classes}
        return ", ".join(notebook.counted(number, what) for what, number in parts.items())

    @property
    def num_clients(self) -> int:
        return len(self.train)

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted, not classes."""
        return self.target is not None

    def part(self, split: str) -> Ragged:
        """The rows of one split by its name: train, validation, test, or held where rows are held out."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        parts |= {} if self.held is None else {"held": self.held}
        return parts[one_of("evaluate", "split", split, parts)]

    def only(self, clients: Sequence[int]) -> Federation:
        """Some of the clients, numbered anew from 0 in the given order; names stay, and the rows are shared."""
        for client in clients:
            require(0 <= client < self.num_clients, self.name, f"there is no client {client}")
        require(len(clients) > 0, self.name, "a federation needs at least one client")
        require(len(set(clients)) == len(clients), self.name, "a client is named twice")
        train, validation, test = (
            Ragged.of(part[client] for client in clients) for part in (self.train, self.validation, self.test)
        )
        names = tuple(self.client_names[client] for client in clients)
        scaling = self.scaling and self.scaling.only(clients)
        held = None if self.held is None else Ragged.of(self.held[client] for client in clients)
        return replace(
            self, train=train, validation=validation, test=test, client_names=names, scaling=scaling, held=held
        )

    def whole(self) -> Federation:
        """The same with the rows that are held out back among the training rows."""
        if self.held is None:
            return self
        both = (torch.cat([self.train[client], self.held[client]]) for client in range(self.num_clients))
        return replace(self, train=Ragged.of(both), held=None)

    def to(self, device: torch.device) -> Federation:
        """The federation with its columns on a device."""
        if device.type == "cpu":
            return self
        return replace(self, columns={name: column.to(device) for name, column in self.columns.items()})

    def batch(self, rows: Tensor, key: int | None = None) -> Tensors:
        """The columns of some rows, ready for a model; with a key pictures are varied, each by the key and its row."""
        try:
            columns = {name: column.index_select(0, rows.to(column.device)) for name, column in self.columns.items()}
        except (IndexError, RuntimeError):
            if len(self.columns["x"]):
                raise
            raise RowsMissing(f"{self.name}: the rows that are needed are not here") from None
        if key is None or self.pictures is None or not self.pictures.varies:
            return self.ready(columns)
        batch, keys = prepare(columns), rng.fold(key, rows if self.numbers is None else self.numbers[rows])
        assert isinstance(keys, Tensor)
        return batch | {"x": self.pictures.vary(batch["x"], keys)}

    def example(self, rows: int = 1) -> Tensors:
        """Rows of zeros as a model would get them, to try it on."""
        return self.ready({name: column.new_zeros(rows, *column.shape[1:]) for name, column in self.columns.items()})

    def ready(self, columns: Tensors) -> Tensors:
        """Stored columns as what a model takes, the same every time."""
        batch = prepare(columns)
        return batch if self.pictures is None else batch | {"x": self.pictures.show(batch["x"])}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example as a model sees it."""
        stored = tuple(self.columns["x"].shape[1:])
        return stored if self.pictures is None else self.pictures.shape(stored)

    @cached_property
    def inputs(self) -> Inputs:
        """What one example looks like. Bytes lie in [0, 1] and 16-bit sound in [-1, 1]; numbers lie between the
        smallest and the largest of all training rows, for rows that are vectors feature by feature.

        A feature of a category has two values at every client, which differ between clients where each standardises its
        own rows: low and high are the means, weighted by training rows, of the lowest and of the highest value of the
        clients in whose training rows it varies (of all rows, where it varies at no client). Rows of a table are in
        each client's standard units, and so a row that is made is in units of the average client.
        """
        if self.declared is not None:
            return self.declared
        x, shape = self.columns["x"], self.shape
        if self.pictures is not None:
            return Inputs(shape, self.classes, *self.pictures.range())
        if x.dtype in _RANGES:
            return Inputs(shape, self.classes, *_RANGES[x.dtype])
        rows = x[self.train.rows].to(torch.float32)
        if len(shape) == 1:
            return Inputs(shape, self.classes, *self._ends(rows), self.blocks, observed=True)
        return Inputs(shape, self.classes, float(rows.min()), float(rows.max()), observed=True)

    def _ends(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest and the highest value of every feature of the training rows; of categories, means over clients."""
        ends = rows.amin(0), rows.amax(0)
        coded = [feature for start, stop, _ in self.blocks for feature in range(start, stop)]
        if not coded:
            return ends
        part, sizes = rows[:, coded], self.train.sizes
        client = self.train.owners.unsqueeze(1).expand_as(part)
        empty = part.new_zeros(len(sizes), len(coded))
        least, most = (empty.scatter_reduce(0, client, part, end, include_self=False) for end in ("amin", "amax"))
        weights = (most > least) * sizes.unsqueeze(1).double()
        total = weights.sum(0)
        for end, values in zip(ends, (least, most), strict=True):
            mean = (weights * values).sum(0) / total
            end[coded] = torch.where(total > 0, mean.to(end.dtype), end[coded])
        return ends

    @cached_property
    def row_bytes(self) -> int:
        """How many bytes a row takes once it is ready for a model."""
        return sum(4 * column[:1].numel() for column in self.columns.values())


_RANGES = {torch.uint8: (0.0, 1.0), torch.int16: (-1.0, 1.0)}


def prepare(batch: Tensors) -> Tensors:
    """Stored numbers to what a model takes: bytes to float32 in [0, 1], 16-bit sound to float32 in [-1, 1), other short
    whole numbers (letters and words) to int64."""
    return {name: _ready(column) for name, column in batch.items()}


def _ready(column: Tensor) -> Tensor:
    if column.dtype == torch.uint8:
        return column.to(torch.float32).mul_(1 / 255)
    if column.dtype == torch.int16:
        return column.to(torch.float32).mul_(1 / 32768)
    return column.to(torch.int64) if column.dtype in (torch.int8, torch.int32) else column
