"""The response transform against scipy's distributions and the thesis' printed example."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.cohorts import cohort
from scipy import optimize, stats

from fedchord.check import FedchordError
from fedchord.mixing.online.responses import ESTIMATES, FAMILIES, HUGE, cdf, fit, reported, respond

SCIPY = {
    "weibull": stats.weibull_min(2),
    "frechet": stats.invweibull(1),
    "gumbel": stats.gumbel_r(1),
    "exponential": stats.expon(),
    "logistic": stats.logistic(1),
    "normal": stats.norm(1),
}
PRINTED = {
    "weibull": (0.05, 1.00, 0.19),
    "frechet": (0.01, 0.65, 0.11),
    "gumbel": (0.12, 0.76, 0.18),
    "exponential": (0.21, 0.90, 0.37),
    "logistic": (0.32, 0.79, 0.37),
    "normal": (0.22, 0.90, 0.295),
}
X = torch.tensor([0.0, 1e-9, 0.1, 0.5, 1.0, 1.7, 3.0, 40.0, 1e9, math.inf], dtype=torch.float64)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("name", FAMILIES)
def test_cdfs_match_scipy(name):
    ours = cdf(name, X)
    assert torch.allclose(ours, torch.from_numpy(SCIPY[name].cdf(X.numpy())), atol=1e-14, rtol=1e-12)
    assert (ours.diff() >= 0).all() and ours.isfinite().all() and ours[-1] == 1


@pytest.mark.parametrize("name", FAMILIES)
def test_the_printed_example(name):
    ours = respond(tensor(0.01, 0.10, 0.02), name, 0.0, 1.0)
    assert ours.tolist() == pytest.approx(PRINTED[name], abs=0.005)


@pytest.mark.parametrize("name", FAMILIES)
def test_range_order_and_scale(name):
    generator = torch.Generator().manual_seed(3)
    for _ in range(50):
        losses = torch.rand(7, generator=generator, dtype=torch.float64) ** 3 * 5
        r = respond(losses, name, 0.2, 0.7)
        assert (r >= 0.2).all() and (r <= 0.7).all()
        assert (r[losses.argsort()].diff() >= 0).all()
        assert torch.allclose(r, respond(1000 * losses, name, 0.2, 0.7), atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_guards(name):
    middle = float(cdf(name, tensor(1.0)))
    for losses in (tensor(0, 0, 0), tensor(2, 2, 2), tensor(1e-300, 1e-300, 1e-300), tensor(1e99, 1e99, 1e99)):
        assert respond(losses, name, 0.0, 1.0).tolist() == pytest.approx([middle] * 3)
    spread = respond(tensor(1e100, 1.0, 0.0), name, 0.0, 1.0)
    assert spread.isfinite().all() and spread[0] == spread.max()


@pytest.mark.parametrize("name", FAMILIES)
def test_fitted_parameters_are_found_again(name):
    """The CDF fitted to many draws of a known distribution is near that distribution, by scipy."""
    known = {
        "weibull": stats.weibull_min(1.4, scale=0.8),
        "frechet": stats.invweibull(2.5, scale=0.7),
        "gumbel": stats.gumbel_r(0.8, 0.3),
        "exponential": stats.expon(scale=0.6),
        "logistic": stats.logistic(1.1, 0.2),
        "normal": stats.norm(1.2, 0.4),
    }[name]
    points = torch.from_numpy(known.ppf([(i + 0.5) / 4001 for i in range(4001)]))
    location, scale = fit(name, points.tolist(), "quantile")
    x = torch.from_numpy(known.ppf([0.05, 0.2, 0.5, 0.8, 0.95]))
    assert cdf(name, x, location, scale).tolist() == pytest.approx([0.05, 0.2, 0.5, 0.8, 0.95], abs=1e-3)
    thesis = FAMILIES[name]
    flat = fit(name, [1.0] * 5, "quantile")
    assert flat == (thesis.location, thesis.scale) if thesis.scaled else flat[1] == thesis.scale
    r = respond(tensor(0.3, 0.5, 0.9, 1.5, 7.0), name, 0.0, 1.0, estimate="quantile")
    assert (r.diff() > 0).all() and (r >= 0).all() and (r <= 1).all()


LINES = {
    "weibull": lambda location, scale: stats.weibull_min(1 / scale, scale=np.exp(location)),
    "frechet": lambda location, scale: stats.invweibull(1 / scale, scale=np.exp(location)),
    "gumbel": stats.gumbel_r,
    "exponential": lambda location, scale: stats.expon(scale=np.exp(location)),
    "logistic": stats.logistic,
    "normal": stats.norm,
}
"""The families with a location and a scale of x, or of log x, as scipy has them."""


def unevenness(name: str, location: float, scale: float, x: list[float]) -> float:
    """-sum of log spacings by scipy's distributions; the density (per unit of log x, if need be) at equal numbers."""
    known, points = LINES[name](location, scale), np.sort(x)
    per = points[1:] if name in ("weibull", "frechet", "exponential") else np.ones(len(points) - 1)
    with np.errstate(divide="ignore"):
        ends = known.logcdf(points[0]) + known.logsf(points[-1])
        gaps = np.maximum(np.diff(known.cdf(points)), -np.diff(known.sf(points)))
        inner = np.where(np.diff(points) == 0, known.logpdf(points[1:]) + np.log(per), np.log(gaps))
    return float(-(ends + inner.sum()))


