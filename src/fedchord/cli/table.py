"""The command `table`."""

from __future__ import annotations

from typing import Annotated

import typer

from fedchord.cli.options import Format, Runs
from fedchord.cli.printing import show


def table(
    runs: Runs,
    metric: Annotated[list[str] | None, typer.Option("--metric", help="top1, loss, ...; may be repeated.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="mean, worst10, best10, gini, gap, pooled, std, ...; may be repeated."),
    ] = None,
    form: Format = "rich",
    scale: Annotated[
        str,
        typer.Option(
            "--scale", help="percent (the default): accuracies and Gini x100; raw: as they are.", show_default=False
        ),
    ] = "percent",
    spread: Annotated[
        str,
        typer.Option("--spread", help="The std in brackets: over seeds (the default) or clients.", show_default=False),
    ] = "seeds",
) -> None:
    """Finished runs as one table: a row for runs that differ only in their seed, mean (std over seeds), best in bold.

    RUN is a run folder, a pattern, or a folder of run folders. The notes below the table repeat the protocol.

    \b
      fedchord table runs/*
      fedchord table runs --metric top1 --metric loss --column mean --column worst10
      fedchord table 'runs/mnist-*' --format latex > table.tex
    """
    from fedchord.check import one_of
    from fedchord.experiments.reading import read_all
    from fedchord.report import tables
    from fedchord.report.formats import FORMATS

    one_of("table", "format", form, FORMATS)
    found, problems = read_all(runs)
    made = tables.tabulate(found, metric or (), column or (), scale, spread)
    for problem in problems:
        typer.echo(problem, err=True)
    show(made, form)
