"""The command `compare`."""

from __future__ import annotations

from typing import Annotated

import typer

from fedchord.cli.options import Format, Runs
from fedchord.cli.printing import show


def compare(
    runs: Runs,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="LABEL_or_RUN",
            help="The reference: a method, a label or a run folder. Without one: the methods' own numbers "
            "(with --bootstrap seeds or samples).",
        ),
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="top1, loss, ...; by default the headline.")] = None,
    column: Annotated[
        str,
        typer.Option(
            "--column", help="deployed (the default), swept or validated (the lambda sweep).", show_default=False
        ),
    ] = "deployed",
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap", help="What is resampled: clients (the default), seeds, both or samples (test rows)."
        ),
    ] = "clients",
    statistic: Annotated[
        str,
        typer.Option(
            "--statistic", help="mean (the default), worst10, best10, gini or gap over clients; for seeds and samples."
        ),
    ] = "mean",
    level: Annotated[float, typer.Option("--level", help="How sure the intervals are, between 0 and 1.")] = 0.95,
    visits: Annotated[
        str | None,
        typer.Option("--visits", help="Only clients that were sampled so often: a number, or a range such as 0-2."),
    ] = None,
    form: Format = "rich",
) -> None:
    """Paired differences to a reference: mean over clients, 95 % interval, how many clients are better or worse.

    RUN is a run folder, a pattern, or a folder of run folders (of a study). Pairs are the same client under the same
    seed; runs on a federation for which there is no reference are refused. With few clients and many seeds, or small
    test sets, --bootstrap seeds and --bootstrap samples say more.

    \b
      fedchord compare runs/* --against fedavg
      fedchord compare runs/2_table3 --against superfed-mm --column validated
      fedchord compare runs/a runs/b --against runs/c --metric loss
      fedchord compare runs/silo --against fedavg --bootstrap seeds --statistic worst10
      fedchord compare runs/silo --bootstrap samples
      fedchord compare runs/joint_choice --against fedavg --visits 0-2
    """
    from fedchord.check import one_of, require
    from fedchord.experiments.reading import read_all
    from fedchord.report import bootstrap as resample
    from fedchord.report import compare as pairs
    from fedchord.report import visits as sampled
    from fedchord.report.formats import FORMATS

    one_of("compare", "format", form, FORMATS)
    one_of("compare", "bootstrap", bootstrap, resample.BOOTSTRAPS)
    require(0 < level < 1, "compare", f"level must lie between 0 and 1, got {level}")
    by_client = bootstrap == "clients"
    require(not by_client or against is not None, "compare", "over clients it needs --against LABEL_or_RUN")
    require(not by_client or statistic == "mean", "compare", f"{statistic} needs --bootstrap seeds or samples")
    require(by_client or column == "deployed", "compare", f"{column} needs --bootstrap clients")
    require(visits is None or bootstrap != "samples", "compare", "--visits needs --bootstrap clients, seeds or both")
    often = None if visits is None else sampled.wanted(visits)
    found, problems = read_all(runs)
    found = found if often is None else [sampled.restricted(run, *often) for run in found]
    if by_client:
        made = pairs.tabulate(
            pairs.differences(found, against or "", metric, column, level), metric, column, form == "csv", level
        )
    else:
        made = resample.tabulate(
            resample.intervals(found, against, metric, statistic, bootstrap, level=level),
            *(metric, statistic, bootstrap, form == "csv", level),
        )
    for problem in problems:
        typer.echo(problem, err=True)
    show(made, form)
