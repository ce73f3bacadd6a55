"""Intervals of a number over clients (mean, worst, gap, ...): how far it depends on the seeds or on the test rows.

With f the statistic over the clients of a run, x_s the run of seed s and r_s the reference's, the number is

    d = mean over s of f(x_s) - f(r_s)     (without a reference: of f(x_s)),

and its interval the 2.5 % and 97.5 % quantiles of d over resamples, in which

- seeds: the seeds are drawn with replacement;
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
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import Run
from fedchord.metrics import HIGHER_IS_BETTER, by_client
from fedchord.report import compare, tables
from fedchord.report.compare import LEVEL, RESAMPLES, TIE
from fedchord.report.plots import Floats
from fedchord.report.tables import Cell, Group, Head, Table
from fedchord.thesis.figure_data import Loaded

BOOTSTRAPS = ("clients", "seeds", "samples")
STATISTICS = ("mean", "worst10", "best10", "gini", "gap")
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
) -> list[Interval]:
    """The statistic of every group of runs, or its difference to the reference, with its interval."""
    one_of("compare", "bootstrap", over, BOOTSTRAPS[1:])
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
        theirs = {} if base is None else {run.seed: run for run in base.runs}
        ours = {run.seed: run for run in group.runs}
        seeds = [seed for seed in ours if base is None or seed in theirs]
        if not seeds:
            assert base is not None
            raise fail("compare", f"{group.runs[0].folder} and {base.runs[0].folder} have no seed in common")
        d = [_number(ours[s], metric, statistic) for s in seeds]
        if base is not None:
            d = [x - _number(theirs[s], metric, statistic) for x, s in zip(d, seeds, strict=True)]
        if over == "seeds":
            low, high = compare.interval(d)
        else:
            parts = [drawn(ours[s]) - (drawn(theirs[s]) if base is not None else 0.0) for s in seeds]
            low, high = np.quantile(np.mean(parts, axis=0), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        up = metric in HIGHER_IS_BETTER and statistic not in tables.LOWER_IS_BETTER
        gain = [x if up else -x for x in d] if base is not None else []
        better, worse = sum(x > TIE for x in gain), sum(x < -TIE for x in gain)
        alone = [s for s in (*ours, *theirs) if base is not None and not (s in ours and s in theirs)]
        made.append(
            Interval(
                group,
                label,
                name,
                math.fsum(d) / len(d),
                float(low),
                float(high),
                tuple(seeds),
                better,
                len(gain) - better - worse,
                worse,
                tuple(dict.fromkeys(alone)),
            )
        )
    return made


def _number(run: Run, metric: str, statistic: str) -> float:
    value = run.value(metric, statistic)
    if value is None or not math.isfinite(value):
        raise FedchordError(f"{run.folder}: its summary has no {metric} {statistic}")
    return value


# -- test rows -----------------------------------------------------------------------------------------------------


def _resampled(run: Run, metric: str, statistic: str, draws: int) -> Floats:
    """The statistic over clients on resampled test rows; the scores must give the values that the summary has."""
    found = Loaded.of(run.folder)
    told = compare.values(run, metric, "deployed")
    require(len(told) == len(found.clients), str(run.folder), "its data have other clients than its summary")
    columns = []
    for client, value in zip(found.clients, told, strict=True):
        scores, labels = found.scores_of(client)
        now = float(by_client([metric], scores, labels, torch.tensor([0, len(labels)]))[metric])
        same = math.isclose(now, value, abs_tol=1e-6) or (math.isnan(now) and math.isnan(value))
        require(same, str(run.folder), f"client {client} now has {metric} {now:.6g}, its summary {value:.6g}")
        if not math.isnan(now):
            key = rng.key(0, "bootstrap", int(run.seed), client)
            columns.append(resample(metric, scores, labels, draws, key))
    require(bool(columns), str(run.folder), f"{metric} is defined for no client")
    return over_clients(np.stack(columns, 1), statistic, metric in HIGHER_IS_BETTER)


def resample(metric: str, scores: Tensor, labels: Tensor, draws: int, key: int) -> Floats:
    """A metric on `draws` resamples of some rows, drawn with replacement within each class."""
    generator, picked = rng.generator(key), []
    for label in labels.unique(sorted=True):
        rows = (labels == label).nonzero().flatten().numpy()
        picked.append(rows[generator.integers(0, len(rows), (draws, len(rows)))])
    places = torch.from_numpy(np.concatenate(picked, 1)).flatten()
    offsets = torch.arange(draws + 1) * len(labels)
    return by_client([metric], scores[places], labels[places], offsets)[metric].numpy()


def over_clients(values: Floats, statistic: str, higher_is_better: bool = True) -> Floats:
    """A statistic over clients (columns) for every row, as `metrics.summarise` has it."""
    ordered = np.sort(values, 1)
    count, few = values.shape[1], max(1, values.shape[1] // 10)
    if statistic == "mean":
        return np.asarray(values.mean(1))
    if statistic == "gini":
        ranks = 2 * np.arange(1, count + 1) - count - 1
        total = ordered.sum(1)
        return np.where(total > 0, (ordered * ranks).sum(1) / (count * np.where(total > 0, total, 1)), 0.0)
    low, high = ordered[:, :few].mean(1), ordered[:, -few:].mean(1)
    if statistic == "gap":
        return np.asarray(high - low)
    return np.asarray(low if (statistic == "worst10") == higher_is_better else high)


# -- the table -----------------------------------------------------------------------------------------------------


def tabulate(made: Sequence[Interval], metric: str | None, statistic: str, over: str, exact: bool = False) -> Table:
    """The intervals as a table, accuracies in percent (differences: points); `exact` writes numbers unrounded."""
    metric = metric or headline(tuple(made[0].group.runs[0].summary["metrics"]))
    times = 1 if exact else tables.factor(metric, statistic)
    keys = [key for key in tables.differing([one.group for one in made]) if compare.is_problem(key)]
    paired, several = bool(made[0].against), len({one.against for one in made}) > 1
    sign, digits = "+" if paired else "", 2 if times == 100 else 4

    def text(value: float) -> Cell:
        return Cell(f"{value:.10g}" if exact else f"{value * times:{sign}.{digits}f}")

    rows = tuple(
        (
            *(Cell(tables.word(one.group.config.get(key))) for key in keys),
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
    return Table(tuple(Head(name) for name in names), rows, tuple(_notes(made, metric, statistic, over)))


def _notes(made: Sequence[Interval], metric: str, statistic: str, over: str) -> list[str]:
    against = " or ".join(dict.fromkeys(one.against for one in made if one.against))
    what = f"{metric} {statistic} over clients, mean over seeds"
    drawn = {
        "seeds": f"low, high: {LEVEL:.0%} percentile bootstrap over seeds, {RESAMPLES} resamples",
        "samples": f"low, high: {LEVEL:.0%} percentile bootstrap over the test rows of each client, within classes, "
        f"{DRAWS} resamples; seeds are not resampled, and rows that several seeds test count as different ones",
    }
    lines = [f"method less {against}, same seed: {what}" if against else what, drawn[over]]
    lines += ["better, equal, worse: seeds"] if against else []
    for one in made:
        if one.alone:
            lines.append(f"{one.label}: seeds {', '.join(map(str, one.alone))} have no partner and are left out")
    return lines
