"""The figures of chapter 3: who fares how well, the weights over rounds, the CDFs' objectives, regret and bound.

Numbers come from the runs' summaries and rounds.jsonl; each drawing has them as a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.stats import gaussian_kde

from fedchord.check import FedchordError, require
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import Run, rounds
from fedchord.report.plots import COLOURS, STYLES, Floats
from fedchord.thesis import figure_data
from fedchord.thesis.figure_data import Cells
from fedchord.thesis.figure_draw import Drawing, Row, grid_of

HEIGHT = 0.85
"""How high a ridge is, where rows are 1 apart."""


def by_setting(cells: Cells) -> dict[str, dict[str, Sequence[Run]]]:
    """The runs of each setting by method, in the order of the cells."""
    found: dict[str, dict[str, Sequence[Run]]] = {}
    for (method, setting), runs in cells.items():
        found.setdefault(setting, {})[method] = runs
    return found


# -- who fares how well --------------------------------------------------------------------------------------------


def fairness(cells: Cells) -> Drawing:
    """A column per setting and a ridge per method: the density of the clients' values over all seeds, a tick for each;
    a dot at their mean, a triangle at the mean over seeds of the worst client (worst 10 %)."""
    columns = by_setting(cells)
    tall = max(len(rows) for rows in columns.values())
    figure, grid = grid_of(1, len(columns), 3.6, 0.8 + 0.42 * tall)
    rows: list[Row] = []
    metric, first = "", list[str]()
    for axes, (setting, methods) in zip(grid.flat, columns.items(), strict=True):
        for place, (method, runs) in enumerate(methods.items()):
            metric = headline(tuple(runs[0].summary["metrics"]))
            spread = figure_data.spread(method, runs, metric)
            _ridge(axes, -place, spread.values, COLOURS[place % len(COLOURS)])
            worst = [found for run in runs if (found := run.value(metric, "worst10")) is not None]
            axes.plot(float(np.nanmean(spread.values)), -place, "o", color="black", markersize=4.5, zorder=3)
            axes.plot(float(np.mean(worst)), -place, "v", color="black", markersize=5, zorder=3)
            rows += [(setting, method, *pair) for pair in zip(spread.clients, map(float, spread.values), strict=True)]
        names = list(methods)
        told = [""] * len(names) if names == first else names
        first = first or names
        axes.set_yticks([-place for place in range(len(names))], told, fontsize=9)
        axes.set_ylim(-len(methods) + 0.6, 1.05)
        axes.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
        axes.set_title(setting, fontsize=10)
    figure.supxlabel(
        f"{metric} of each client, all seeds (dot: mean; triangle: worst client, mean over seeds)", fontsize=9
    )
    return Drawing(figure, ("setting", "method", "client", metric), rows)


def _ridge(axes: Axes, base: float, values: Floats, colour: str) -> None:
    known = values[~np.isnan(values)]
    axes.plot(known, np.full(len(known), base - 0.06), "|", color=colour, markersize=5, alpha=0.5)
    if len(known) > 2 and float(known.std()) > 1e-9:
        x = np.linspace(max(0.0, float(known.min()) - 0.1), min(1.0, float(known.max()) + 0.1), 200)
        density = gaussian_kde(known)(x)
        y = base + HEIGHT * density / density.max()
        axes.fill_between(x, base, y, color=colour, alpha=0.35, linewidth=0)
        axes.plot(x, y, color=colour, linewidth=1)


# -- over rounds ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Track:
    """A number over rounds: `values` has a row per seed, a column per round."""

    rounds: Floats
    values: Floats

    @property
    def mean(self) -> Floats:
        return np.asarray(self.values.mean(0))


def logged(runs: Sequence[Run], name: str) -> Track:
    """A number of the mixing rule's log over rounds."""
    found = []
    for run in runs:
        values = [(line.get("log") or {}).get(name) for line in rounds(run)]
        if not values or any(value is None for value in values):
            raise FedchordError(f"{run.folder}: its rounds.jsonl has no {name!r}; the method does not log it")
        found.append(values)
    require(len({len(values) for values in found}) == 1, str(runs[0].folder), "its seeds have other numbers of rounds")
    table = np.array(found, dtype=np.float64)
    return Track(np.arange(1, table.shape[1] + 1, dtype=np.float64), table)


def weights_of(runs: Sequence[Run]) -> tuple[list[str], Floats]:
    """The clients' names and their shares, (seeds, rounds, clients); every client must be in every round."""
    names = [str(name) for name in runs[0].summary["per_client"]["client"]]
    tables = []
    for run in runs:
        lines = rounds(run)
        full = all(len(line["cohort"]) == len(names) for line in lines)
        require(full, str(run.folder), "the weights are drawn for runs with every client in every round")
        table = np.full((len(lines), len(names)), math.nan)
        for place, line in enumerate(lines):
            table[place, line["cohort"]] = line["shares"]
        tables.append(table)
    return names, np.stack(tables)


