"""How near synthetic samples come to real ones: Frechet distance and kernel distance of features.

With features a_1..a_n (synthetic) and b_1..b_m (real) of dimension d, means mu and covariances S (n - 1):

    Frechet = ||mu_a - mu_b||^2 + tr S_a + tr S_b - 2 tr (S_a S_b)^(1/2)               (Heusel et al., 2017)
    KID = mean of k(a_i, a_j) over i != j + mean of k(b_i, b_j) over i != j - 2 mean of k(a_i, b_j),
          k(a, b) = (a . b / d + 1)^3                                                    (Binkowski et al., 2018)

KID is the unbiased estimate over all pairs. The Frechet distance is biased upwards, the more the fewer samples there
are: a row of as many real samples (`real_row`) stands beside it. All sums are float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import require
from fedchord.data.federation import Federation
from fedchord.synthetic.features import Extractor
from fedchord.synthetic.set import OWNER, Bound, SyntheticSet, check_range, same_ends

PAIRS = 1 << 22
"""How many kernel values are held at a time."""
DRAWS = 5
"""How many sets of real samples are drawn for the row beside."""


@dataclass(frozen=True)
class Cloud:
    """Features (rows) and what both distances need of them, computed once."""

    x: Tensor

    def __post_init__(self) -> None:
        x = self.x
        require(x.ndim == 2 and len(x) > 1, OWNER, f"features must be two rows or more, got shape {tuple(x.shape)}")
        require(bool(torch.isfinite(x).all()), OWNER, "features must be finite")
        object.__setattr__(self, "x", x.double())

    @cached_property
    def mean(self) -> Tensor:
        """The mean row."""
        return self.x.mean(0)

    @cached_property
    def root(self) -> Tensor:
        """A matrix R of at most as many rows as columns with R^T R the covariance (n - 1)."""
        centred = (self.x - self.mean) / (len(self.x) - 1) ** 0.5
        return centred if len(centred) <= centred.shape[1] else torch.linalg.qr(centred, mode="r").R

    @cached_property
    def within(self) -> float:
        """The mean of k over pairs of different rows."""
        own = float(((self.x * self.x).sum(1) / self.x.shape[1] + 1).pow(3).sum())
        return (_total(self.x, self.x) - own) / (len(self.x) * (len(self.x) - 1))


def frechet(a: Tensor | Cloud, b: Tensor | Cloud) -> float:
    """The Frechet distance of the normal distributions with the moments of two samples of features (rows).

    With covariances R_a^T R_a and R_b^T R_b, tr (S_a S_b)^(1/2) is the sum of the singular values of R_a R_b^T: no
    matrix root is taken, and samples fewer than features are no problem.
    """
    one, other = _pair(a, b)
    cross = torch.linalg.svdvals(one.root @ other.root.T).sum()
    spreads = one.root.square().sum() + other.root.square().sum()
    return float(((one.mean - other.mean).square().sum() + spreads - 2 * cross).clamp_min(0))


def kid(a: Tensor | Cloud, b: Tensor | Cloud) -> float:
    """The unbiased squared maximum mean discrepancy of two samples under the cubic kernel."""
    one, other = _pair(a, b)
    across = _total(one.x, other.x) / (len(one.x) * len(other.x))
    return one.within + other.within - 2 * across


def _total(a: Tensor, b: Tensor) -> float:
    """The sum of k over all pairs."""
    parts = a.split(max(1, PAIRS // len(b)))
    return sum(float(((part @ b.T / a.shape[1] + 1) ** 3).sum()) for part in parts)


def _pair(a: Tensor | Cloud, b: Tensor | Cloud) -> tuple[Cloud, Cloud]:
    one, other = (x if isinstance(x, Cloud) else Cloud(x) for x in (a, b))
    sides = one.x.shape[1], other.x.shape[1]
    require(sides[0] == sides[1], OWNER, f"both sets must have the same features, got {sides[0]} and {sides[1]}")
    return one, other


# -- real samples beside -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Real:
    """Real rows to compare with, in the range [low, high]."""

    x: Tensor
    y: Tensor
    low: Bound
    high: Bound
    which: str
    """Which rows they are, in words."""
    observed: bool = False
    """Whether the range was read off training rows, so that other rows may lie outside."""

    def __len__(self) -> int:
        return len(self.y)


def reference(federation: Federation, rows: int = 0) -> Real:
    """The official test rows, or where there are none all clients' test rows; at most `rows` of them (0: all)."""
    inputs = federation.inputs
    if federation.holdout is not None:
        columns, which = federation.holdout, "the official test rows"
    else:
        picked = federation.test.rows
        columns = {name: column[picked] for name, column in federation.columns.items()}
        which = "all clients' test rows"
    if 0 < rows < len(columns["y"]):
        order = rng.permutation(rng.key(0, "reference"), len(columns["y"]))[:rows].sort().values
        columns = {name: column[order] for name, column in columns.items()}
        which = f"{rows} of {which}"
    batch = federation.ready({name: columns[name] for name in ("x", "y")})
    return Real(batch["x"], batch["y"], inputs.low, inputs.high, which, inputs.observed)


