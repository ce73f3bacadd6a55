"""What a notebook shows: tables and pictures as HTML, every text escaped. And whether there is a notebook at all."""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 90
"""Dots an inch of pictures: they lie within the notebook's file."""


def shell() -> Any:
    """The shell of the notebook this code runs in; None anywhere else.

    IPython is asked for only where it is loaded, which it is in every notebook: it is no dependency of ours.
    """
    loaded = sys.modules.get("IPython")
    found = None if loaded is None else loaded.get_ipython()
    return found if getattr(found, "kernel", None) is not None else None


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is words and whose others are numbers."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(row: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for tag, text in zip(["th", *["td"] * len(row)], row, strict=False))


def paragraph(text: str, strong: bool = False) -> str:
    """A line of text."""
    return f"<p><strong>{escape(text)}</strong></p>" if strong else f"<p>{escape(text)}</p>"


def folded(title: str, inside: str) -> str:
    """Something that is opened by a click on its title."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def picture(figure: Figure, about: str) -> str:
    """A figure within the page."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=DPI)
    coded = base64.b64encode(written.getvalue()).decode()
    return f'<img alt="{escape(about)}" src="data:image/png;base64,{coded}"/>'


def one_line(text: str) -> str:
    """A name as part of one line, however it is written."""
    return " ".join(text.split())


def counted(number: int, what: str) -> str:
    """A number of things: 1 client, 20 clients, 10 classes."""
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"


def shape(sides: Sequence[int]) -> str:
    """A shape in short: 1x28x28."""
    return "x".join(map(str, sides)) or "one number"


def value(number: float | None) -> str:
    """A measured number, or a dash."""
    return "-" if number is None or number != number else f"{number:.4f}"
