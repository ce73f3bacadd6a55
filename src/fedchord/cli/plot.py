"""The command `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedchord.cli.options import Runs


def plot(
    runs: Runs,
    metric: Annotated[str, typer.Option("--metric", help="top1 (the default), loss, ...", show_default=False)] = "top1",
    to: Annotated[
        Path | None, typer.Option("--to", help="The file: .png, .pdf or .svg; by default KIND-METRIC.png.")
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            help="curves over rounds (the default); clients, worst to best; or shares in the mix.",
            show_default=False,
        ),
    ] = "curves",
    column: Annotated[
        str, typer.Option("--column", help="For curves: mean (the default), worst10, gini, ...", show_default=False)
    ] = "mean",
) -> None:
    """Runs as a figure: the mean over seeds with a band of one std; runs that go on are drawn as far as they went.

    \b
      fedchord plot runs/*
      fedchord plot runs --metric loss --to loss.pdf
      fedchord plot runs --kind clients --to clients.png
    """
    from fedchord.report import plots

    file = to or Path("shares.png" if kind == "shares" else f"{kind}-{metric}.png")
    for note in plots.plot(runs, file, metric, kind, column):
        typer.echo(note, err=True)
    typer.echo(str(file))
