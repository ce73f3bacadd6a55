"""Intervals of a number over clients (mean, worst, gap, ...): how far it depends on the seeds or on the test rows.

With f the statistic over the clients of a run, x_s the run of seed s and r_s the reference's, the number is

    d = mean over s of f(x_s) - f(r_s)     (without a reference: of f(x_s)),

and its interval the 2.5 % and 97.5 % quantiles of d over resamples, in which

- seeds: the seeds are drawn with replacement;
- both: the seeds are drawn with replacement, and within each the clients, the same for method and reference;
- samples: the test rows of every client of every run are drawn with replacement within their class, so that AUROC stays
  defined, and the metric is computed anew; method and reference get the same rows. The scores are made from the run's
  last checkpoint and the data.

Seeds say how far to trust the mean for another split and start, rows how coarse the measurement itself is. Test sets
of different seeds share rows of the data, which the draws do not know, and a class of one row is always drawn as it is:
over many seeds, or with few rows of a class, the interval of samples is too short.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import FedchordError, fail, one_of, require
from fedchord.experiments.loaded import Loaded
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import Run
from fedchord.metrics import HIGHER_IS_BETTER, STATISTICS, by_client, over_clients
from fedchord.report import compare, rows
from fedchord.report.cells import LOWER_IS_BETTER, Cell, Head, Table, factor
from fedchord.report.compare import LEVEL, RESAMPLES, TIE
from fedchord.report.plots import Floats
from fedchord.report.rows import Group
from fedchord.report.two_levels import RESAMPLES as TWO_LEVELS
from fedchord.report.two_levels import gain

UNITS = ("seeds", "both", "samples")
BOOTSTRAPS = ("clients", *UNITS)
DRAWS = 2000
"""Resamples of test rows; each is a whole evaluation."""


@dataclass(frozen=True)
class Interval:
    """A statistic of a method, or its difference to the reference, on one federation."""

    group: Group
    label: str
    against: str
    value: float
    low: float
    high: float
    seeds: tuple[object, ...]
    better: int
    equal: int
    worse: int
    """Seeds in which the method is better, equal, worse; zeros without a reference."""
    alone: tuple[object, ...]
    """Seeds that only one of the two has."""


def intervals(
    runs: Iterable[Run],
    against: str | None = None,
    metric: str | None = None,
    statistic: str = "mean",
    over: str = "seeds",
    draws: int = DRAWS,
    level: float = LEVEL,
) -> list[Interval]:
    """The statistic of every group of runs, or its difference to the reference, with its interval."""
    one_of("compare", "bootstrap", over, UNITS)
    one_of("compare", "statistic", statistic, STATISTICS)
    runs = list(runs)
    metric = metric or headline(tuple(runs[0].summary["metrics"]))
    cache: dict[object, Floats] = {}

    def drawn(run: Run) -> Floats:
        """The statistic of a run on `draws` resamples of its test rows."""
        if run.folder not in cache:
            cache[run.folder] = _resampled(run, metric, statistic, draws)
        return cache[run.folder]

    made = []
    for group, label, base, name in compare.lined_up(runs, against):
        pairs, alone = _pairs(group, base)
        d = [_difference(ours, theirs, metric, statistic) for ours, theirs in pairs]
        if over == "seeds":
            low, high = compare.interval(d, level)
        elif over == "both":
            low, high = _two_levels(pairs, metric, statistic, level)
        else:
            parts = [drawn(ours) - (0.0 if theirs is None else drawn(theirs)) for ours, theirs in pairs]
            low, high = np.quantile(np.mean(parts, axis=0), [(1 - level) / 2, (1 + level) / 2])
        counts = _contest(d, metric, statistic) if base is not None else (0, 0, 0)
        seeds = tuple(ours.seed for ours, _ in pairs)
        value = math.fsum(d) / len(d)
        made.append(Interval(group, label, name, value, float(low), float(high), seeds, *counts, alone))
    return made


def _pairs(group: Group, base: Group | None) -> tuple[list[tuple[Run, Run | None]], tuple[object, ...]]:
    """The runs beside the reference's of the same seed (None: no reference), and the seeds that one of them lacks."""
    if base is None:
        return [(run, None) for run in group.runs], ()
    ours, theirs = ({run.seed: run for run in g.runs} for g in (group, base))
    pairs = [(run, theirs[seed]) for seed, run in ours.items() if seed in theirs]
    if not pairs:
        raise fail("compare", f"{group.runs[0].folder} and {base.runs[0].folder} have no seed in common")
    return [*pairs], tuple(seed for seed in dict.fromkeys([*ours, *theirs]) if not (seed in ours and seed in theirs))


def _difference(ours: Run, theirs: Run | None, metric: str, statistic: str) -> float:
    value = _number(ours, metric, statistic)
    return value if theirs is None else value - _number(theirs, metric, statistic)


def _two_levels(
    pairs: Sequence[tuple[Run, Run | None]], metric: str, statistic: str, level: float
) -> tuple[float, float]:
    """The interval of a difference with seeds and clients drawn again."""
    up = metric in HIGHER_IS_BETTER
    runs = [(ours, theirs) for ours, theirs in pairs if theirs is not None]
    require(bool(runs), "compare", "seeds and clients are drawn for differences; it needs --against LABEL_or_RUN")
    ours, theirs = ([compare.values(pair[side], metric, "deployed") for pair in runs] for side in (0, 1))

    def over(values: Floats) -> Floats:
        table = torch.from_numpy(np.atleast_2d(values))
        found: Floats = over_clients(table, statistic, up).numpy()
        return found

    found = gain(ours, theirs, over, level=level)
    return found.low, found.high


