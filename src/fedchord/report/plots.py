"""Figures of runs: curves over rounds, the clients one by one, and the shares of the mixing rule.

Runs that differ only in their seed make one line, with a band of one standard deviation over seeds (n - 1); one seed
has no band. Figures are made without pyplot, so nothing global is changed and no window is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from fedchord.check import FedchordError, fail, one_of, unknown
from fedchord.experiments.columns import COLUMNS
from fedchord.experiments.reading import ROUNDS, SUMMARY, Run, find, read, read_config
from fedchord.experiments.reading import rounds as rounds_of
from fedchord.files import write_figure
from fedchord.metrics import HIGHER_IS_BETTER
from fedchord.report.cells import SHARES
from fedchord.report.rows import Group, group, labels

KINDS = ("curves", "clients", "shares")
SUFFIXES = (".png", ".pdf", ".svg")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A4419")
"""Okabe and Ito's colours, told apart by the colour-blind too; their yellow, too faint for a line, is a brown here."""
STYLES = ("-", "--", ":", "-.")
SHADES = "viridis_r"
PANELS = 12
"""How many panels of shares fit one figure."""

Floats = NDArray[np.float64]
Line = tuple[str, Floats, Floats]
"""A name, the places on the x axis and the values (seeds, places)."""


def plot(
    places: Iterable[str | Path], to: Path, metric: str = "top1", kind: str = "curves", column: str = "mean"
) -> list[str]:
    """Draw runs into a file (png, pdf or svg); returns lines about what was left out or should be known."""
    one_of("plot", "kind", kind, KINDS)
    if column not in COLUMNS:
        raise unknown("column", column, COLUMNS)
    if to.suffix.lower() not in SUFFIXES:
        raise fail("plot", f"the file must end in {', '.join(SUFFIXES)}, got {str(to)!r}")
    runs, notes = _runs(places, finished=kind == "clients")
    groups = group(runs)
    if kind == "curves":
        figure = curves(groups, metric, column, notes)
    elif kind == "clients":
        figure = clients(groups, metric)
    else:
        figure = shares(groups, notes)
    save(figure, to)
    return notes


def save(figure: Figure, to: Path) -> None:
    """Write a figure, with the legends beside it."""
    FigureCanvasAgg(figure)
    legends = [legend for axes in figure.axes if (legend := axes.get_legend()) is not None]
    write_figure(figure, to, dpi=150, bbox_inches="tight", bbox_extra_artists=legends or None)


def curves(
    groups: Sequence[Group], metric: str = "top1", column: str = "mean", notes: list[str] | None = None
) -> Figure:
    """A metric over rounds: the mean over seeds and a band of one standard deviation."""
    notes = [] if notes is None else notes
    lines: list[Line] = []
    for g, name in zip(groups, _names(groups), strict=True):
        rounds, values = history(g, metric, column)
        if len(rounds):
            lines.append((name, rounds, values))
        else:
            notes.append(f"{name}: no round in which all seeds were measured, left out")
    if not lines:
        raise fail("plot", f"no round of these runs was measured with {metric} {column}")
    notes += _left_out(groups)
    if all(len(rounds) == 1 for _, rounds, _ in lines):
        notes.append("each run was measured in one round only; for curves run with eval_every=1 (or 5, 10, ...)")
    figure, axes = canvas()
    for number, (name, rounds, values) in _top_first(lines):
        draw_line(axes, number, name, rounds, values, markers=len(rounds) <= 12)
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    value_axis(axes, metric, f", {column} over clients" if column in ("mean", "std") else f", {column}")
    draw_legend(axes, {len(g.runs) for g in groups})
    return figure


