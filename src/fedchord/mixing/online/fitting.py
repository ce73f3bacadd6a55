"""Fitting location and scale of a distribution to a few numbers: by quantiles, or by maximum spacing.

A shape is a standard distribution; CDF(u) = below((u - location) / scale).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

STEPS = 100
FLAT = 1e-9
"""Numbers that differ by less, relative to their size, are alike."""


@dataclass(frozen=True)
class Shape:
    """A standard distribution with a log-concave density: z -> P(Z <= z), log P(Z <= z), log P(Z > z), log density and
    its two derivatives; p -> the z where P(Z <= z) = p."""

    below: Callable[[float], float]
    log_below: Callable[[float], float]
    log_above: Callable[[float], float]
    density: Callable[[float], tuple[float, float, float]]
    quantile: Callable[[float], float]


def _exp(x: float) -> float:
    return math.exp(min(x, 700.0))


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def _largest(z: float) -> tuple[float, float, float]:
    """Of exp(-exp(-z)): log density -z - exp(-z)."""
    tail = _exp(-z)
    return -z - tail, tail - 1, -tail


def _smallest(z: float) -> tuple[float, float, float]:
    """Of 1 - exp(-exp(z)), the mirror image."""
    value, slope, curve = _largest(-z)
    return value, -slope, curve


def _logistic(z: float) -> tuple[float, float, float]:
    """Of s = 1 / (1 + exp(-z)): log density log s + log(1 - s)."""
    s = _sigmoid(z)
    return -abs(z) - 2 * math.log1p(math.exp(-abs(z))), 1 - 2 * s, -2 * s * (1 - s)


def _log_sigmoid(z: float) -> float:
    return min(z, 0.0) - math.log1p(math.exp(-abs(z)))


def _log_not(x: float) -> float:
    """log(1 - exp(-x)) for x > 0."""
    return math.log(-math.expm1(-x)) if x > 1e-300 else math.log(1e-300)


def _log_normal(z: float) -> float:
    """log Phi(z), by its asymptotic series far in the lower tail."""
    if z > -30:
        return math.log(0.5 * math.erfc(-ROOT * z))
    return -0.5 * z * z - math.log(-z) - 0.5 * math.log(2 * math.pi) + math.log1p(-1 / (z * z))


ROOT = math.sqrt(0.5)
SHAPES: dict[str, Shape] = {
    "smallest": Shape(
        lambda z: -math.expm1(-_exp(z)),
        lambda z: _log_not(_exp(z)) if z > -600 else z,
        lambda z: -_exp(z),
        _smallest,
        lambda p: math.log(-math.log1p(-p)),
    ),
    "largest": Shape(
        lambda z: math.exp(-_exp(-z)),
        lambda z: -_exp(-z),
        lambda z: _log_not(_exp(-z)) if z < 600 else -z,
        _largest,
        lambda p: -math.log(-math.log(p)),
    ),
    "logistic": Shape(_sigmoid, _log_sigmoid, lambda z: _log_sigmoid(-z), _logistic, lambda p: math.log(p / (1 - p))),
    "normal": Shape(
        lambda z: 0.5 * math.erfc(-ROOT * z),
        _log_normal,
        lambda z: _log_normal(-z),
        lambda z: (-0.5 * z * z - 0.5 * math.log(2 * math.pi), -z, -1.0),
        NormalDist().inv_cdf,
    ),
}


def fit_quantiles(shape: str, u: list[float], scaled: bool) -> tuple[float, float] | None:
    """Location and scale such that the CDF goes through the quartiles of u (unless `scaled`: with scale 1 the median).

    With z the standard quantiles: scale = (u_75 - u_25) / (z_75 - z_25), location = u_25 - scale z_25. None where the
    quartiles do not differ. `u` is sorted.
    """
    z = SHAPES[shape].quantile
    if not scaled:
        return _between(u, 0.5) - z(0.5), 1.0
    first, third = _between(u, 0.25), _between(u, 0.75)
    if third - first <= FLAT * max(1.0, abs(first), abs(third)):
        return None
    scale = (third - first) / (z(0.75) - z(0.25))
    return first - scale * z(0.25), scale


def _between(u: list[float], share: float) -> float:
    """A sample quantile, linear between the order statistics."""
    at = share * (len(u) - 1)
    low = math.floor(at)
    high = min(low + 1, len(u) - 1)
    return u[low] + (at - low) * (u[high] - u[low])


def fit_spacings(shape: str, u: list[float], scaled: bool) -> tuple[float, float] | None:
    """Location and scale of maximum spacing (Cheng and Amin, 1983; Ranneby, 1984): the CDF divides (0, 1) most evenly.

        max of sum_{i=0..n} log(CDF(u_{i+1}) - CDF(u_i)),   CDF(u_0) = 0, CDF(u_{n+1}) = 1;

    equal numbers have no spacing between them, and the density takes its place. In a = 1 / scale and
    b = location / scale the sum is concave (the densities are log-concave), so Newton's steps, halved until they
    ascend, find the one maximum. Unless `scaled`, the scale stays 1. None where it is free and all numbers are alike:
    it would go to zero. `u` is sorted.
    """
    middle, width = _between(u, 0.5), u[-1] - u[0]
    if scaled and width <= FLAT * max(1.0, abs(middle)):
        return None
    unit = width if scaled else 1.0
    x = [(value - middle) / unit for value in u]
    for at in range(1, len(x)):
        x[at] = x[at - 1] if x[at] - x[at - 1] <= FLAT else x[at]
    location, broad = fit_quantiles(shape, x, scaled) or (0.0, 0.25)
    a = 1 / max(broad, 0.05)  # a start from which no number lies far out in a tail
    b = a * location if scaled else max(location, x[-1] - 3)
    value, slope, curve = _evenness(SHAPES[shape], x, a, b)
    for _ in range(STEPS):
        move = _newton(slope, curve, scaled)
        gain, length = slope[0] * move[0] + slope[1] * move[1], 1.0
        if gain <= 1e-12 * (1 + abs(value)):
            a, b = a + move[0], b + move[1]  # too near for values to tell better from worse
            break
        while length > 1e-12:
            if a + length * move[0] > 0:
                tried = _evenness(SHAPES[shape], x, a + length * move[0], b + length * move[1])
                if tried[0] >= value + 1e-4 * length * gain:
                    break
            length /= 2
        else:
            break
        a, b, (value, slope, curve) = a + length * move[0], b + length * move[1], tried
    return middle + unit * b / a, unit / a


Pair = tuple[float, float]
Curve = tuple[float, float, float]


def _evenness(shape: Shape, x: list[float], a: float, b: float) -> tuple[float, Pair, Curve]:
    """sum log(spacing) at z = a x - b, its gradient and its second derivatives (aa, ab, bb) in (a, b)."""
    value = ga = gb = haa = hab = hbb = 0.0
    for left, right in zip([None, *x], [*x, None], strict=True):
        if left is not None and left == right:
            log, first, second = shape.density(a * left - b)
            value += log + math.log(a)
            ga, gb = ga + first * left + 1 / a, gb - first
            haa, hab, hbb = haa + second * left * left - 1 / (a * a), hab - second * left, hbb + second
            continue
        gap = _gap(shape, left, right, a, b)
        value += gap
        sa = sb = saa = sab = sbb = 0.0
        for end, sign in ((left, -1.0), (right, 1.0)):
            if end is None:
                continue
            log, first, _ = shape.density(a * end - b)
            weight = sign * _exp(log - gap)
            sa, sb = sa + weight * end, sb - weight
            saa, sab = saa + weight * first * end * end, sab - weight * first * end
            sbb += weight * first
        ga, gb = ga + sa, gb + sb
        haa, hab, hbb = haa + saa - sa * sa, hab + sab - sa * sb, hbb + sbb - sb * sb
    return value, (ga, gb), (haa, hab, hbb)


def _gap(shape: Shape, left: float | None, right: float | None, a: float, b: float) -> float:
    """log(CDF(right) - CDF(left)), by the tail in which both are small; so near that it vanishes, density x width."""
    if left is None:
        return shape.log_below(a * right - b)  # type: ignore[operator]
    if right is None:
        return shape.log_above(a * left - b)
    low, high = a * left - b, a * right - b
    if shape.below(low) < 0.5:
        more, less = shape.log_below(high), shape.log_below(low)
    else:
        more, less = shape.log_above(low), shape.log_above(high)
    if more - less > 1e-15:
        return more + _log_not(more - less)
    return shape.density((low + high) / 2)[0] + math.log(max(high - low, 1e-300))


def _newton(slope: Pair, curve: Curve, scaled: bool) -> Pair:
    """The step to the maximum of the quadratic with this gradient and curvature; uphill where it has none."""
    aa, ab, bb = curve
    if not scaled:
        return 0.0, -slope[1] / bb if bb < -1e-300 else slope[1]
    determinant = aa * bb - ab * ab
    if not (aa < 0 and bb < 0 and determinant > 1e-14 * aa * bb):
        return slope
    return (ab * slope[1] - bb * slope[0]) / determinant, (ab * slope[0] - aa * slope[1]) / determinant
