"""A look at privacy: are synthetic samples copies of training rows, and do they tell who was there?

d(a, B) is the Euclidean distance of a row to its nearest row in B, over the square root of the number of features. If
d(synthetic, training rows) is far below d(other real rows, training rows), samples are copies. The membership score of
a real row is -d(row, synthetic set); its AUROC over training rows (members) and rows that no client trained on
(non-members) is 0.5 where the set tells nothing. Under that hypothesis the standard error is sqrt((m + n + 1) / 12mn).

This is a look, not a guarantee: stronger attacks exist, and only differential privacy bounds them all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord import rng
from fedchord.data.federation import Federation
from fedchord.metrics import auroc
from fedchord.synthetic.quality import Real, members, reference, same_range
from fedchord.synthetic.set import SyntheticSet

ROWS = 5_000
"""How many members and non-members are looked at."""
BLOCK = 1 << 24
"""How many distances are held at a time."""


@dataclass(frozen=True)
class Privacy:
    """Distances to the nearest training row (median and smallest), and the membership score."""

    synthetic: tuple[float, float]
    real: tuple[float, float]
    """The same for real rows that no client trained on."""
    closer: float
    """The share of synthetic samples that lie nearer to a training row than the nearest 1 % of those real rows do."""
    membership: float
    error: float
    """The standard error of the score if it were 0.5 in truth."""
    members: int
    others: int
    which: str
    """Which rows the non-members are."""


def nearest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of a, the distance to its nearest row of b (root mean square over features), and which it is.

    The search is in float32, through ||a||^2 + ||b||^2 - 2 a.b; the distance itself is computed from the difference.
    """
    a, b = a.flatten(1).float(), b.flatten(1).float()
    distances, rows = [], []
    squares = b.square().sum(1)
    for part in a.split(max(1, BLOCK // len(b))):
        gaps = part.square().sum(1, keepdim=True) + squares - 2 * part @ b.T
        which = gaps.argmin(1)
        rows.append(which)
        distances.append((part.double() - b[which].double()).square().mean(1).sqrt())
    return torch.cat(distances), torch.cat(rows)


def membership(synthetic: Tensor, inside: Tensor, outside: Tensor) -> float:
    """The AUROC of minus the distance to the nearest synthetic sample: members against non-members."""
    scores = -torch.cat([nearest(rows, synthetic)[0] for rows in (inside, outside)])
    labels = torch.cat([torch.ones(len(inside)), torch.zeros(len(outside))]).long()
    return auroc(scores.unsqueeze(1), labels)


def chance(members: int, others: int) -> float:
    """The standard deviation of the AUROC of m and n rows whose order is random, sqrt((m + n + 1) / 12mn)."""
    return ((members + others + 1) / (12 * members * others)) ** 0.5


def look(made: SyntheticSet, federation: Federation, rows: int = ROWS) -> Privacy:
    """Compare a synthetic set with the rows it was made from and with rows it was not."""
    every, outside = members(federation), reference(federation)
    same_range(made, outside)
    others = _some(outside, rows, "others")
    inside = _some(every, rows, "members")
    ours, theirs = nearest(made.x, every.x)[0], nearest(others, every.x)[0]
    m, n = len(inside), len(others)
    return Privacy(
        synthetic=(float(ours.median()), float(ours.min())),
        real=(float(theirs.median()), float(theirs.min())),
        closer=float((ours < theirs.quantile(0.01)).double().mean()),
        membership=membership(made.x, inside, others),
        error=chance(m, n),
        members=m,
        others=n,
        which=outside.which,
    )


def _some(real: Real, rows: int, purpose: str) -> Tensor:
    """At most so many rows, drawn without regard to the run."""
    return real.x[rng.permutation(rng.key(0, purpose), len(real))[:rows]]
