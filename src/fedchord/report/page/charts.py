"""The charts of a report, each a small figure of its own, so that a phone shows them one below another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedchord.check import FedchordError
from fedchord.experiments.reading import rounds as rounds_of
from fedchord.report.cells import SHARES, factor
from fedchord.report.compare import Difference
from fedchord.report.page.look import FAINT, GRID, HEIGHT, INK, SOFT, TEXT, WIDTH, Marks, colour, dashes
from fedchord.report.page.numbers import Swept, clients_of
from fedchord.report.page.problems import Problem, Row
from fedchord.report.plots import Floats, history

LETTERS = 18
"""A longer name is cut in a chart; the key beside it has the whole."""
DOTS = 1200
"""So many clients (and seeds) of a row are dots with names; more are drawn as one picture."""
LINES = 8
"""More lines in one chart cannot be told apart: then each has a chart of its own, over the others in grey."""

Curve = tuple[Row, Floats, Floats]
"""A row, the places on the x axis and the values (seeds, places)."""


def canvas(height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, Axes]:
    """An empty chart: a light grid, two axes."""
    figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(True, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, pad=5)
    return figure, axes


def short(name: str, letters: int = LETTERS) -> str:
    """A name that leaves room for the chart."""
    line = " ".join(name.split())
    return line if len(line) <= letters else f"{line[: letters - 1]}…"


# -- over rounds and bytes -----------------------------------------------------------------------------------------


def histories(problem: Problem, column: str, told: Callable[[str], None]) -> list[Curve]:
    """The rows that were measured in more than one round; what is missing is told."""
    found = []
    for row in problem.rows:
        try:
            rounds, values = history(row.group, problem.metric, column)
        except FedchordError as error:
            told(str(error))
            continue
        if len(rounds) > 1 and np.isfinite(values).any():
            found.append((row, rounds, values))
    return found


def sent(problem: Problem, told: Callable[[str], None]) -> list[Curve]:
    """The mean over the megabytes sent up and down until then, mean over seeds; rows that send nothing are left out."""
    found = []
    for row, rounds, values in histories(problem, "mean", told):
        totals = []
        for run in row.group.runs:
            lines = {line["round"]: line.get("bytes_up", 0) + line.get("bytes_down", 0) for line in rounds_of(run)}
            summed = dict(zip(lines, np.cumsum(list(lines.values())), strict=True))
            totals.append([summed[int(at)] / 1e6 for at in rounds])
        places = np.mean(totals, axis=0)
        if places[-1] > 0:
            found.append((row, places, values))
    return found


def curves(lines: Sequence[Curve], metric: str, xlabel: str, only: Row | None = None) -> Figure:
    """Means over seeds with a band of one std, named at their ends; with `only`, that row above the others in grey."""
    figure, axes = canvas() if only is None else canvas(170, 260)
    ends = []
    for row, x, values in lines:
        mean, picked = values.mean(0), only is None or row is only
        ink = colour(row.place) if picked else FAINT
        width = 1.9 if picked else 0.8
        axes.plot(x, mean, dashes(row.place), color=ink, linewidth=width, zorder=3 if picked else 2)
        if picked and len(values) > 1:
            std = values.std(0, ddof=1)
            axes.fill_between(x, mean - std, mean + std, color=ink, alpha=0.16, linewidth=0)
        if picked:
            ends.append((row, float(x[-1]), float(mean[-1])))
            axes.plot(x[-1:], mean[-1:], "o", color=ink, markersize=4, zorder=4)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=xlabel == "round"))
    value_axis(axes.yaxis, metric)
    _within(axes, metric)
    if only is None:
        name_ends(axes, ends)
    return figure


def value_axis(axis: object, metric: str) -> None:
    """Shares in percent."""
    if metric in SHARES:
        axis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=None, symbol=" %"))  # type: ignore[attr-defined]


def _within(axes: Axes, metric: str) -> None:
    """A band may reach beyond what is possible, the axis not."""
    low, high = axes.get_ylim()
    if metric in SHARES:
        axes.set_ylim(max(low, -0.02), min(high, 1.02))


def name_ends(axes: Axes, ends: Sequence[tuple[Row, float, float]]) -> None:
    """The names of lines at their right ends, moved apart where they would lie on each other."""
    low, high = axes.get_ylim()
    left, right = axes.get_xlim()
    known = [(row, x, (y - low) / (high - low)) for row, x, y in ends if np.isfinite(y)]
    known.sort(key=lambda end: end[2])
    places = apart([y for *_, y in known], 1.25 * TEXT / (HEIGHT - 55))
    for (row, x, y), place in zip(known, places, strict=True):
        start = (x - left) / (right - left)
        axes.plot([start, 1.025], [y, place], color=colour(row.place), linewidth=0.7, alpha=0.6, clip_on=False,
                  transform=axes.transAxes)  # fmt: skip
        axes.text(1.04, place, short(row.label), va="center", fontsize=TEXT - 0.5, color=INK, transform=axes.transAxes,
                  parse_math=False)  # fmt: skip


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved as little as need be, so that two are never nearer than a gap."""
    groups: list[tuple[float, int]] = []
    """Labels that touch: their middle and their number."""
    for place in places:
        groups.append((place, 1))
        while len(groups) > 1:
            (below, m), (above, n) = groups[-2:]
            if above - below >= gap * (m + n) / 2:
                break
            groups[-2:] = [((below * m + above * n) / (m + n), m + n)]
    return [middle + gap * (k - (n - 1) / 2) for middle, n in groups for k in range(n)]


