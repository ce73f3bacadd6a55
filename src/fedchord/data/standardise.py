"""Features on one scale: every client uses the mean and the spread of its own training rows, and of no others."""

from __future__ import annotations

import torch
from torch import Tensor

from fedchord.data.federation import Ragged


def standardise(x: Tensor, scaled: Tensor, held: Ragged, train: Ragged) -> Tensor:
    """(x - m) / s for every client and every marked feature, as new rows; features without a mark stay as they are.

    m is the mean of the values that the client's training rows have, a missing value (NaN) becomes m, and s is then the
    std over the client's training rows (ddof 0). So no test row and no other client has a part in m and s, and a
    missing value is 0. A feature that does not vary in the training rows, or that they do not have, tells the client
    nothing: it is 0 in all of its rows. Rows that no client holds become 0.
    """
    found = torch.zeros_like(x)
    for client in range(len(held)):
        rows, known = held[client], x[train[client]][:, scaled].double()
        mean = known.nanmean(0)
        filled = torch.where(known.isnan(), mean, known)
        varies, std = filled.amax(0) > filled.amin(0), filled.std(0, correction=0)
        mine = x[rows]
        values = (mine[:, scaled].double() - mean) / std
        mine[:, scaled] = torch.where(varies & ~values.isnan(), values, 0.0).to(x.dtype)
        found[rows] = mine
    return found