def weights(cells: Cells) -> Drawing:
    """A panel per setting and method: each client's mixing coefficient over rounds, the mean over seeds and a band from
    the lowest to the highest; dotted: 1 / K."""
    figure, grid = grid_of(1, len(cells), 4.6, 3.2)
    rows: list[Row] = []
    for axes, ((method, setting), runs) in zip(grid.flat, cells.items(), strict=True):
        names, table = weights_of(runs)
        at = np.arange(1, table.shape[1] + 1)
        for number, name in enumerate(names):
            look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)]}
            mine = table[:, :, number]
            axes.plot(at, mine.mean(0), linewidth=1.8, label=name, **look)
            if len(runs) > 1:
                axes.fill_between(at, mine.min(0), mine.max(0), alpha=0.12, linewidth=0, **look)
            for seed, values in zip((run.seed for run in runs), mine, strict=True):
                rows += [(setting, method, seed, int(t), name, float(p)) for t, p in zip(at, values, strict=True)]
        axes.axhline(1 / len(names), color="black", linestyle=":", linewidth=1)
        _rounds(axes, "mixing coefficient" if axes is grid.flat[0] else "")
        axes.set_ylim(0, 1.3 * float(np.nanmax(table)))  # room for the legend
        axes.set_title(f"{method}, {setting}" if setting else method, fontsize=10)
        axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2 if len(names) < 9 else 3)
    return Drawing(figure, ("setting", "method", "seed", "round", "client", "weight"), rows)


def objectives(cells: Cells) -> Drawing:
    """A column per setting. Above: sum over rounds of sum_i p_i F_i per CDF, less the mean over the CDFs (the sums
    themselves differ by a few percent); below: average and worst client at the end."""
    columns = by_setting(cells)
    figure, grid = grid_of(2, len(columns), 3.7, 2.9)
    rows: list[Row] = []
    for column, (setting, methods) in enumerate(columns.items()):
        above, below = grid[0, column], grid[1, column]
        tracks = {method: logged(runs, "objective") for method, runs in methods.items()}
        sums = {method: np.cumsum(track.mean) for method, track in tracks.items()}
        middle = np.mean(list(sums.values()), axis=0)
        for place, (method, total) in enumerate(sums.items()):
            runs, colour = methods[method], COLOURS[place % len(COLOURS)]
            style = STYLES[place % 2]
            above.plot(tracks[method].rounds, total - middle, style, color=colour, linewidth=1.6, label=method)
            metric = headline(tuple(runs[0].summary["metrics"]))
            mean, worst = (float(np.mean([run.value(metric, c) for run in runs])) for c in ("mean", "worst10"))
            below.plot(mean, place, "o", color=colour, markersize=6)
            below.plot(worst, place, "v", color=colour, markersize=6)
            below.plot([worst, mean], [place, place], color=colour, linewidth=1)
            rows += [
                (setting, method, int(t), float(value), mean, worst)
                for t, value in zip(tracks[method].rounds, total, strict=True)
            ]
        best = min(sums, key=lambda method: float(sums[method][-1]))
        ends = sorted(float(total[-1]) for total in sums.values())
        above.set_title(f"{setting}\nlowest: {best}, {ends[0]:.2f} (highest {ends[-1]:.2f})", fontsize=9)
        _rounds(above, "cumulative objective less mean of CDFs" if column == 0 else "")
        below.set_yticks(range(len(sums)), list(sums), fontsize=8)
        below.invert_yaxis()
        below.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
        below.set_xlabel(f"{metric} at the end: dot mean, triangle worst client", fontsize=8)
    grid[0, 0].legend(frameon=False, fontsize=8)
    return Drawing(figure, ("setting", "cdf", "round", "cumulative_objective", "mean", "worst10"), rows)


def regrets(cells: Cells) -> Drawing:
    """A panel per setting and method: regret over rounds, a thin line per seed and their mean, and the bound.

    AAggFF-S has beta = K/4 unless `safe`, and the proof of its bound asks for at most 1/2: the figure says so.
    """
    figure, grid = grid_of(1, len(cells), 3.8, 3.1)
    rows: list[Row] = []
    for number, (axes, ((method, setting), runs)) in enumerate(zip(grid.flat, cells.items(), strict=True)):
        regret, bound = logged(runs, "regret"), logged(runs, "bound")
        colour = COLOURS[number % len(COLOURS)]
        for values in regret.values:
            axes.plot(regret.rounds, values, color=colour, linewidth=0.7, alpha=0.5)
        axes.plot(regret.rounds, regret.mean, color=colour, linewidth=2, label=f"regret, {len(runs)} seeds")
        axes.plot(bound.rounds, bound.mean, "--", color="black", linewidth=1.4, label=f"bound{_unproven(runs)}")
        ratio = float(np.max(regret.values / bound.values))
        axes.set_title(f"{method}, {setting}\nat most {ratio:.0%} of the bound" if setting else method, fontsize=9)
        _rounds(axes, "regret in decision losses" if number == 0 else "")
        axes.set_ylim(bottom=min(0.0, float(regret.values.min())))
        axes.legend(frameon=False, fontsize=8, loc="center right")
        for run, mine, limit in zip(runs, regret.values, bound.values, strict=True):
            rows += [
                (setting, method, run.seed, int(t), float(a), float(b))
                for t, a, b in zip(regret.rounds, mine, limit, strict=True)
            ]
    return Drawing(figure, ("setting", "method", "seed", "round", "regret", "bound"), rows)


def _unproven(runs: Sequence[Run]) -> str:
    """What must be said of AAggFF-S' bound: with the thesis' step it is not covered by its proof (erratum E7)."""
    config = runs[0].config
    keys = {key.partition(".")[2]: value for key, value in config.items() if key.startswith(("method.", "mixing."))}
    silo = "aaggff-s" in (config.get("method"), config.get("mixing"))
    return "; beta = K/4, outside its proof" if silo and not keys.get("safe") else ""


def _rounds(axes: Axes, label: str) -> None:
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(label, fontsize=9)
