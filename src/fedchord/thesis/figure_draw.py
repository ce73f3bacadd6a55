"""The figures of chapter 2, drawn from plain data (see `figure_data`), each with the numbers behind it as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedchord.check import require
from fedchord.report.plots import COLOURS, SHADES
from fedchord.thesis.figure_data import Bins, Curve, Link, Panel, Spread, Start
from fedchord.thesis.figure_land import STEP, Land

ORANGE, SKY = COLOURS[4], COLOURS[5]
LEVELS = 14
"""Contours of a loss surface."""

Row = tuple[object, ...]


@dataclass(frozen=True)
class Drawing:
    """A figure and its numbers: the heads of a table and its rows."""

    figure: Figure
    heads: tuple[str, ...]
    rows: list[Row]


def along_lambda(curves: Sequence[Curve]) -> Drawing:
    """A panel per method: the mean over clients along lambda and a band of one std; the best lambda has a ring."""
    figure, grid = grid_of(1, len(curves), 2.9, 3.1, sharey=True)
    for number, (axes, found) in enumerate(zip(grid.flat, curves, strict=True)):
        _curve(axes, found, COLOURS[number % len(COLOURS)])
        lam, value, _ = found.best
        drop = float(np.nanmax(found.mean) - np.nanmin(found.mean))
        told = f"{found.two_models} of {len(found.values)} clients have two models"
        axes.set_title(f"{found.label}\nbest {value:.2%} at {lam:g}, worst {drop:.2%} below\n{told}", fontsize=9)
        axes.set_xlabel("lambda (0: global, 1: private)")
    _percent(grid.flat[0], "top1, mean and std over clients")
    heads = ("method", "lambda", "mean", "std", "clients", "two_models")
    return Drawing(figure, heads, [row for found in curves for row in _curve_rows(found)])


def munu(panels: Sequence[Panel]) -> Drawing:
    """A block of panels per mixing: mu down, nu across; each is the accuracy along lambda and its best mean."""
    mixings = list(dict.fromkeys(panel.mixing for panel in panels))
    mus, nus = sorted({panel.mu for panel in panels}), sorted({panel.nu for panel in panels})
    figure, grid = grid_of(len(mus), len(nus) * len(mixings), 1.45, 1.5, sharey=True, sharex=True)
    for axes in grid.flat:
        axes.set_visible(False)
    rows: list[Row] = []
    for panel in panels:
        block = mixings.index(panel.mixing)
        axes = grid[mus.index(panel.mu), block * len(nus) + nus.index(panel.nu)]
        axes.set_visible(True)
        _bars(axes, panel.curve, (ORANGE, SKY, *COLOURS)[block])
        if panel.mu == mus[0]:
            axes.set_title(f"{panel.mixing}\nnu={panel.nu:g}" if panel.nu == nus[0] else f"nu={panel.nu:g}", fontsize=9)
        rows += [(panel.mixing, panel.mu, panel.nu, *row[1:]) for row in _curve_rows(panel.curve)]
    for row, mu in enumerate(mus):
        grid[row, 0].set_ylabel(f"mu={mu:g}", fontsize=9)
    grid.flat[0].yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    figure.supxlabel("lambda (0: global, 1: private); number: best mean; bars: std over clients", fontsize=9)
    return Drawing(figure, ("mixing", "mu", "nu", "lambda", "mean", "std", "clients", "two_models"), rows)


def starts(points: Sequence[Start]) -> Drawing:
    """Accuracy and loss at their best lambda over the start of mixing L/T, and how many clients trained after it."""
    figure, grid = grid_of(1, 3, 3.4, 3.2)
    accuracy, loss, counts = grid.flat
    for number, mixing in enumerate(dict.fromkeys(point.mixing for point in points)):
        here = sorted((point for point in points if point.mixing == mixing), key=lambda point: point.start)
        x, look = [point.start for point in here], {"color": COLOURS[number], "marker": "o", "capsize": 3, "ms": 4}
        shift = 0.006 * (number if number else -1)  # so that bars do not hide each other
        moved = [at + shift for at in x]
        accuracy.errorbar(
            moved, [point.accuracy for point in here], [point.accuracy_std for point in here], label=mixing, **look
        )
        loss.errorbar(moved, [point.loss for point in here], [point.loss_std for point in here], label=mixing, **look)
        share = [point.two_models / max(1, point.clients) for point in here]
        counts.plot(moved, share, "o-", color=COLOURS[number], markersize=4, label=mixing)
    _percent(accuracy, "top1 at its best lambda (bars: std over clients)")
    loss.set_ylabel("loss at its best lambda (bars: std over clients)", fontsize=9)
    _percent(counts, "clients that trained after the start")
    for axes in grid.flat:
        axes.set_xlabel("start of mixing, L/T")
    accuracy.legend(frameon=False, fontsize=9)
    heads = ("mixing", "start", "accuracy", "accuracy_std", "loss", "loss_std", "two_models", "clients")
    return Drawing(figure, heads, [tuple(getattr(point, head) for head in heads) for point in points])


def _models(axes: Axes, land: Land) -> None:
    """The global model, the clients' models, and the circle within which flatness is measured."""
    names = ("g", *(f"client {client}" for client in land.clients))
    for name, mark in zip(names, ((0.0, 0.0), *land.marks), strict=True):
        axes.plot(*mark, "o", color="#D55E00" if name == "g" else "white", markeredgecolor="black", markersize=6)
        axes.annotate(name, mark, xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8)
    turn = np.linspace(0, 2 * math.pi, 100)
    axes.plot(land.radius * np.cos(turn), land.radius * np.sin(turn), "--", color="black", linewidth=0.8)
    axes.set_xlabel("distance in parameter space", fontsize=8)
    axes.set_aspect("equal")


