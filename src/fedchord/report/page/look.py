"""How charts look, and a figure of matplotlib as SVG that belongs to the page: its colours are those of the page's
style, so that they change with dark and light, and its letters are the reader's."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree as Tree

import matplotlib
from matplotlib.figure import Figure

from fedchord.report.plots import COLOURS, STYLES

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
INK, SOFT, GRID, FAINT = "#1d1f25", "#5d6471", "#e2e5e9", "#b9c0ca"
SERIES = tuple("#333333" if colour == "#000000" else colour.lower() for colour in COLOURS)
VARIABLES = {INK: "--ink", SOFT: "--soft", GRID: "--line", FAINT: "--faint"} | {
    colour: f"--s{place}" for place, colour in enumerate(SERIES)
}
"""Colours of charts and what they are called in the style of the page."""
FOREIGN = {"#1f4e79": "--s0", "#d9d9d9": "--line", "#d55e00": "--s1"}
"""The same for figures that are drawn elsewhere."""
TEXT = 10.5
WIDTH, HEIGHT = 400, 250
"""The size of a chart in its own units; on the page it is as wide as there is room."""

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fedchord",
    "figure.dpi": 72,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "axes.unicode_minus": True,
}

Marks = Mapping[str, Sequence[tuple[str, str]]]
"""By the id of a group of dots: the client of each dot, and what is said about it."""


@contextmanager
def looked() -> Iterator[None]:
    """Figures drawn within look like the page."""
    with matplotlib.rc_context(STYLE):
        yield


def colour(place: int) -> str:
    """The colour of a row."""
    return SERIES[place % len(SERIES)]


def dashes(place: int) -> str:
    """The line style of a row; it changes where colours begin anew."""
    return STYLES[place // len(SERIES) % len(STYLES)]


def inline(figure: Figure, name: str, about: str, marks: Marks | None = None) -> str:
    """A figure as SVG within the page, under an id of its own; `about` is told to who cannot see it."""
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = Tree.fromstring(written.getvalue())
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata")]:
            parent.remove(child)
    _mark(root, marks or {})
    used = set(re.findall(r"#([\w.-]+)", " ".join(_links(root)))) | {"cursor"}
    for part in root.iter():
        _clean(part, name, used)
    wide = float(root.attrib["viewBox"].split()[2])
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {"role": "img", "aria-label": about, "class": "chart", "id": name}
    root.attrib["style"] = f"max-width: {1.25 * wide:.0f}px"  # letters are never larger than those of the text
    Tree.register_namespace("", SVG)
    # the page is HTML, where SVG has no namespaces; the text was escaped by the writer of the tree
    return Tree.tostring(root, encoding="unicode").replace(f' xmlns="{SVG}"', "")


def _links(root: Tree.Element) -> list[str]:
    named = (f"{{{LINK}}}href", "clip-path")
    return [value for part in root.iter() for key, value in part.attrib.items() if key in named]


def _mark(root: Tree.Element, marks: Marks) -> None:
    """Give each dot its client, and a title that browsers show."""
    for group in root.iter(f"{{{SVG}}}g"):
        for dot, (client, told) in zip(group.iter(f"{{{SVG}}}use"), marks.get(group.get("id", ""), ()), strict=False):
            dot.set("data-client", client)
            Tree.SubElement(dot, f"{{{SVG}}}title").text = told


def _clean(part: Tree.Element, name: str, used: set[str]) -> None:
    """Ids of the page, colours by name, fewer digits."""
    if "id" in part.attrib:
        kept = part.attrib.pop("id")
        if kept in used or kept.startswith(("dots", "at-")):
            part.set("id", f"{name}-{kept}")
    if link := part.attrib.pop(f"{{{LINK}}}href", ""):
        part.set("href", f"#{name}-{link[1:]}" if link.startswith("#") else link)
    for key, value in part.attrib.items():
        if key == "clip-path":
            part.set(key, value.replace("url(#", f"url(#{name}-"))
        elif key == "style":
            part.set(key, _named(re.sub(r"font-family:[^;]*;?\s*", "", value)))
        elif key in ("d", "x", "y", "transform", "points"):
            part.set(key, re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", value).replace("\n", ""))


def _named(style: str) -> str:
    """A style whose colours are those of the page."""
    known = VARIABLES | FOREIGN
    return re.sub(r"#[0-9a-f]{6}", lambda found: f"var({known[found[0]]})" if found[0] in known else found[0], style)
