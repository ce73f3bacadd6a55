"""Draws the pictures of docs/concepts.md into docs/drawings, as SVG that is readable on dark and on light pages.

python docs/draw_concepts.py
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, FancyArrowPatch, FancyBboxPatch

FOLDER = Path(__file__).with_name("drawings")
COLOURS = {  # name: light, dark; the first are also what matplotlib is told
    "paper": ("#fffffe", "#11161d"),
    "ink": ("#1b2430", "#e8edf3"),
    "soft": ("#5b6675", "#9fabba"),
    "box": ("#f3f5f8", "#1f2833"),
    "line": ("#9aa7b8", "#55647a"),
    "blue": ("#2f6fb3", "#7fb4ea"),
    "orange": ("#b3541e", "#f2a06b"),
    "green": ("#2d7d54", "#7fcba4"),
    "wrong": ("#c62828", "#ff7b72"),
}
PAPER, INK, SOFT, BOX, LINE, BLUE, ORANGE, GREEN, WRONG = (light for light, _ in COLOURS.values())
CLIENTS = (BLUE, ORANGE, GREEN)
RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedchord",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
}


def canvas(width: float = 9, height: float = 4) -> tuple[Figure, Axes]:
    """A figure whose units are tenths of an inch."""
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 10 * width), ylim=(0, 10 * height))
    axes.axis("off")
    return figure, axes


def box(
    axes: Axes, x: float, y: float, wide: float, tall: float, title: str, words: str = "", edge: str = LINE
) -> None:
    """A box with a title and a few words."""
    axes.add_patch(FancyBboxPatch((x, y), wide, tall, "round,pad=0,rounding_size=1", fc=BOX, ec=edge, lw=1.4))
    middle = y + tall / 2
    axes.text(x + wide / 2, middle + (1.1 if words else 0), title, ha="center", va="center", weight="bold")
    if words:
        axes.text(x + wide / 2, middle - 1.5, words, ha="center", va="center", color=SOFT, size=9.5)


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = INK,
    bend: float = 0,
    dashed: bool = False,
) -> None:
    """An arrow from one place to another."""
    style = f"arc3,rad={bend}"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=13,
            lw=1.6,
            color=colour,
            connectionstyle=style,
            ls="--" if dashed else "-",
        )
    )


def rows_of(axes: Axes, x: float, y: float, heights: tuple[float, ...], colour: str) -> None:
    """A few bars: how often each label occurs."""
    for place, height in enumerate(heights):
        axes.bar(x + 1.1 * place, height, width=0.8, bottom=y, color=colour, align="edge")


def the_round() -> Figure:
    """Broadcast, local rounds, mixing, a step of the server."""
    figure, axes = canvas(9.4, 4.4)
    box(axes, 2, 16, 17, 10, "global model", "server")
    labels = ((4, 1, 1), (1, 4, 2), (2, 1, 4))
    for place, (colour, heights) in enumerate(zip(CLIENTS, labels, strict=True)):
        y = 32 - 13.5 * place
        box(axes, 34, y, 22, 9, "client rule", f"client {place + 1} trains", colour)
        rows_of(axes, 29.6, y + 2.2, heights, colour)
        arrow(axes, (19.4, 21 + 1.5 * (1 - place)), (28.8, y + 4.5), SOFT)
        arrow(axes, (56.4, y + 4.5), (66.6, 25.5 + 1.5 * (1 - place)), colour)
    box(axes, 67, 21, 24, 9, "mixing rule", "how much each counts")
    box(axes, 67, 6, 24, 9, "server rule", "what becomes of the sum")
    arrow(axes, (79, 20.8), (79, 15.2))
    arrow(axes, (67, 9), (10.5, 15.8), INK, -0.32)
    axes.text(17, 34, "1 broadcast", color=SOFT, ha="center")
    axes.text(45, 42.3, "2 local steps on rows that stay there", color=SOFT, ha="center")
    axes.text(63, 38, "3 updates", color=SOFT, ha="center")
    axes.text(80.5, 17.2, "4 weighted sum", color=SOFT)
    axes.text(31, 0.9, "5 the next model", color=SOFT, ha="center")
    return figure


def who_sees_what() -> Figure:
    """What leaves a client, and who sees it."""
    figure, axes = canvas(9.4, 4.2)
    axes.add_patch(FancyBboxPatch((2, 4), 29, 34, "round,pad=0,rounding_size=1", fc="none", ec=BLUE, lw=1.6))
    axes.text(16.5, 35, "a client", ha="center", weight="bold", color=BLUE)
    for y, title, words in (
        (25, "rows", "never leave"),
        (15.5, "private model", "never leaves"),
        (6, "trained copy", "its change leaves"),
    ):
        box(axes, 5, y, 23, 7.5, title, words)
    box(axes, 47, 25, 20, 8, "mixing rule", "sizes, losses")
    box(axes, 47, 5.5, 20, 8, "weighted sum", "of all updates")
    box(axes, 74, 5.5, 18, 8, "server rule", "the sum alone")
    arrow(axes, (31.4, 29), (46.6, 29), ORANGE)
    axes.text(39, 31, "one number:\nthe loss", ha="center", va="bottom", color=ORANGE, size=9.5)
    arrow(axes, (28.4, 9.6), (46.6, 9.6), GREEN)
    axes.text(39, 11, "the update", ha="center", color=GREEN, size=9.5)
    arrow(axes, (57, 24.6), (57, 13.9))
    axes.text(58.2, 19, "weights", va="center", color=SOFT)
    arrow(axes, (67.4, 9.5), (73.6, 9.5))
    arrow(axes, (31.4, 19.2), (43.5, 19.2), WRONG, dashed=True)
    axes.text(44.3, 19.2, "×", color=WRONG, size=17, weight="bold", va="center")
    axes.text(
        80,
        29,
        "no update reaches\nthe mixing rule,\nno single one\nthe server rule",
        ha="center",
        va="center",
        color=SOFT,
        size=9.5,
    )
    return figure


def the_line() -> Figure:
    """Two models, the line between them, and models on it that batches train."""
    figure, axes = canvas(9.4, 3.8)
    for x, y, colour in ((15, 12, BLUE), (62, 24, ORANGE)):
        for scale, alpha in ((3, 0.12), (2, 0.18), (1.1, 0.3)):
            axes.add_patch(Ellipse((x, y), 8.5 * scale, 5.6 * scale, color=colour, alpha=alpha, lw=0))
    axes.plot([15, 62], [12, 24], color=INK, lw=2)
    rng = np.random.default_rng(3)
    for share in np.sort(rng.uniform(0.08, 0.92, 9)):
        axes.plot(15 + 47 * share, 12 + 12 * share, "o", color=GREEN, ms=6)
    axes.plot(15, 12, "o", color=BLUE, ms=12)
    axes.plot(62, 24, "o", color=ORANGE, ms=12)
    axes.text(15, 3.2, "federated model f\ntravels; lambda = 0", ha="center", va="center", color=BLUE)
    axes.text(64, 33.6, "private model l\nnever leaves; lambda = 1", ha="center", va="center", color=ORANGE)
    axes.text(34, 25, "every batch trains one\nmodel on the line", ha="center", color=GREEN)
    arrow(axes, (35, 24.4), (37.2, 18.9), GREEN)
    axes.text(
        81.5,
        13,
        "its one gradient\nserves both ends:\n(1 - lambda) to f,\nlambda to l",
        ha="center",
        va="center",
        color=SOFT,
    )
    return figure


def weights_as_decisions() -> Figure:
    """Losses, responses, and weights that lean towards those who are behind."""
    figure, axes = canvas(9.4, 3.9)
    losses = np.array([0.4, 0.6, 0.5, 1.6, 0.9])
    responses = 1 - np.exp(-((losses / losses.mean()) ** 2))
    tilted = np.exp(2 * (responses - responses.mean()))
    panels = (
        ("losses F", losses / losses.max(), BLUE),
        ("responses r", responses, GREEN),
        ("weights p", tilted / tilted.sum() / 0.45, ORANGE),
    )
    for place, (title, heights, colour) in enumerate(panels):
        left = 5 + 31 * place
        axes.bar(left + 4 * np.arange(5), 17 * heights, width=3, bottom=10, color=colour, align="edge")
        axes.plot([left - 1, left + 20], [10, 10], color=LINE)
        axes.text(left + 9.5, 32, title, ha="center", weight="bold", color=colour)
    equal = 10 + 17 * 0.2 / 0.45
    axes.plot([66, 87], [equal, equal], color=SOFT, ls="--")
    axes.text(87.4, equal, "equal", color=SOFT, va="center", size=9.5)
    arrow(axes, (26, 19), (34, 19))
    axes.text(30, 21, "CDF", ha="center", color=SOFT)
    arrow(axes, (57, 19), (65, 19))
    axes.text(61, 21, "a step", ha="center", color=SOFT)
    arrow(axes, (76, 9), (15, 9), SOFT, -0.12)
    axes.text(
        45.5, 1.2, "the next round: train with these weights, hear new losses, decide again", ha="center", color=SOFT
    )
    return figure


def a_set_that_moves() -> Figure:
    """Samples at the server that move along what clients say of them."""
    figure, axes = canvas(9.4, 4)
    rng = np.random.default_rng(7)
    centres = np.array([(16, 28), (34, 12), (50, 29)])
    for centre, colour, title in zip(centres, CLIENTS, ("client 1", "client 2", "client 3"), strict=True):
        cloud = rng.normal(centre, (3.2, 2.4), (45, 2))
        axes.plot(*cloud.T, "o", color=colour, ms=3.5, alpha=0.55)
        above = 7.2 if centre[1] > 20 else -8.5
        axes.text(centre[0], centre[1] + above, f"{title}: rows stay", ha="center", color=colour, size=9.5)
    starts = np.array([(25, 22), (32, 26), (39, 23), (30, 19), (37, 28), (41, 18)])
    for start, target in zip(starts, centres[[0, 0, 2, 1, 2, 1]], strict=True):
        end = start + 0.62 * (target - start)
        arrow(axes, tuple(start), tuple(end), INK)
        axes.plot(*start, "D", color=SOFT, ms=5)
        axes.plot(*end, "D", color=INK, ms=7)
    axes.plot(67, 33, "D", color=SOFT, ms=5)
    axes.text(69, 33, "synthetic samples at first", va="center", size=9.5)
    axes.plot(67, 29, "D", color=INK, ms=7)
    axes.text(69, 29, "some rounds later", va="center", size=9.5)
    words = ("The server broadcasts the set.", "A client answers with a gradient", "and a weight for every sample.")
    words += ("The server moves each sample", "along their weighted mean.")
    axes.text(66, 15, "\n".join(words), va="center", color=SOFT)
    return figure


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "round": the_round,
    "who": who_sees_what,
    "line": the_line,
    "weights": weights_as_decisions,
    "set": a_set_that_moves,
}


def svg(figure: Figure) -> str:
    """A figure as SVG whose colours follow the page."""
    with mpl.rc_context(RC):
        FigureCanvasSVG(figure)
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None}, facecolor=PAPER)
    text = target.getvalue()
    for name, (light, _) in COLOURS.items():
        text = text.replace(light, f"var(--{name})")
    light, dark = (" ".join(f"--{name}: {pair[place]};" for name, pair in COLOURS.items()) for place in (0, 1))
    style = f"<style>:root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}</style>"
    text = re.sub(r"(<svg [^>]*>)", rf"\1\n {style}", text, count=1)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def drawn(name: str) -> str:
    """One of the drawings as SVG."""
    with mpl.rc_context(RC):
        return svg(DRAWINGS[name]())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in DRAWINGS:
        (FOLDER / f"{one}.svg").write_text(drawn(one), encoding="utf-8")