def _contest(d: Sequence[float], metric: str, statistic: str) -> tuple[int, int, int]:
    """In how many seeds the method is better, equal, worse."""
    up = metric in HIGHER_IS_BETTER and statistic not in LOWER_IS_BETTER
    gain = [x if up else -x for x in d]
    better, worse = sum(x > TIE for x in gain), sum(x < -TIE for x in gain)
    return better, len(gain) - better - worse, worse


def _number(run: Run, metric: str, statistic: str) -> float:
    value = run.value(metric, statistic)
    if value is None or not math.isfinite(value):
        raise FedchordError(f"{run.folder}: its summary has no {metric} {statistic}")
    return value


# -- test rows -----------------------------------------------------------------------------------------------------


def _resampled(run: Run, metric: str, statistic: str, draws: int) -> Floats:
    """The statistic over clients on resampled test rows; the scores must give the values that the summary has."""
    found = Loaded.of(run.folder)
    written = compare.values(run, metric, "deployed")
    require(len(written) == len(found.clients), str(run.folder), "its data have other clients than its summary")
    columns = []
    for client, value in zip(found.clients, written, strict=True):
        scores, labels = found.scores_of(client)
        now = float(by_client([metric], scores, labels, torch.tensor([0, len(labels)]))[metric])
        same = math.isclose(now, value, abs_tol=1e-6) or (math.isnan(now) and math.isnan(value))
        require(same, str(run.folder), f"client {client} now has {metric} {now:.6g}, its summary {value:.6g}")
        if not math.isnan(now):
            key = rng.key(0, "bootstrap", int(run.seed), client)
            columns.append(resample(metric, scores, labels, draws, key))
    require(bool(columns), str(run.folder), f"{metric} is defined for no client")
    return over_clients(torch.stack(columns, 1), statistic, metric in HIGHER_IS_BETTER).numpy()


def resample(metric: str, scores: Tensor, labels: Tensor, draws: int, key: int) -> Tensor:
    """A metric on `draws` resamples of some rows, drawn with replacement within each class."""
    generator, picked = rng.generator(key), []
    for label in labels.unique(sorted=True):
        rows = (labels == label).nonzero().flatten().numpy()
        picked.append(rows[generator.integers(0, len(rows), (draws, len(rows)))])
    places = torch.from_numpy(np.concatenate(picked, 1)).flatten()
    offsets = torch.arange(draws + 1) * len(labels)
    return by_client([metric], scores[places], labels[places], offsets)[metric]


# -- the table -----------------------------------------------------------------------------------------------------


def tabulate(
    made: Sequence[Interval],
    metric: str | None,
    statistic: str,
    over: str,
    exact: bool = False,
    level: float = LEVEL,
) -> Table:
    """The intervals as a table, accuracies in percent (differences: points); `exact` writes numbers unrounded."""
    metric = metric or headline(tuple(made[0].group.runs[0].summary["metrics"]))
    times = 1 if exact else factor(metric, statistic)
    keys = rows.differing_problems([one.group for one in made])
    paired, several = bool(made[0].against), len({one.against for one in made}) > 1
    sign, digits = "+" if paired else "", 2 if times == 100 else 4

    def text(value: float) -> Cell:
        return Cell(f"{value:.10g}" if exact else f"{value * times:{sign}.{digits}f}")

    body = tuple(
        (
            *(Cell(rows.value(one.group, key)) for key in keys),
            Cell(one.label),
            *([Cell(one.against)] if several else []),
            *(text(value) for value in (one.value, one.low, one.high)),
            *(Cell(str(n)) for n in (one.better, one.equal, one.worse) if paired),
            Cell(str(len(one.seeds))),
        )
        for one in made
    )
    unit = "" if times == 1 else " x100" if statistic == "gini" else " (points)" if paired else " %"
    names = [*keys, "method", *(["against"] if several else [])]
    names += [f"{metric} {statistic}{' difference' if paired else ''}{unit}", "low", "high"]
    names += [*(["better", "equal", "worse"] if paired else []), "seeds"]
    return Table(tuple(Head(name) for name in names), body, tuple(_notes(made, metric, statistic, over, level)))


def _notes(made: Sequence[Interval], metric: str, statistic: str, over: str, level: float) -> list[str]:
    against = " or ".join(dict.fromkeys(one.against for one in made if one.against))
    what = f"{metric} {statistic} over clients, mean over seeds"
    sure = f"low, high: {100 * level:g}% percentile bootstrap over"
    drawn = {
        "seeds": f"{sure} seeds, {RESAMPLES} resamples",
        "both": f"{sure} seeds and, within each, over clients, {TWO_LEVELS} resamples",
        "samples": f"{sure} the test rows of each client, within classes, "
        f"{DRAWS} resamples; seeds are not resampled, and rows that several seeds test count as different ones",
    }
    lines = [f"method less {against}, same seed: {what}" if against else what, drawn[over]]
    lines += ["better, equal, worse: seeds"] if against else []
    for one in made:
        if one.alone:
            lines.append(f"{one.label}: seeds {', '.join(map(str, one.alone))} have no partner and are left out")
    return lines
