"""A run as a notebook shows it: where it stands, its newest metrics, and the curve of the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedchord import notebook
from fedchord.evaluation.evaluate import metrics_table
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Metrics = Mapping[str, Mapping[str, Any]]
_INK, _GRID = "#1f4e79", "#d9d9d9"


def page(title: str, state: str, lines: Sequence[Line], summary: Line | None) -> str:
    """A run in HTML."""
    metrics = latest(lines, summary)
    found = [notebook.paragraph(title, strong=True), notebook.paragraph(state)]
    if metrics:
        found.append(metrics_table(metrics))
        points = curve(lines, headline(tuple(metrics)))
        if len(points) > 1:
            name = headline(tuple(metrics))
            found.append(notebook.picture(_drawn(points, name), f"{name} over rounds"))
    return f"<div>{''.join(found)}</div>"


def state(lines: Sequence[Line], summary: Line | None, rounds: int) -> str:
    """How far a run is, in words; nothing where it has no round yet."""
    if summary is not None:
        return "finished"
    return f"round {lines[-1]['round']} of {rounds}" if lines else ""


def latest(lines: Sequence[Line], summary: Line | None) -> Metrics:
    """The newest metrics there are: of the summary, else of the last round that was measured."""
    if summary is not None:
        found: Metrics = summary["metrics"]
        return found
    return next((line["metrics"] for line in reversed(lines) if "metrics" in line), {})


def first(metrics: Metrics) -> str:
    """The mean of the metric to show first, in words; nothing where there is none."""
    if not metrics:
        return ""
    name = headline(tuple(metrics))
    return f"{notebook.one_line(name)} {notebook.value(metrics[name]['mean'])}"


def curve(lines: Sequence[Line], metric: str) -> list[tuple[int, float]]:
    """The mean of a metric over clients by round, where it was measured and is defined."""
    found = [(line["round"], line.get("metrics", {}).get(metric, {}).get("mean")) for line in lines]
    return [(number, mean) for number, mean in found if mean is not None]


def _drawn(points: Sequence[tuple[int, float]], metric: str) -> Figure:
    from matplotlib.figure import Figure  # here, so that importing fedchord does not load matplotlib
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5.0, 2.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*points, strict=True), color=_INK, marker="." if len(points) < 30 else "")
    axes.set_xlabel("round")
    axes.set_ylabel(f"{metric}, mean", parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color=_GRID, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