SAMPLES = [
    [0.6, 1.3],
    [0.2, 0.9, 1.0, 1.9],
    [1.0, 1.0, 1.4, 0.3],
    [0.5, 0.5, 0.5, 2.0, 2.0],
    [0.9, 1.1, 1.0, 0.7, 6.0, 0.8, 1.2],
    np.random.default_rng(4).gamma(2.0, size=20).tolist(),
]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("x", SAMPLES, ids=lambda x: str(len(x)))
def test_maximum_spacing_matches_scipy(name, x):
    free = FAMILIES[name].scaled
    location, scale = fit(name, x, "spacing")
    found = optimize.minimize(
        lambda at: unevenness(name, at[0], np.exp(at[1]) if free else 1.0, x),
        [location + 0.2, math.log(scale) - 0.3],
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 400},
    )
    assert unevenness(name, location, scale, x) <= found.fun + 1e-9
    assert location == pytest.approx(found.x[0], abs=1e-4)
    assert scale == pytest.approx(math.exp(found.x[1]) if free else 1.0, abs=1e-4)
    assert unevenness(name, location + 0.01, scale, x) > unevenness(name, location, scale, x), "no other is better"


@pytest.mark.parametrize("name", FAMILIES)
def test_maximum_spacing_by_hand(name):
    """Two numbers divide (0, 1) into thirds; with the exponent given, one number lies at the median."""
    if FAMILIES[name].scaled:
        found = cdf(name, tensor(0.4, 1.7), *fit(name, [1.7, 0.4], "spacing"))
        assert found.tolist() == pytest.approx([1 / 3, 2 / 3], abs=1e-9)
    else:
        assert fit(name, [0.8], "spacing")[0] == pytest.approx(math.log(0.8 / math.log(2)))


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("name", FAMILIES)
def test_odd_numbers_are_fitted_or_left(name, estimate):
    thesis = (FAMILIES[name].location, FAMILIES[name].scale)
    for x in (
        [],
        [math.nan, math.inf],
        *([[1.3]] if FAMILIES[name].scaled else []),
        [2.0] * 5 if FAMILIES[name].scaled else [],
    ):
        assert fit(name, x, estimate) == thesis
    usual = fit(name, [0.5, 0.9, 1.6, 1.0], estimate)
    assert fit(name, [0.5, math.nan, 0.9, 1.6, math.inf, 1.0], estimate) == usual
    if FAMILIES[name].logarithmic:
        assert fit(name, [0.5, 0.0, 0.9, 1.6, -1.0, 1.0], estimate) == usual
    for losses in ((0, 0, 0), (2, 2, 2, 2), (1e100, 1, 0), (1, 1 + 1e-12, 1), (0, 0, 3), (5,), (1e-9, 1e9, 1.0, 2.0)):
        r = respond(tensor(*losses), name, 0.1, 0.9, estimate=estimate)
        assert r.isfinite().all() and (r >= 0.1).all() and (r <= 0.9).all()
        assert (r[tensor(*losses).argsort()].diff() >= 0).all()


def test_an_unknown_estimate_is_refused():
    with pytest.raises(FedchordError, match=r"^fit: estimate must be one of quantile, spacing, got 'moments'$"):
        fit("normal", [1.0, 2.0], "moments")


def test_the_median_is_not_moved_by_one_liar():
    honest, lie = tensor(1.0, 1.1, 0.9, 1.2, 1.0), tensor(1.0, 1.1, 0.9, 1.2, 1e9)
    for centre, moved in (("median", 0.05), ("mean", 0.2)):
        change = (respond(lie, "normal", 0, 1, centre) - respond(honest, "normal", 0, 1, centre))[:4].abs().max()
        assert (change < moved) == (centre == "median")
    assert respond(tensor(0, 0, 0, 6), "exponential", 0, 1, "median")[3] == pytest.approx(1 - math.exp(-4))


def test_reported_losses_are_made_usable():
    usable, log = reported("X", cohort([1.0, math.nan, 3.0, math.inf]))
    assert usable.tolist() == [1.0, 2.0, 3.0, HUGE] and log == {"odd_losses": 2.0}
    assert reported("X", cohort([math.nan, math.nan]))[0].tolist() == [0.0, 0.0]
    assert reported("X", cohort([0.5, 0.0]))[1] == {}
    assert reported("X", cohort([-1.0, 2.0]))[0].tolist() == [-1.0, 2.0]
    with pytest.raises(FedchordError, match=r"^X: losses must be at least 0, got -1 from client 8$"):
        reported("X", cohort([2.0, -1.0], ids=[4, 8]), signed=False)
    with pytest.raises(FedchordError, match=r"^X: losses must be at least 0, got -inf from client 0$"):
        reported("X", cohort([-math.inf, math.nan]), signed=False)
    with pytest.raises(FedchordError, match=r"^X: a client may be in a cohort once, got client 5 twice$"):
        reported("X", cohort([1.0, 2.0, 3.0], ids=[5, 2, 5]))


def test_an_unknown_cdf_lists_the_known():
    with pytest.raises(FedchordError) as error:
        respond(tensor(1, 2), "weibul", 0, 1)
    assert "did you mean 'weibull'?" in str(error.value) and all(name in str(error.value) for name in FAMILIES)
