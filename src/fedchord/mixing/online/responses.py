"""From losses to bounded responses: r_i = C1 + (C2 - C1) CDF(F_i / centre), and the guards on reported losses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedchord import check
from fedchord.core.rules import Cohort
from fedchord.mixing.online.fitting import SHAPES, fit_quantiles, fit_spacings

HUGE = 1e100
"""Stands for an infinite loss: rules then take their limit for one loss far above the others."""
TINY = 1e-12
"""A mean loss at or below it is zero."""
CENTRES = ("mean", "median")
ESTIMATES = ("quantile", "spacing")


@dataclass(frozen=True)
class Family:
    """A family of distributions: CDF(x) = shape((u - location) / scale), where u is x, or log x if `logarithmic`.

    `location` and `scale` are the thesis' constants (section 3.2; departs: E19, they are locations and scales of u).
    """

    shape: str
    logarithmic: bool
    location: float
    scale: float
    scaled: bool = True
    """Whether the scale is free to be fitted (not for Exponential, which is Weibull with exponent and scale 1)."""


FAMILIES: dict[str, Family] = {
    "weibull": Family("smallest", True, 0.0, 0.5),
    "frechet": Family("largest", True, 0.0, 1.0),
    "gumbel": Family("largest", False, 1.0, 1.0),
    "exponential": Family("smallest", True, 0.0, 1.0, scaled=False),
    "logistic": Family("logistic", False, 1.0, 1.0),
    "normal": Family("normal", False, 1.0, 1.0),
}
"""Weibull 1 - exp(-x^2), Frechet exp(-1/x), Gumbel exp(-exp(-(x - 1))), Exponential 1 - exp(-x),
Logistic 1 / (1 + exp(-(x - 1))), Normal Phi(x - 1)."""


def family(owner: str, name: str) -> Family:
    """The family of a name; an unknown name is told with the known ones."""
    if name not in FAMILIES:
        error = check.unknown("cdf", str(name), FAMILIES)
        raise check.fail(owner, str(error))
    return FAMILIES[name]


def fit(name: str, x: list[float], estimate: str) -> tuple[float, float]:
    """Location and scale of a family from numbers x, by quantiles or by maximum spacing (see `fitting`).

    Numbers at or below zero are beyond the support of a logarithmic family and do not count, nor do numbers that are
    not finite. Where there is nothing to fit (all alike, or none), the thesis' constants stay; the exponent of
    Exponential is not fitted.
    """
    kind = family("cdf", name)
    check.one_of("fit", "estimate", estimate, ESTIMATES)
    values = [value for value in x if math.isfinite(value)]
    u = sorted(math.log(value) for value in values if value > TINY) if kind.logarithmic else sorted(values)
    found = (fit_quantiles if estimate == "quantile" else fit_spacings)(kind.shape, u, kind.scaled) if u else None
    return found or (kind.location, kind.scale)


def cdf(name: str, x: Tensor, location: float | None = None, scale: float | None = None) -> Tensor:
    """The CDF of a family at x, with the thesis' constants unless others are given; 0 below the support."""
    return x.new_tensor(_cdf(family("cdf", name), x.flatten().tolist(), location, scale)).reshape(x.shape)


def _cdf(kind: Family, x: list[float], location: float | None = None, scale: float | None = None) -> list[float]:
    location, scale = (kind.location if location is None else location), (kind.scale if scale is None else scale)
    below = SHAPES[kind.shape].below
    if kind.logarithmic:
        return [below((math.log(value) - location) / scale) if value > 0 else 0.0 for value in x]
    return [below((value - location) / scale) for value in x]


def respond(
    losses: Tensor, name: str, low: float, high: float, centre: str = "mean", estimate: str | None = None
) -> Tensor:
    """r_i = low + (high - low) CDF(F_i / centre) over the cohort (thesis, section 3.2).

    The centre is the mean loss, or the median, which no single client can move far. Losses that are all zero have
    the response of the mean, CDF(1); a zero median gives way to the mean. Where an estimate is named, the CDF's
    parameters are fitted to the cohort (`fit`) and are not the thesis' constants.
    """
    return losses.new_tensor(responses(losses.tolist(), name, low, high, centre, estimate))


def responses(
    losses: list[float], name: str, low: float, high: float, centre: str = "mean", estimate: str | None = None
) -> list[float]:
    """`respond` on plain numbers, which for a few clients is quicker."""
    kind, mean = family("cdf", name), sum(losses) / len(losses)
    middle = sorted(losses)[(len(losses) - 1) // 2] if centre == "median" else mean
    middle = mean if middle <= TINY else middle
    x = [loss / middle for loss in losses] if middle > TINY else [1.0] * len(losses)
    location, scale = (None, None) if estimate is None else fit(name, x, estimate)
    return [low + (high - low) * value for value in _cdf(kind, x, location, scale)]


def reported(owner: str, cohort: Cohort, signed: bool = True) -> tuple[Tensor, dict[str, float]]:
    """The losses of a cohort in float64, made usable, and how many had to be changed (for the log).

    A NaN tells nothing and becomes the mean of the others (0 if there are none); plus infinity becomes a huge number.
    A client that is there twice is refused, and so is a loss below zero where the rule has no use for one.
    """
    losses, log = usable(owner, cohort, signed)
    return torch.tensor(losses, dtype=torch.float64), log


def usable(owner: str, cohort: Cohort, signed: bool = True) -> tuple[list[float], dict[str, float]]:
    """`reported` as plain numbers."""
    assert cohort.losses is not None, f"{owner} needs losses"
    distinct(owner, cohort)
    losses: list[float] = cohort.losses.tolist()
    if -math.inf < sum(losses) <= HUGE and max(losses) <= HUGE and (signed or min(losses) >= 0):
        return losses, {}
    known = [min(loss, HUGE) for loss in losses if math.isfinite(loss)]
    worst = min(losses, key=lambda loss: 0.0 if math.isnan(loss) else loss)
    if worst < 0 and not signed:
        client = int(cohort.ids[losses.index(worst)])
        raise check.fail(owner, f"losses must be at least 0, got {worst:g} from client {client}")
    level = sum(known) / len(known) if known else 0.0
    made = [level if math.isnan(loss) else max(-HUGE, min(loss, HUGE)) for loss in losses]
    odd = len(losses) - len(known)
    return made, {"odd_losses": float(odd)} if odd else {}


def distinct(owner: str, cohort: Cohort) -> None:
    """Refuse a cohort in which a client is there twice."""
    ids: list[int] = cohort.ids.tolist()
    if len(set(ids)) < len(ids):
        twice = next(client for at, client in enumerate(ids) if client in ids[:at])
        raise check.fail(owner, f"a client may be in a cohort once, got client {twice} twice")
