"""How commands print: tables in several formats, lines beside the progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fedchord.report.cells import Table


def aside(line: str) -> None:
    """A line on standard error."""
    typer.echo(line, err=True)


def show(made: Table, form: str = "rich") -> None:
    """Print a table; in csv the notes go to standard error, so that the rest stays csv."""
    from fedchord.report import formats

    if form != "rich":
        typer.echo(formats.render(made, form), nl=False)
        for note in made.notes if form == "csv" else ():
            typer.echo(note, err=True)
        return
    from rich.console import Console

    console, wide = Console(highlight=False), Console(width=10_000)
    drawn = formats.rich_table(made, plain=not console.is_terminal)
    if console.is_terminal and wide.measure(drawn).maximum > console.width:
        drawn = formats.rich_table(made, stacked=True)
    width = max(wide.measure(drawn).maximum, console.width)  # a table wider than the terminal is not cut
    Console(highlight=False, width=width).print(drawn)
    for note in made.notes:
        tell(note, style="dim")


def tell(line: str, style: str = "") -> None:
    """A line on standard output: wrapped between words in a terminal, whole elsewhere."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(line, markup=False, soft_wrap=not console.is_terminal, style=style)