def members(federation: Federation) -> Real:
    """All clients' training rows."""
    batch, inputs = federation.batch(federation.train.rows), federation.inputs
    return Real(batch["x"], batch["y"], inputs.low, inputs.high, "all clients' training rows", inputs.observed)


def pick(federation: Federation, spc: int, key: int) -> Real:
    """`spc` real training rows of every class (all of a class that has fewer), ordered by class."""
    rows = federation.train.rows
    rows = rows[rng.permutation(key, len(rows))]
    labels = federation.columns["y"][rows]
    picked = torch.cat([rows[labels == label][:spc] for label in range(federation.classes)])
    batch, inputs = federation.batch(picked), federation.inputs
    which = f"{len(picked)} training rows, {spc} per class"
    return Real(batch["x"], batch["y"], inputs.low, inputs.high, which, inputs.observed)


def real_beside(federation: Federation, made: SyntheticSet) -> SyntheticSet:
    """As many real training rows as a set has, to be looked at beside it."""
    real = pick(federation, made.spc, rng.key(0, "real row"))
    return SyntheticSet(real.x, real.y, real.low, real.high, made.classes, "real rows")


@dataclass(frozen=True)
class Quality:
    """Distances of a synthetic set to real rows, and those of as many real samples (mean and std over draws)."""

    features: str
    distance: str
    """What the Frechet distance may be called with these features: "FID", or "Frechet"."""
    samples: int
    reference: str
    frechet: float
    kid: float
    real_frechet: tuple[float, float]
    real_kid: tuple[float, float]


def quality(made: SyntheticSet, federation: Federation, extract: Extractor, rows: int = 0) -> Quality:
    """Frechet distance and KID of a synthetic set against `reference`, with the same of real samples beside."""
    real = reference(federation, rows)
    same_range(made, real)
    base, own = Cloud(extract.of(real.x)), Cloud(extract.of(made.x))
    pairs = []
    for draw in range(DRAWS):
        some = Cloud(extract.of(pick(federation, made.spc, rng.key(draw, "real row")).x))
        pairs.append((frechet(some, base), kid(some, base)))
    beside = torch.tensor(pairs, dtype=torch.float64)
    real_frechet, real_kid = ((float(values.mean()), float(values.std())) for values in beside.T)
    measured = extract.name, extract.distance, len(made.y), real.which
    return Quality(*measured, frechet(own, base), kid(own, base), real_frechet, real_kid)


def same_range(made: SyntheticSet, real: Real) -> None:
    """Refuse sets of different shapes or in different ranges: their features cannot be compared. Real rows must lie in
    their range where it is declared (bytes, pictures), not where it was read off training rows."""
    shapes = made.shape, tuple(real.x.shape[1:])
    require(shapes[0] == shapes[1], made.owner, f"samples have shape {shapes[0]}, the real rows {shapes[1]}")
    same_ends(made, real.low, real.high)
    if not real.observed:
        check_range("real rows", "x", real.x, real.low, real.high)
