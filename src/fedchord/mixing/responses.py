"""From losses to bounded responses: r_i = C1 + (C2 - C1) CDF(F_i / centre), and the guards on reported losses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from fedchord import check
from fedchord.rules import Cohort

HUGE = 1e100
"""Stands for an infinite loss: rules then take their limit for one loss far above the others."""
TINY = 1e-12
"""A mean loss at or below it is zero."""
CENTRES = ("mean", "median")


@dataclass(frozen=True)
class Family:
    """A family of distributions: CDF(x) = shape((u - place) / scale), where u is x, or log x if `logarithmic`.

    `place` and `scale` are the thesis' constants (section 3.2; departs: E19, they are locations and scales of u).
    """

    shape: str
    logarithmic: bool
    place: float
    scale: float
    scaled: bool = True
    """Whether the scale is free to be fitted (not for Exponential, which is Weibull with exponent 1)."""


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


def cdf(name: str, x: Tensor, place: float | None = None, scale: float | None = None) -> Tensor:
    """The CDF of a family at x, with the thesis' constants unless others are given; 0 below the support."""
    kind = family("cdf", name)
    u = x.clamp_min(0).log() if kind.logarithmic else x
    z = (u - (kind.place if place is None else place)) / (kind.scale if scale is None else scale)
    if kind.shape == "smallest":
        return -torch.expm1(-z.exp())
    if kind.shape == "largest":
        return torch.exp(-torch.exp(-z))
    return torch.sigmoid(z) if kind.shape == "logistic" else torch.special.ndtr(z)


def _standard_quantile(shape: str, p: float) -> float:
    """Where the standard distribution of a shape reaches p."""
    if shape == "smallest":
        return math.log(-math.log1p(-p))
    if shape == "largest":
        return -math.log(-math.log(p))
    return math.log(p / (1 - p)) if shape == "logistic" else NormalDist().inv_cdf(p)


def fit(name: str, x: Tensor) -> tuple[float, float]:
    """Place and scale by quantiles: the CDF goes through the quartiles of x (Exponential: the median).

    With u = x or log x and z the standard quantiles: scale = (u_75 - u_25) / (z_75 - z_25), place = u_25 - scale z_25.
    Where the quartiles do not differ there is nothing to fit, and the thesis' constants stay.
    """
    kind = family("cdf", name)
    u = x.clamp_min(TINY).log() if kind.logarithmic else x
    if not kind.scaled:
        return float(u.quantile(0.5)) - _standard_quantile(kind.shape, 0.5) * kind.scale, kind.scale
    (first, third), (a, b) = (
        u.quantile(u.new_tensor([0.25, 0.75])).tolist(),
        (_standard_quantile(kind.shape, p) for p in (0.25, 0.75)),
    )
    if third - first <= 1e-9:
        return kind.place, kind.scale
    scale = (third - first) / (b - a)
    return first - scale * a, scale


def respond(losses: Tensor, name: str, low: float, high: float, centre: str = "mean", fitted: bool = False) -> Tensor:
    """r_i = low + (high - low) CDF(F_i / centre) over the cohort (thesis, section 3.2).

    The centre is the mean loss, or the median, which no single client can move far. Losses that are all zero have
    the response of the mean, CDF(1); a zero median gives way to the mean. `fitted` estimates the CDF's parameters
    from the cohort (`fit`) instead of the thesis' constants.
    """
    middle = losses.median() if centre == "median" else losses.mean()
    middle = losses.mean() if middle <= TINY else middle
    x = losses / middle if middle > TINY else torch.ones_like(losses)
    place, scale = fit(name, x) if fitted else (None, None)
    return low + (high - low) * cdf(name, x, place, scale)


def reported(owner: str, cohort: Cohort, signed: bool = True) -> tuple[Tensor, dict[str, float]]:
    """The losses of a cohort in float64, made usable, and how many had to be changed (for the log).

    A NaN tells nothing and becomes the mean of the others (0 if there are none); plus infinity becomes a huge number.
    A client that is there twice is refused, and so is a loss below zero where the rule has no use for one.
    """
    assert cohort.losses is not None, f"{owner} needs losses"
    losses = cohort.losses.detach().to("cpu", torch.float64)
    distinct(owner, cohort)
    worst = losses.nan_to_num(0.0).argmin()
    check.require(
        signed or bool(losses[worst] >= 0) or bool(losses[worst].isnan()),
        owner,
        f"losses must be at least 0, got {float(losses[worst]):g} from client {int(cohort.ids[worst])}",
    )
    usable = losses.isfinite()
    if usable.all():
        return losses.clamp_max(HUGE), {}
    level = float(losses[usable].clamp_max(HUGE).mean()) if usable.any() else 0.0
    return losses.nan_to_num(level, HUGE, -HUGE).clamp_max(HUGE), {"odd_losses": float((~usable).sum())}


def distinct(owner: str, cohort: Cohort) -> None:
    """Refuse a cohort in which a client is there twice."""
    ids, counts = cohort.ids.unique(return_counts=True)
    check.require(
        bool((counts == 1).all()),
        owner,
        f"a client may be in a cohort once, got client {int(ids[counts.argmax()])} twice",
    )