def landscape(lands: Sequence[Land]) -> Drawing:
    """Surface above, contours below, a column per method; range, height and colours are the same for all.

    The range is set by the farthest model of any method, so that models that lie near each other fall together.
    """
    require(len(lands) > 0, "figure landscape", "needs at least one run")
    figure = Figure(figsize=(0.8 + 3.6 * len(lands), 6.8), layout="constrained")
    logs = [np.log10(np.clip(land.loss, 1e-12, None)) for land in lands]
    low, high = (float(pick([pick(log[np.isfinite(log)]) for log in logs])) for pick in (np.min, np.max))
    levels = np.linspace(low, high if high > low else low + 1, LEVELS)
    for place, (land, log) in enumerate(zip(lands, logs, strict=True)):
        x, y = np.meshgrid(land.x, land.y)
        tall: Any = figure.add_subplot(2, len(lands), place + 1, projection="3d")
        tall.plot_surface(x, y, log, cmap=SHADES, vmin=low, vmax=high, rcount=50, ccount=50, linewidth=0)
        tall.set_zlim(levels[0], levels[-1])
        tall.set_zlabel("log10 loss", fontsize=8)
        tall.tick_params(labelsize=7)
        plane = f"loss +{land.flatness:.3g} on the plane within {land.radius:.3g} of g (circle)"
        around = f"loss +{land.random_rise:.3g} at random, {STEP:g} |g| away (|g| = {land.norm:.3g})"
        tall.set_title(f"{land.label}\n{plane}\n{around}", fontsize=8)
        axes = figure.add_subplot(2, len(lands), len(lands) + place + 1)
        drawn = axes.contourf(x, y, log, levels=levels, cmap=SHADES, extend="both")
        axes.contour(x, y, log, levels=levels, colors="0.3", linewidths=0.4)
        _models(axes, land)
        axes.set_xlabel("distance; the axes of all columns reach the farthest model", fontsize=7)
    figure.colorbar(drawn, ax=figure.axes[-1], label="log10 loss", shrink=0.9)

    def numbers(land: Land) -> Row:
        return land.flatness, land.radius, land.norm, land.random_rise

    heads = ("method", "x", "y", "loss", "flatness", "radius", "norm", "random_rise")
    rows: list[Row] = [
        (land.label, float(x), float(y), float(land.loss[j, i]), *numbers(land))
        for land in lands
        for j, y in enumerate(land.y)
        for i, x in enumerate(land.x)
    ]
    return Drawing(figure, heads, rows)


