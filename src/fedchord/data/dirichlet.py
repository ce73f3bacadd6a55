"""The arithmetic behind the two Dirichlet partitions: drawing shares, filling quotas, levelling sizes.

Everything is done in logarithms, because at a small concentration most shares are below the smallest float: NumPy's
`dirichlet` then returns zeros, or NaN once a class runs out and the rest must be renormalised.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# log(u) / a must stay finite for every u; below this concentration the draw is one-hot in any case.
_SMALLEST = 1e-290


def log_dirichlet(concentration: Floats, draws: int, generator: np.random.Generator) -> Floats:
    """`draws` rows of log q with q ~ Dir(concentration), up to one constant per row; -inf where it is zero.

    q is a normalised vector of Gamma(a) variables, and Gamma(a) = Gamma(a + 1) U^(1/a) in law (Marsaglia and Tsang,
    2000), so log Gamma(a) = log Gamma(a + 1) + log(U) / a, which never underflows.
    """
    some = np.flatnonzero(concentration > 0)
    shape = np.maximum(concentration[some], _SMALLEST)
    logs = np.full((draws, len(concentration)), -np.inf)
    uniform = 1.0 - generator.random((draws, len(some)))
    logs[:, some] = np.log(generator.standard_gamma(shape + 1.0, (draws, len(some)))) + np.log(uniform) / shape
    return logs


def normalise(logs: Floats) -> Floats:
    """Shares that sum to one along the last axis, from their logarithms."""
    shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def fill(logs: Floats, supply: Ints, quotas: Ints, generator: np.random.Generator) -> Ints:
    """How many rows of each class each client gets (clients x classes), drawn without replacement.

    Clients come in random order. A client draws its quota from q_i; what an exhausted class cannot give is drawn again
    from q_i renormalised over the classes that still have rows, which is the same law as drawing row by row. Every
    repeat uses up a class for good, so there are at most K + N draws. The quotas must add up to the supply.
    """
    left = supply.copy()
    held = np.zeros(logs.shape, dtype=np.int64)
    for client in generator.permutation(len(quotas)):
        need = int(quotas[client])
        while need:
            shares = normalise(np.where(left > 0, logs[client], -np.inf))
            drawn = np.minimum(generator.multinomial(need, shares), left)
            held[client] += drawn
            left -= drawn
            need -= int(drawn.sum())
    return held


def cut(shares: Floats, supply: Ints) -> Ints:
    """Whole numbers near shares[c] * supply[c] that add up to supply[c] (classes x clients): rounded partial sums."""
    edges = np.rint(np.cumsum(shares, axis=1) * supply[:, None]).astype(np.int64)
    edges[:, -1] = supply
    return np.diff(edges, axis=1, prepend=0)


def donations(sizes: Ints, total: int) -> Ints:
    """How many rows each client gives if `total` rows are taken one by one, always from the largest client.

    The sizes above some level L come down to it: give_i = max(size_i - L, 0) for the largest L that frees enough rows;
    what that frees too much goes back, one row each, to the first of those clients.
    """
    low, high = 0, int(sizes.max(initial=0))
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= total else (low, level - 1)
    gives = np.maximum(sizes - low, 0)
    gives[np.flatnonzero(gives)[: gives.sum() - total]] -= 1
    return gives


def top_up(owner: Ints, labels: Ints, num_clients: int, minimum: int, generator: np.random.Generator) -> Ints:
    """New owners of the rows, so that every client has at least `minimum` of them.

    The rows are taken from the largest clients (see `donations`), at random among those a client holds, and dealt
    sorted by giver and label, so that a client that receives gets few classes and stays as one-sided as the draw is.
    """
    sizes = np.bincount(owner, minlength=num_clients)
    lacks = np.maximum(minimum - sizes, 0)
    gives = donations(sizes, int(lacks.sum()))
    order = generator.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(len(owner)) - starts[owner[order]]
    given = order[rank < gives[owner[order]]]
    given = given[np.lexsort((labels[given], owner[given]))]
    moved = owner.copy()
    moved[given] = np.repeat(np.arange(num_clients), lacks)
    return moved
