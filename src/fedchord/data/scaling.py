"""Features on one scale: every client uses the mean and the spread of its own training rows, and of no others.

The numbers that were used are kept (`Scaling`), so that rows which come later are treated alike: a known client's by
its own statistics, a new client's by those of its own rows, or by the pooled ones where it has very few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedchord.data.ragged import Ragged

FEW = 20
"""A new client with fewer rows is scaled by the pooled statistics."""
BLOCK = 1 << 20
"""How many numbers are looked at together, about."""


@dataclass(frozen=True)
class Scaling:
    """How gaps are filled and features scaled: the mean and the std of every feature, by client and over all of them.

    A missing value (NaN) becomes the mean m of the values that the client's training rows have. A feature that is
    marked in `scaled` becomes (x - m) / s, where s is the std over the client's training rows with gaps filled (ddof
    0). No test row and no other client has a part in m and s. A feature that does not vary in the training rows, or
    that they do not have, tells the client nothing: s is 0, and the feature is 0 in all of its rows. Where a feature
    that is not scaled is missing in all of them, gaps become the pooled mean.
    """

    scaled: Tensor
    mean: Tensor
    """(clients, features), float64."""
    std: Tensor
    """(clients, features), float64; 0 where a feature does not vary."""
    pooled: Tensor
    """(2, features): mean and std over the training rows of all clients."""
    public: bool = False
    """Whether all of it was known without a look at the rows."""

    @staticmethod
    def known(usual: Tensor, scaled: Tensor, clients: int) -> Scaling:
        """The same centres and spreads for all, (2, features), which were not found from rows."""
        mean, std = usual.double()
        return Scaling(scaled, mean.expand(clients, -1), std.expand(clients, -1), usual.double(), public=True)

    @staticmethod
    def of(x: Tensor, scaled: Tensor, train: Ragged) -> Scaling:
        """The statistics of every client's training rows, and of all of them together."""
        every, (mean, std) = _moments(x[train.rows]), _by_client(x, train)
        known = every[0].nan_to_num(0.0)
        return Scaling(scaled, torch.where(mean.isnan(), known, mean), std, torch.stack([known, every[1]]))

    def rows(self, x: Tensor, client: int | None) -> Tensor:
        """Rows of a known client by its statistics, or by the pooled ones (None), as float32."""
        mean, std = self.pooled if client is None else (self.mean[client], self.std[client])
        return self._by(x, mean, std)

    def newcomer(self, x: Tensor, known: Tensor | None = None) -> tuple[Tensor, str]:
        """Rows of a new client, and by what they were scaled: its own rows (`known`, or else these), or, if there are
        fewer than 20 of them, the pooled statistics."""
        own = x if known is None else known
        if len(own) < FEW:
            few = f"{len(own)} row{'' if len(own) == 1 else 's'}, fewer than {FEW}"
            return self.rows(x, None), f"pooled statistics of the training rows, since the client has {few}"
        mean, std = _moments(own)
        return self._by(x, torch.where(mean.isnan(), self.pooled[0], mean), std), f"its own {len(own)} rows"

    def spread(self, x: Tensor, held: Ragged) -> Tensor:
        """All rows, each by its client, as float32; rows that no client holds become 0."""
        found = torch.zeros(x.shape, dtype=torch.float32)
        together = max(1, BLOCK // max(1, x.shape[1]))
        for rows, owners in zip(held.rows.split(together), held.owners.split(together), strict=True):
            found[rows] = self._by(x[rows], self.mean[owners], self.std[owners])
        return found

    def only(self, clients: Sequence[int]) -> Scaling:
        """The statistics of some clients, in the given order; the pooled ones stay those of all."""
        chosen = torch.as_tensor(clients, dtype=torch.int64)
        return replace(self, mean=self.mean[chosen], std=self.std[chosen])

    def _by(self, x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        values = x.double()
        gaps = values.isnan()
        scaled = torch.where((std > 0) & ~gaps, (values - mean) / std, 0.0)
        return torch.where(self.scaled, scaled, torch.where(gaps, mean, values)).to(torch.float32)


def _moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the values that are there (NaN where there are none), and the std with gaps at the mean; of rows
    (n, features), or of the rows of several clients that have as many, (clients, n, features)."""
    values = rows.double()
    mean = values.nanmean(-2)
    filled = torch.where(values.isnan(), mean.unsqueeze(-2), values)
    varies = filled.amax(-2) > filled.amin(-2)
    return mean, torch.where(varies, filled.std(-2, correction=0), 0.0)


def _by_client(x: Tensor, train: Ragged) -> tuple[Tensor, Tensor]:
    """The moments of every client's rows. Clients with as many rows are looked at together, to the same bits as one by
    one; of a single feature, whose sums torch makes in another order then, they are not."""
    sizes, features = train.sizes, x.shape[1]
    mean, std = (torch.zeros(len(train), features, dtype=torch.float64) for _ in range(2))
    for size in sizes.unique().tolist():
        clients = (sizes == size).nonzero()[:, 0]
        for some in clients.split(max(1, BLOCK // max(1, size * features)) if features > 1 else 1):
            places = train.offsets[some].unsqueeze(1) + torch.arange(size)
            mean[some], std[some] = _moments(x[train.rows[places]])
    return mean, std