def clients(spreads: Sequence[Spread]) -> Drawing:
    """How the accuracy spreads over clients: a violin per method, its clients as ticks, the mean as a dot."""
    figure, grid = grid_of(1, 1, 1.2 + 0.62 * len(spreads), 3.8)
    axes = grid.flat[0]
    known = [found.values[~np.isnan(found.values)] for found in spreads]
    for place, values in enumerate(known):
        colour = COLOURS[place % len(COLOURS)]
        if len(values) > 1 and float(values.std()) > 0:
            for body in axes.violinplot([values], [place], widths=0.8, showextrema=False)["bodies"]:
                body.set(facecolor=colour, alpha=0.3)
        axes.plot(np.full(len(values), place), values, "_", color=colour, markersize=6, alpha=0.4)
        if len(values):
            axes.plot(place, values.mean(), "o", color=colour, markeredgecolor="black", markersize=5)
    axes.set_xticks(range(len(spreads)), [found.label for found in spreads], fontsize=9, rotation=40, ha="right")
    _percent(axes, "top1 of each client's deployed model (dot: mean)")
    axes.set_ylim(max(-0.02, axes.get_ylim()[0]), min(1.02, axes.get_ylim()[1]))
    rows: list[Row] = [
        (found.label, name, float(value))
        for found in spreads
        for name, value in zip(found.clients, found.values, strict=True)
    ]
    return Drawing(figure, ("method", "client", "top1"), rows)


def reliability(tables: Sequence[Bins]) -> Drawing:
    """A panel per method: the accuracy of each bin of confidence, its distance to the diagonal, and the errors."""
    wide = min(3, len(tables))
    figure, grid = grid_of(math.ceil(len(tables) / wide), wide, 3.0, 3.1, sharex=True, sharey=True)
    for axes in grid.flat[len(tables) :]:
        axes.set_visible(False)
    rows: list[Row] = []
    for number, (axes, table) in enumerate(zip(grid.flat, tables, strict=False)):
        count, width = len(table.count), 1 / len(table.count)
        middle, used = (np.arange(count) + 0.5) * width, table.count > 0
        look: dict[str, Any] = {"width": 0.92 * width}
        axes.bar(middle[used], table.accuracy[used], color=COLOURS[number % len(COLOURS)], alpha=0.75, **look)
        gap = table.confidence[used] - table.accuracy[used]
        axes.bar(middle[used], gap, bottom=table.accuracy[used], color="none", edgecolor="0.4", hatch="////", **look)
        axes.plot([0, 1], [0, 1], "--", color="black", linewidth=0.9)
        axes.plot(middle, table.count / table.count.sum(), ".-", color="0.35", linewidth=0.8, markersize=3)
        pooled = f"ECE {table.ece:.3f}, MCE {table.mce:.3f} on all rows"
        each = f"mean over clients {table.client_ece:.3f}, {table.client_mce:.3f}"
        axes.set_title(f"{table.label}\n{pooled}\n{each}", fontsize=9)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        errors = (table.ece, table.mce, table.client_ece, table.client_mce)
        parts = zip(table.count, table.accuracy, table.confidence, strict=True)
        rows += [(table.label, (b + 1) * width, *map(float, part), *errors) for b, part in enumerate(parts)]
    figure.supxlabel("confidence", fontsize=10)
    figure.supylabel("bars: accuracy; hatched: gap to confidence; grey line: share of rows", fontsize=9)
    heads = ("method", "bin_end", "rows", "accuracy", "confidence", "ece", "mce", "client_ece", "client_mce")
    return Drawing(figure, heads, rows)