# -- methods -------------------------------------------------------------------------------------------------------


def tradeoff(problem: Problem) -> Figure | None:
    """Mean against worst tenth: a large dot for each row, small ones for its seeds; on the line all
    clients would fare alike. None where there are not two to compare."""
    metric, found = problem.metric, []
    for row in problem.rows:
        pairs = [(run.value(metric, "mean"), run.value(metric, "worst10")) for run in row.group.runs]
        known = np.array([[np.nan if v is None else v for v in pair] for pair in pairs])
        if np.isfinite(known).all():
            found.append((row, known))
    if len(found) < 2:
        return None
    figure, axes = canvas(280)
    for row, points in found:
        if len(points) > 1:
            axes.scatter(points[:, 0], points[:, 1], s=14, color=colour(row.place), alpha=0.35, linewidths=0)
        axes.scatter(points[:, 0].mean(), points[:, 1].mean(), s=60, color=colour(row.place), linewidths=0, zorder=3)
    axes.margins(0.14)
    axes.autoscale_view()
    low, high = axes.get_xlim(), axes.get_ylim()
    axes.axline((0, 0), slope=1, color=FAINT, linewidth=0.8, linestyle=":")
    axes.set_xlim(low)
    axes.set_ylim(high)
    _name_dots(axes, [(row, *points.mean(0)) for row, points in found])
    axes.set_xlabel("mean over clients")
    axes.set_ylabel("worst tenth of clients")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
        value_axis(axis, metric)
    return figure


