"""What a run costs: epsilon after so many steps, and the noise for an epsilon, by the library dp-accounting.

Noise is told as a multiple z of the clipping norm. Three ways to draw who takes part in a step, and what is assumed:

- "all": everyone in every step. Neighbours differ in one replaced member, whose clipped part of the sum moves by up to
  twice the norm: the Gaussian mechanism of sensitivity 2, exactly (Balle and Wang, 2018).
- "fixed": m of n, uniformly without replacement, anew in every step. The same neighbours, the same sensitivity, and the
  Renyi bound for sampling without replacement (Wang, Balle and Kasiviswanathan, 2019, theorem 27), or the cost of "all"
  where that is less: sampling never harms.
- "poisson": everyone with probability q, independently. Neighbours differ in one added or removed member, the
  sensitivity is 1, and the Renyi divergence is that of the sampled Gaussian mechanism (Mironov et al., 2019).

Sampling lowers the cost only against those who cannot know who was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, final

from fedchord import check
from fedchord.privacy.gaussian import spent

ORDERS = (*range(2, 33), 40, 48, 64, 96)
"""The orders of Renyi divergences that are looked at; fewer would only be more cautious."""
MOST_NOISE = 1e6
ALL, FIXED, POISSON = "all", "fixed", "poisson"
WORDS = {
    ALL: "every client in every round; neighbours: one client replaced by another; exact for the Gaussian mechanism",
    FIXED: "cohorts of fixed size, drawn without replacement and kept secret; neighbours: one client replaced by "
    "another; Renyi bound of Wang et al. (2019), theorem 27",
    POISSON: "Poisson sampling, kept secret; neighbours: one added or removed; Renyi divergence of the sampled "
    "Gaussian mechanism (Mironov et al., 2019)",
}


def library() -> Any:
    """dp-accounting, which is an extra."""
    found = find_spec("dp_accounting") is not None
    check.require(found, "privacy", "needs the library dp-accounting: pip install 'fedchord[privacy]'")
    import dp_accounting
    import dp_accounting.rdp

    return dp_accounting


@final
@dataclass(frozen=True)
class Draw:
    """How members are drawn for a step: `size` of `of` (on average, under Poisson sampling)."""

    way: str
    size: float
    of: int

    def __post_init__(self) -> None:
        check.one_of("privacy", "sampling", self.way, WORDS)
        good = 0 < self.size <= self.of
        check.require(good, "privacy", f"a step needs between 0 and {self.of} members, got {self.size:g}")

    @property
    def plain(self) -> bool:
        """Whether everyone is in every step."""
        return self.way == ALL or self.size == self.of

    @property
    def sensitivity(self) -> float:
        """By how many clipping norms a sum may move."""
        return 1.0 if self.way == POISSON else 2.0


@lru_cache(maxsize=256)
def _renyi(draw: Draw, noise: float) -> tuple[float, ...]:
    """The Renyi divergences of one step, by order."""
    dp = library()
    gauss = dp.GaussianDpEvent(noise / draw.sensitivity)
    if draw.way == POISSON:
        event, relation = dp.PoissonSampledDpEvent(draw.size / draw.of, gauss), "ADD_OR_REMOVE_ONE"
    else:
        event = dp.SampledWithoutReplacementDpEvent(draw.of, int(draw.size), gauss)
        relation = "REPLACE_ONE"
    accountant = dp.rdp.RdpAccountant(list(ORDERS), getattr(dp.NeighboringRelation, relation))
    accountant.compose(event)
    return tuple(accountant._rdp)  # the library sums it up step by step; a test holds it against its own sums


@lru_cache(maxsize=4096)
def epsilon(draw: Draw, noise: float, steps: int, delta: float) -> float:
    """The epsilon of so many steps at delta; infinite without noise."""
    if not steps:
        return 0.0
    if not noise:
        return math.inf
    exact = spent(noise / draw.sensitivity, steps, delta)
    if draw.plain:
        return exact
    costs = [steps * cost for cost in _renyi(draw, noise)]
    found = library().rdp.compute_epsilon(list(ORDERS), costs, delta)[0]
    return min(float(found), exact)


@lru_cache(maxsize=64)
def noise_for(draw: Draw, steps: int, wanted: float, delta: float) -> float:
    """The least noise, to a few parts in a thousand, whose epsilon is at most the one wanted."""
    return least(lambda noise: epsilon(draw, noise, steps, delta), wanted)


def least(cost: Callable[[float], float], wanted: float) -> float:
    """The least noise, to a few parts in a thousand, whose cost is at most the one wanted; cost falls with noise."""
    from scipy.optimize import brentq  # here, since most runs hide nothing and need not wait for scipy

    def excess(size: float) -> float:
        return math.log(cost(math.exp(size)) / wanted)

    step = math.log(4)
    low = high = 0.0
    if excess(0.0) > 0:
        while excess(high) > 0:
            low, high = high, high + step
            reached = high < math.log(MOST_NOISE)
            check.require(reached, "privacy", f"no noise gives an epsilon of {wanted:g}; ask for more")
    else:
        while excess(low) <= 0:
            low, high = low - step, low
    noise = math.exp(brentq(excess, low, high, xtol=1e-3))
    while cost(noise) > wanted:
        noise *= 1.001
    return noise


@final
@dataclass(frozen=True)
class Spending:
    """The course of a budget: `steps` steps with the noise that is given, or with the least for an epsilon."""

    draw: Draw
    steps: int
    delta: float
    given: float | None = None
    wanted: float | None = None

    @cached_property
    def noise(self) -> float:
        """The noise, as a multiple of the clipping norm; found when it is first asked for."""
        if self.given is not None:
            return self.given
        assert self.wanted is not None
        return noise_for(self.draw, self.steps, self.wanted, self.delta)

    def after(self, steps: int) -> float:
        """Epsilon so far."""
        return epsilon(self.draw, self.noise, steps, self.delta)
