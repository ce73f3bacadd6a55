"""The Gaussian mechanism, exactly: what so many releases with noise cost."""

from __future__ import annotations

import math

from fedchord import check


def _below(z: float) -> float:
    """P(Z <= z) of a standard normal Z, precise where it is tiny."""
    return math.erfc(-z / math.sqrt(2)) / 2


def spent(noise: float, reports: int, delta: float) -> float:
    """The least epsilon for which this many reports in [0, 1], each with N(0, noise^2) added, are (epsilon, delta)-DP.

    With mu = sqrt(reports) / noise it solves delta = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu)
    (Balle and Wang, 2018), which is exact; Gaussian mechanisms compose to one of this mu even if each depends on what
    the former ones gave (Dong et al., 2022).
    """
    check.positive("spent", "noise", noise)
    check.whole("spent", "reports", reports)
    check.require(0 < delta < 1, "spent", f"delta must be above 0 and below 1, got {delta!r}")
    if not reports:
        return 0.0
    mu = math.sqrt(reports) / noise
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # concentrated privacy gives no less
    while high - low > 1e-9 * (1 + high):
        middle = (low + high) / 2
        far = _below(-mu / 2 - middle / mu)
        excess = _below(mu / 2 - middle / mu) - (math.exp(middle + math.log(far)) if far > 0 else 0.0)
        low, high = (middle, high) if excess > delta else (low, middle)
    return high