def _name_dots(axes: Axes, dots: Sequence[tuple[Row, float, float]]) -> None:
    """Names beside dots: to the right, to the left, or a little higher or lower, where no dot or name is in the way."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    wide, tall, line = WIDTH - 70, 280 - 60, 1.2 * TEXT
    places = {row.place: ((x - left) / (right - left) * wide, (y - low) / (high - low) * tall) for row, x, y in dots}
    taken = [(across - 6, across + 6, up) for across, up in places.values()]
    for row, x, y in sorted(dots, key=lambda dot: dot[2]):
        across, up = places[row.place]
        name = short(row.label)
        length = 0.58 * TEXT * len(name)

        def free(begin: float, height: float, length: float = length) -> bool:
            inside = begin > 0 and begin + length < wide + 20
            return inside and not any(abs(height - v) < line and begin < b and a < begin + length for a, b, v in taken)

        tried = [(side, step * line) for step in (0, 0.8, -0.8, 1.6, -1.6, 2.4, -2.4) for side in (9, -9 - length)]
        side, more = next((one for one in tried if free(across + one[0], up + one[1])), tried[0])
        taken.append((across + side, across + side + length, up + more))
        axes.annotate(
            name,
            (x, y),
            (9 if side > 0 else -9, more),
            textcoords="offset points",
            va="center",
            ha="left" if side > 0 else "right",
            fontsize=TEXT - 0.5,
            parse_math=False,
        )


def forest(found: Sequence[tuple[Difference, Row]], metric: str) -> Figure:
    """Differences to the reference with their intervals."""
    times = factor(metric, "mean")
    figure, axes = canvas(56 + 26 * len(found))
    for line, (d, row) in enumerate(found):
        ink = colour(row.place)
        axes.plot([d.low * times, d.high * times], [line, line], color=ink, linewidth=2.2, solid_capstyle="round")
        axes.plot([d.mean * times], [line], "o", color=ink, markersize=6.5)
    axes.axvline(0, color=SOFT, linewidth=0.9)
    axes.set_yticks(range(len(found)), [short(row.label) for _, row in found], parse_math=False, color=INK)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(
        f"{metric} less {short(found[0][0].against)}" + (", points" if times == 100 else ""), parse_math=False
    )
    return figure


# -- clients -------------------------------------------------------------------------------------------------------


def strips(problem: Problem) -> tuple[Figure, Marks] | None:
    """A dot per client (and seed), a strip per row; a bar marks the mean. With what is said about each dot."""
    metric, named = problem.metric, problem.several_seeds
    times, digits = factor(metric, "mean"), 1 if factor(metric, "mean") == 100 else 4
    marks: dict[str, list[tuple[str, str]]] = {}
    lines = []
    for row in problem.rows:
        found = [(run.seed, name, v) for run in row.group.runs for name, v in clients_of(run, metric).items()]
        found = sorted((one for one in found if np.isfinite(one[2])), key=lambda one: one[2])
        if found:
            lines.append((row, found))
    if not lines:
        return None
    figure, axes = canvas(52 + 46 * len(lines), 620)
    span = max(v for _, f in lines for *_, v in f) - min(v for _, f in lines for *_, v in f)
    for line, (row, found) in enumerate(lines):
        values = np.array([v for *_, v in found])
        drawn = axes.scatter(values, line + swarm(values, span), s=17, color=colour(row.place), alpha=0.6, linewidths=0,
                             rasterized=len(found) > DOTS, zorder=3)  # fmt: skip
        if len(found) <= DOTS:
            drawn.set_gid(f"dots-{line}")
            said = [
                (name, f"client {name}{f', seed {s}' if named else ''}: {v * times:.{digits}f}") for s, name, v in found
            ]
            marks[f"dots-{line}"] = said
        axes.plot([values.mean()] * 2, [line - 0.4, line + 0.4], color=INK, linewidth=1.6, zorder=4)
    axes.set_yticks(range(len(lines)), [short(row.label) for row, _ in lines], parse_math=False, color=INK)
    axes.set_ylim(len(lines) - 0.45, -0.55)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"{metric} of each client", parse_math=False)
    value_axis(axes.xaxis, metric)
    return figure, marks


def swarm(values: Floats, span: float) -> Floats:
    """How far each of some sorted values is moved aside, so that equal ones can be seen: piled up around the middle."""
    bins = np.floor(values / span * 60) if span > 0 else np.zeros(len(values))
    moved = np.zeros(len(values))
    for which in np.unique(bins):
        here = np.flatnonzero(bins == which)
        step = min(0.13, 0.8 / len(here))
        moved[here] = step * (np.arange(len(here)) - (len(here) - 1) / 2)
    return moved


# -- lambda --------------------------------------------------------------------------------------------------------


def along(found: Sequence[Swept], start: float) -> tuple[Figure, Axes]:
    """The mean along lambda with a band over seeds, a line and dots at `start`, which the slider moves."""
    figure, axes = canvas()
    ends = []
    for number, one in enumerate(found):
        mean, ink = one.mean.mean(0), colour(one.row.place)
        axes.plot(one.lambdas, mean, dashes(one.row.place), color=ink, linewidth=1.9)
        if len(one.mean) > 1:
            std = one.mean.std(0, ddof=1)
            axes.fill_between(one.lambdas, mean - std, mean + std, color=ink, alpha=0.16, linewidth=0)
        at = min(range(len(one.lambdas)), key=lambda place: abs(one.lambdas[place] - start))
        axes.plot(one.lambdas[at], mean[at], "o", color=ink, markersize=7, zorder=4, gid=f"at-{number}")
        ends.append((one.row, one.lambdas[-1], float(mean[-1])))
    axes.set_xlim(-0.02, 1.02)
    _within(axes, found[0].metric)
    axes.axvline(start, color=SOFT, linewidth=1, gid="cursor")
    axes.set_xlabel("lambda: 0 the global model, 1 the client's own")
    value_axis(axes.yaxis, found[0].metric)
    name_ends(axes, ends)
    return figure, axes
