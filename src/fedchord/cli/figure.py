"""The command `figure`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedchord.cli.options import Pairs, Scale
from fedchord.cli.printing import aside


def figure(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A figure, or list.")],
    pairs: Pairs = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder of the runs; by default runs/STUDY.")] = None,
    scale: Scale = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="The file: .png, .pdf or .svg; by default OUT/NAME-SCALE.png.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Other rows or columns of its study; may be repeated.")
    ] = None,
) -> None:
    """A figure of the thesis: runs what is missing of its study, then draws; the numbers go to a CSV file beside it.

    fedchord figure list names the figures, what they show and how long they take; KEY=VALUE are run keys of all.

    \b
      fedchord figure list
      fedchord figure lambda
      fedchord figure munu --scale thesis --to munu.pdf
      fedchord figure start seeds=1,2,3 rounds=50
    """
    from fedchord.experiments import progress
    from fedchord.thesis import figures

    if name == "list":
        for title, kind in figures.FIGURES.items():
            typer.echo(f"{title}\n  {kind.about}\n  study {kind.study}; small scale {kind.time} on two cores")
        return
    shown = progress.for_stream(sys.stderr) if sys.stderr.isatty() else progress.Silent()
    say = shown.say if sys.stderr.isatty() else aside
    made = figures.make(name, scale, pairs or (), out, to, only or (), say, shown)
    if not made.files:
        for message, names in made.outcome.failed.items():
            typer.echo(
                f"failed: {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {message}", err=True
            )
        told = figures.again(name, made, pairs or (), out, to, only or ())
        typer.echo(f"{'interrupted' if made.outcome.interrupted else 'not drawn'}; go on with: {told}", err=True)
        raise typer.Exit(130 if made.outcome.interrupted else 1)
    for file in made.files:
        typer.echo(str(file))
