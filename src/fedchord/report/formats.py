"""A table as text: for the terminal, markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from fedchord.check import one_of
from fedchord.report.cells import DAGGER, Table

FORMATS = ("rich", "markdown", "latex", "csv")
TEXTS = FORMATS[1:]
"""Those that are plain text."""


def render(table: Table, form: str) -> str:
    """A table as text in markdown, latex or csv; csv holds no notes (print them elsewhere)."""
    one_of("table", "format", form, TEXTS)
    return {"markdown": _markdown, "latex": _latex, "csv": _csv}[form](table)


def rich_table(table: Table, stacked: bool = False, plain: bool = False) -> RichTable:
    """A table for the terminal. Numbers that stand aside get their own column, or (`stacked`) the line below.

    Where bold cannot be seen (`plain`), the best are marked as in markdown.
    """
    drawn = RichTable(box=box.SIMPLE_HEAD, title=table.title or None, title_justify="left", pad_edge=False)
    for place, head in enumerate(table.heads):
        if not (stacked and head.aside):
            widest = max((len(str(row[place])) for row in table.rows), default=1)
            name = head.aside or textwrap.fill(head.name, max(widest, 6), break_long_words=False)
            drawn.add_column(name, justify="right" if head.numbers else "left", no_wrap=True)
    for row in table.rows:
        cells: list[Text] = []
        for head, cell in zip(table.heads, row, strict=True):
            shown = f"**{cell}**" if cell.best and plain else str(cell)
            text = Text(shown, "bold" if cell.best else "dim" if head.aside else "")
            if stacked and head.aside:
                cells[-1] = Text("\n").join([cells[-1], text])
                cells[0] = Text(f"{row[0]}\n") + Text(f"  {head.aside}", "dim")
            else:
                cells.append(text)
        drawn.add_row(*cells)
    return drawn


def _markdown(table: Table) -> str:
    def line(parts: Iterable[str]) -> str:
        return "| " + " | ".join(part.replace("|", "\\|").replace("\n", " ") for part in parts) + " |"

    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [line(head.name for head in table.heads), line("--:" if head.numbers else ":--" for head in table.heads)]
    lines += [line(f"**{cell}**" if cell.best else str(cell) for cell in row) for row in table.rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]).rstrip() + "\n"


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
}
_LATEX |= {DAGGER: "$^\\dagger$", "<": "$<$", ">": "$>$"}


def _latex(table: Table) -> str:
    def escape(text: str) -> str:
        return "".join(_LATEX.get(char, char) for char in text)

    def line(parts: Iterable[str]) -> str:
        return "  " + " & ".join(parts) + " \\\\"

    spec = "".join("r" if head.numbers else "l" for head in table.heads)
    lines = [f"% {table.title}"] if table.title else []
    lines += ["% needs \\usepackage{booktabs}", f"\\begin{{tabular}}{{{spec}}}", "  \\toprule"]
    lines += [line(escape(head.name) for head in table.heads), "  \\midrule"]
    for row in table.rows:
        lines.append(line(f"\\textbf{{{escape(str(cell))}}}" if cell.best else escape(str(cell)) for cell in row))
    return "\n".join([*lines, "  \\bottomrule", "\\end{tabular}", *(f"% {note}" for note in table.notes)]) + "\n"


def _csv(table: Table) -> str:
    """Numbers as they are, not rounded; a column of numbers is followed by its spread."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [name for head in table.heads for name in ([head.name, f"{head.name} std"] if head.numbers else [head.name])]
    )
    for row in table.rows:
        line: list[str] = []
        for head, cell in zip(table.heads, row, strict=True):
            if head.numbers:
                line += ["" if x is None else f"{x:.10g}" for x in (cell.number, cell.spread)]
            else:
                line.append(str(cell))
        writer.writerow(line)
    return out.getvalue()