def clients(groups: Sequence[Group], metric: str = "top1") -> Figure:
    """The metric of every client at the end, sorted from worst to best, so that groups of any size can be compared."""
    lines: list[Line] = []
    for g, name in zip(groups, _names(groups), strict=True):
        sets = [_per_client(run, metric) for run in g.runs]
        grid = np.linspace(0.0, 1.0, max(len(values) for values in sets))
        lines.append((name, 100 * grid, np.stack([_quantiles(values, grid) for values in sets])))
    figure, axes = canvas()
    for number, (name, places, values) in _top_first(lines, middle=True):
        draw_line(axes, number, name, places, values, markers=len(places) <= 30)
    axes.set_xlabel("clients, from worst to best")
    axes.xaxis.set_major_formatter(PercentFormatter(decimals=0))
    axes.set_xlim(-1, 101)
    value_axis(axes, metric, " of each client")
    draw_legend(axes, {len(g.runs) for g in groups})
    return figure


def shares(groups: Sequence[Group], notes: list[str] | None = None) -> Figure:
    """How much each client counted in each round: one panel per group (its first seed), white where not drawn."""
    notes = [] if notes is None else notes
    if len(groups) > PANELS:
        notes.append(f"{len(groups)} groups, the first {PANELS} are drawn")
        groups = groups[:PANELS]
    tables = [share_table(g.runs[0]) for g in groups]
    wide = min(3, len(groups))
    tall = math.ceil(len(groups) / wide)
    figure = Figure(figsize=(1.2 + 3.6 * wide, 0.6 + 2.7 * tall), layout="constrained")
    grid = figure.subplots(tall, wide, squeeze=False)
    top = max(float(np.nanmax(table)) for table in tables)
    image: Any = None
    for axes, g, name, table in zip(grid.flat, groups, labels(groups), tables, strict=False):
        image = _share_panel(axes, table, top)
        axes.set_title(f"{name} (seed {g.runs[0].seed})" if len(g.runs) > 1 else name, fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    for axes in grid.flat[len(groups) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel("client")
    for place, axes in enumerate(grid.flat[: len(groups)]):
        if place + wide >= len(groups):
            axes.set_xlabel("round")
    figure.colorbar(image, ax=grid, label="share in the mix", shrink=0.9)
    return figure


def _share_panel(axes: Axes, table: Floats, top: float) -> Any:
    """A picture (clients, rounds); one with more cells than pixels and most of them empty is drawn as marks instead."""
    count, rounds = table.shape
    drawn = ~np.isnan(table)
    edges = (0.5, rounds + 0.5, -0.5, count - 0.5)
    if max(count, rounds) > 200 and drawn.mean() < 0.5:
        client, at = np.nonzero(drawn)
        axes.set_xlim(edges[:2])
        axes.set_ylim(edges[2:])
        values = table[client, at]
        return axes.scatter(at + 1, client, c=values, s=4, marker="s", vmin=0, vmax=top, cmap=SHADES, linewidths=0)
    return axes.imshow(
        table, aspect="auto", origin="lower", extent=edges, vmin=0, vmax=top, cmap=SHADES, interpolation="nearest"
    )


def _runs(places: Iterable[str | Path], finished: bool) -> tuple[list[Run], list[str]]:
    """Runs to draw. Those that are not finished are drawn as far as they went, unless the end is what is drawn."""
    runs, notes = [], []
    for folder in find(places):
        begun = not (folder / SUMMARY).exists() and (folder / ROUNDS).exists()
        try:
            if begun and not finished:
                runs.append(read_config(folder))
                notes.append(f"{folder}: not finished, drawn as far as it went")
            else:
                runs.append(read(folder))
        except FedchordError as error:
            notes.append(str(error))
    if not runs:
        raise FedchordError(f"no run to draw ({notes[0]})" if notes else "no run to draw")
    return runs, notes


def history(g: Group, metric: str, column: str) -> tuple[Floats, Floats]:
    """The rounds in which every seed was measured, and the values (seeds, rounds)."""
    tables: list[dict[int, float]] = []
    for run in g.runs:
        measured = {r["round"]: (r.get("metrics") or {}) for r in rounds_of(run)}
        known = sorted({name for found in measured.values() for name in found})
        if known and metric not in known:
            raise unknown("metric of these runs", metric, known)
        values = {at: found[metric].get(column) for at, found in measured.items() if metric in found}
        tables.append({at: float(value) for at, value in values.items() if value is not None})
    common = sorted(set.intersection(*(set(table) for table in tables)))
    return np.array(common, dtype=np.float64), np.array(
        [[table[at] for at in common] for table in tables], dtype=np.float64
    )


def _left_out(groups: Sequence[Group]) -> list[str]:
    """The rows that were measured on fewer clients on the way than at the end."""
    partly = [any("left_out" in line for run in g.runs for line in rounds_of(run)) for g in groups]
    names = [name for name, some in zip(labels(groups), partly, strict=True) if some]
    return [f"{', '.join(names)}: rounds before the last leave out clients never sampled until then"] if names else []


def _per_client(run: Run, metric: str) -> Floats:
    """The defined values of a run's clients, worst first."""
    found = run.summary.get("per_client", {})
    if metric not in found:
        raise unknown("metric of these runs", metric, [name for name in found if name not in ("client", "size")])
    values = np.array([value for value in found[metric] if value is not None], dtype=np.float64)
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        raise FedchordError(f"{run.folder}: {metric} is undefined for every client")
    return values if metric in HIGHER_IS_BETTER else values[::-1]


def _quantiles(values: Floats, grid: Floats) -> Floats:
    places = np.linspace(0.0, 1.0, len(values)) if len(values) > 1 else np.array([0.0])
    return np.interp(grid, places, values)


def share_table(run: Run) -> Floats:
    """Shares (clients, rounds), NaN where a client was not in the cohort."""
    rounds = rounds_of(run)
    if not rounds:
        raise FedchordError(f"{run.folder}: no round yet")
    count = max(int(run.protocol.get("clients", 0)), 1 + max(max(r["cohort"]) for r in rounds))
    table = np.full((count, rounds[-1]["round"]), np.nan)
    for entry in rounds:
        given = [math.nan if share is None else share for share in entry["shares"]]
        table[entry["cohort"], entry["round"] - 1] = given
    return table


def canvas() -> tuple[Figure, Axes]:
    """An empty figure."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _top_first(lines: Sequence[Line], middle: bool = False) -> list[tuple[int, Line]]:
    """Lines in the order of their last (or middle) value, so that the legend reads as the figure does from the top."""

    def height(line: Line) -> float:
        value = float(line[2].mean(0)[line[2].shape[1] // 2 if middle else -1])
        return -math.inf if math.isnan(value) else value

    return sorted(enumerate(lines), key=lambda item: -height(item[1]))


def draw_line(axes: Axes, number: int, name: str, x: Floats, values: Floats, markers: bool) -> None:
    """A mean line and its band; colours and dashes follow the order of the groups, so they stay when lines come."""
    colour, style = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
    mean = values.mean(0)
    marker = "o" if markers else None
    axes.plot(x, mean, style, color=colour, label=name, linewidth=1.8, marker=marker, markersize=3.5)
    if len(values) > 1:
        std = values.std(0, ddof=1)
        if len(x) == 1:
            axes.errorbar(x, mean, yerr=std, color=colour, capsize=3)
        else:
            axes.fill_between(x, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)


def value_axis(axes: Axes, metric: str, more: str) -> None:
    """The axis of a metric."""
    axes.set_ylabel(metric + more)
    if metric in SHARES:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=None))
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -0.02), min(high, 1.02))  # a band may reach beyond what is possible


def _names(groups: Sequence[Group]) -> list[str]:
    """Labels, with the number of seeds where it differs."""
    same = len({len(g.runs) for g in groups}) == 1
    return [name if same else f"{name} (n={len(g.runs)})" for g, name in zip(groups, labels(groups), strict=True)]


def draw_legend(axes: Axes, counts: set[int]) -> None:
    """Outside, to the right of the lines, which are over so many seeds; its title says what line and band are."""
    number = f"{counts.pop()} seeds" if len(counts) == 1 else "n seeds"
    title = None if number == "1 seeds" else f"mean and std over {number}"
    look: dict[str, Any] = {"frameon": False, "fontsize": 9, "title_fontsize": 9, "alignment": "left"}
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), title=title, **look)
    legend.set_in_layout(False)  # a long name makes the sheet wider, not the axes narrower