def _ends(axes: Axes, found: Link, colour: str) -> None:
    """Accuracy along lambda over the clients with two models, and over all."""
    whole, trained = found.everyone, found.trained
    _look(axes)
    about = "no client has trained its private model"
    if len(trained.values):
        _curve(axes, trained, colour, f"{len(trained.values)} with two models")
        about = f"barrier {trained.barrier:.2%}, span {np.ptp(trained.mean):.2%}"
    everyone = f"all {len(whole.values)} clients"
    axes.plot(whole.lambdas, whole.mean, "--", color="black", linewidth=1.2, label=everyone)
    axes.set_title(f"{whole.label}\n{about}", fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="lower center")
    axes.set_xlabel("lambda (0: global, 1: private)")


def connectivity(links: Sequence[Link]) -> Drawing:
    """Above: accuracy along lambda over the clients with two models, and over all; below: |cos(f, l)| over rounds."""
    figure = Figure(figsize=(0.8 + 2.9 * len(links), 6.2), layout="constrained")
    parts = figure.add_gridspec(2, len(links), height_ratios=(1.2, 1))
    below = figure.add_subplot(parts[1, :])
    first: Axes | None = None
    rows: list[Row] = []
    for number, found in enumerate(links):
        colour = COLOURS[number % len(COLOURS)]
        axes = first = figure.add_subplot(parts[0, number], sharey=first)
        _ends(axes, found, colour)
        _percent(axes, "top1, mean and std over clients" if number == 0 else "")
        whole = found.everyone
        for who, one in (("two models", found.trained), ("all", whole)):
            rows += [("accuracy", one.label, who, *row[1:4]) for row in _curve_rows(one)]
        if len(found.rounds):
            below.plot(found.rounds, found.cosine, color=colour, label=whole.label, linewidth=1.5)
        rows += [
            ("cosine", whole.label, "cohort", float(at), float(value), math.nan)
            for at, value in zip(found.rounds, found.cosine, strict=True)
        ]
    _look(below)
    if any(len(found.rounds) for found in links):
        below.legend(frameon=False, fontsize=8)
    else:
        below.text(0.5, 0.5, "no cosine in these runs' rounds.jsonl", ha="center", transform=below.transAxes)
    below.set_xlabel("round")
    below.set_ylabel("|cos(f, l)|, mean over the cohort")
    below.set_ylim(bottom=0)
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    return Drawing(figure, ("what", "method", "clients", "lambda_or_round", "mean", "std"), rows)


# -- parts of figures ----------------------------------------------------------------------------------------------


def grid_of(
    tall: int, wide: int, width: float, height: float, sharex: bool = False, sharey: bool = False
) -> tuple[Figure, Any]:
    """A figure with tall x wide panels of that width and height, in inches."""
    figure = Figure(figsize=(0.8 + width * wide, 0.6 + height * tall), layout="constrained")
    grid = figure.subplots(tall, wide, squeeze=False, sharex=sharex, sharey=sharey)
    for axes in grid.flat:
        _look(axes)
    return figure, grid


def _look(axes: Axes) -> None:
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _curve(axes: Axes, found: Curve, colour: str, label: str = "") -> None:
    mean, std = found.mean, found.std
    axes.plot(found.lambdas, mean, color=colour, linewidth=1.8, marker="o", markersize=3.5, label=label or found.label)
    axes.fill_between(
        found.lambdas, np.clip(mean - std, 0, 1), np.clip(mean + std, 0, 1), color=colour, alpha=0.15, linewidth=0
    )
    lam, value, _ = found.best
    axes.plot(lam, value, "o", markersize=9, markerfacecolor="none", markeredgecolor=colour)


def _bars(axes: Axes, found: Curve, colour: str) -> None:
    axes.errorbar(found.lambdas, found.mean, found.std, color=colour, linewidth=1.4, elinewidth=0.6, marker=".")
    axes.text(0.5, 0.06, f"{100 * found.best[1]:.2f}", ha="center", fontsize=8, transform=axes.transAxes)
    axes.tick_params(labelsize=7)


def _curve_rows(found: Curve) -> list[Row]:
    pairs = zip(found.lambdas, found.mean, found.std, strict=True)
    return [(found.label, *map(float, pair), len(found.values), found.two_models) for pair in pairs]


def _percent(axes: Axes, label: str) -> None:
    axes.set_ylabel(label, fontsize=9)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=None))
