"""How the clients of a federation differ: sizes, labels, features, and labels that look wrong. Training rows only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord import rng
from fedchord.data.federation import Federation

ROWS = 3000
"""How many rows are looked at where all would take long."""
NEIGHBOURS = 15


@dataclass(frozen=True)
class Differences:
    """How clients differ; None where the data have no classes, or are not vectors or pictures.

    `labels` is the mean over clients of the total variation between a client's labels and those of all, and
    `labels_by_chance` the same after the labels are shuffled over all rows. `features` is the share of the variance of
    features within classes that lies between clients, less what clients drawn at random would have, at least 0.
    `noise` is the share of rows whose label is not that of most of their nearest neighbours: wrong ones, and hard rows.
    """

    clients: int
    smallest: int
    median: int
    largest: int
    labels: float | None = None
    labels_by_chance: float | None = None
    features: float | None = None
    noise: float | None = None


def describe(federation: Federation, seed: int = 0) -> Differences:
    """How the clients of a federation differ, by their training rows."""
    sizes, train = federation.train.sizes, federation.train
    found = {"smallest": int(sizes.min()), "median": int(sizes.median()), "largest": int(sizes.max())}
    labels = federation.columns["y"][train.rows].cpu()
    if labels.ndim != 1 or labels.is_floating_point():
        return Differences(federation.num_clients, **found)
    owner, key = train.owners, rng.key(seed, "describe")
    shuffled = labels[rng.permutation(key, len(labels))]
    apart, chance = (label_skew(owner, y, federation.classes, len(sizes)) for y in (labels, shuffled))
    picked = rng.permutation(rng.fold(key, 1), len(labels))[:ROWS]
    x = federation.batch(train.rows[picked])["x"].cpu()
    if not x.is_floating_point():
        return Differences(federation.num_clients, **found, labels=apart, labels_by_chance=chance)
    x = x.flatten(1).double()
    return Differences(
        federation.num_clients,
        **found,
        labels=apart,
        labels_by_chance=chance,
        features=feature_skew(x, labels[picked], owner[picked]),
        noise=odd_labels(x, labels[picked]),
    )


def label_skew(owner: Tensor, labels: Tensor, classes: int, clients: int) -> float:
    """The mean over clients of half the sum over classes of |share at the client - share over all|."""
    table = torch.zeros(clients, classes, dtype=torch.float64)
    table.index_put_((owner, labels), torch.ones(len(labels), dtype=torch.float64), accumulate=True)
    own = table / table.sum(1, keepdim=True)
    return float((own - table.sum(0) / table.sum()).abs().sum(1).mean() / 2)


def feature_skew(x: Tensor, labels: Tensor, owner: Tensor) -> float:
    """Within classes, how much of the variance lies between clients: (S_b / (G - C) - S_w / (n - G)) as a share.

    Rows are grouped by class and client, G groups of C classes. S_b is the sum of squares of group means around their
    class mean, S_w that of rows around their group mean; with mean squares B and W and m rows a group on average, the
    variance between is (B - W) / m where that is above 0, and the share is that over itself plus W.
    """
    _, group = torch.unique(labels * (int(owner.max()) + 1) + owner, return_inverse=True)
    _, kind = torch.unique(labels, return_inverse=True)
    groups, kinds, rows = int(group.max()) + 1, int(kind.max()) + 1, len(x)
    if groups <= kinds or rows <= groups:
        return 0.0
    inside = x - _means(x, group)
    between = _means(x, group) - _means(x, kind)
    high, low = float(between.square().sum()) / (groups - kinds), float(inside.square().sum()) / (rows - groups)
    variance = max(0.0, (high - low) / (rows / groups))
    return variance / (variance + low) if variance + low > 0 else 0.0


def _means(x: Tensor, group: Tensor) -> Tensor:
    """The mean of each row's group."""
    count = torch.bincount(group)
    total = torch.zeros(len(count), x.shape[1], dtype=x.dtype).index_add_(0, group, x)
    return (total / count.unsqueeze(1))[group]


def odd_labels(x: Tensor, labels: Tensor) -> float:
    """The share of rows whose label is not the most frequent one of their nearest neighbours, themselves left out."""
    count = min(NEIGHBOURS, len(x) - 1)
    if count < 1:
        return 0.0
    far = torch.cdist(x.float(), x.float())
    far.fill_diagonal_(torch.inf)
    near = labels[far.topk(count, largest=False).indices]
    return float((near.mode(1).values != labels).double().mean())
