"""The commands `table`, `compare`, `plot`, `figure` and `study`: what a user types after one run or for many.

Heavy imports stay inside the functions, so that `--help` is quick. Mistakes are raised as `FedchordError`; `cli.main`
prints them in one line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedchord.experiments.study import Outcome, Plan
    from fedchord.report.cells import Table

FORMAT_HELP = "rich (for the terminal, the default), markdown, latex or csv."
SCALE_HELP = "Which scale of the study: small (the default) or thesis."
OUT_HELP = "The folder of the study's runs; by default runs/NAME."

Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, patterns, or folders of run folders.")]
Name = Annotated[
    str, typer.Argument(metavar="FILE_or_NAME", help="A study file, or a built-in study (see study list).")
]
Pairs = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Run keys for all runs, and seeds=1,2.")
]
Format = Annotated[str, typer.Option("--format", help=FORMAT_HELP, show_default=False)]
Scale = Annotated[str | None, typer.Option("--scale", help=SCALE_HELP)]
Out = Annotated[Path | None, typer.Option("--out", help=OUT_HELP)]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Only this row or column, by its label; may be repeated.")
]


def register(app: typer.Typer) -> None:
    """Add `table`, `compare`, `plot`, `figure` and `study` to the command line."""
    app.command("table")(table)
    app.command("compare")(compare)
    app.command("plot")(plot)
    app.command("figure")(figure)
    study = typer.Typer(
        rich_markup_mode=None,
        help="Many runs from one file: methods x settings x seeds, and their table.",
        no_args_is_help=True,
    )
    study.command("run")(study_run)
    study.command("table")(study_table)
    study.command("list")(study_list)
    app.add_typer(study, name="study")


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
        typer.Option("--bootstrap", help="What is resampled: clients (the default), seeds or samples (test rows)."),
    ] = "clients",
    statistic: Annotated[
        str,
        typer.Option(
            "--statistic", help="mean (the default), worst10, best10, gini or gap over clients; for seeds and samples."
        ),
    ] = "mean",
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
    """
    from fedchord.check import one_of, require
    from fedchord.experiments.reading import read_all
    from fedchord.report import bootstrap as resample
    from fedchord.report import compare as pairs
    from fedchord.report.formats import FORMATS

    one_of("compare", "format", form, FORMATS)
    one_of("compare", "bootstrap", bootstrap, resample.BOOTSTRAPS)
    by_client = bootstrap == "clients"
    require(not by_client or against is not None, "compare", "over clients it needs --against LABEL_or_RUN")
    require(not by_client or statistic == "mean", "compare", f"{statistic} needs --bootstrap seeds or samples")
    require(by_client or column == "deployed", "compare", f"{column} needs --bootstrap clients")
    found, problems = read_all(runs)
    if by_client:
        made = pairs.tabulate(
            pairs.differences(found, against or "", metric, column), metric, column, exact=form == "csv"
        )
    else:
        made = resample.tabulate(
            resample.intervals(found, against, metric, statistic, bootstrap),
            *(metric, statistic, bootstrap, form == "csv"),
        )
    for problem in problems:
        typer.echo(problem, err=True)
    show(made, form)


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

    `fedchord figure list` names the figures, what they show and how long they take; KEY=VALUE are run keys of all.

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
    say = shown.say if sys.stderr.isatty() else _say
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


def study_run(
    name: Name,
    pairs: Pairs = None,
    out: Out = None,
    scale: Scale = None,
    only: Only = None,
) -> None:
    """Run a study: what is done is skipped, what was interrupted goes on. All settings are checked before it starts.

    FILE_or_NAME is a TOML file or one of `fedchord study list`; KEY=VALUE are run keys for all its runs, and seeds=1,2.

    \b
      fedchord study run smoke
      fedchord study run 2_table3 --only FedAvg --only "MNIST K=50" seeds=1,2,3
      fedchord study run my-study.toml --out runs/mine executor=serial
    """
    from fedchord.experiments import progress, study
    from fedchord.report.study_table import told
    from fedchord.thesis import studies

    plan = study.plan(studies.load(name), scale, pairs or ())
    _say_alias(name, plan.study.name)
    folder = out or Path("runs") / plan.study.name
    for label, rule in plan.missing.items():
        typer.echo(f"{label}: method {rule} is not in this version; its row is skipped", err=True)
    shown = progress.for_stream(sys.stderr) if sys.stderr.isatty() else progress.Silent()
    say = shown.say if sys.stderr.isatty() else _say
    outcome = study.run(plan, folder, only or (), say, shown, told)
    again = study.command("run", plan, name, folder, only or (), pairs or ())
    columns = [label for label in only or () if label.lower() in {s.label.lower() for s in plan.study.settings}]
    code = _close(outcome, plan, again, study.command("table", plan, name, folder, columns))
    if code:
        raise typer.Exit(code)


def _say_alias(name: str, known: str) -> None:
    from fedchord.thesis.studies import ALIASES

    if name in ALIASES:
        typer.echo(f"{name} is the study {known}", err=True)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _close(outcome: Outcome, plan: Plan, again: str, see: str) -> int:
    """The last lines of a study, and its exit code: 1 if a run failed, 130 if it was interrupted."""
    failed = sum(len(names) for names in outcome.failed.values())
    finished = outcome.skipped + outcome.done
    typer.echo(
        f"{plan.study.name}: {finished} of {outcome.planned} runs finished ({outcome.skipped} were there already)"
    )
    for message, names in outcome.failed.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        typer.echo(f"failed: {names[0]}{more}: {message}", err=True)
    if outcome.interrupted or failed:
        typer.echo(f"{'interrupted; ' if outcome.interrupted else ''}go on with: {again}", err=True)
    if finished:
        typer.echo(f"see it with: {see}")
    return 130 if outcome.interrupted else 1 if failed else 0


def study_table(
    name: Name,
    pairs: Pairs = None,
    out: Out = None,
    scale: Scale = None,
    only: Only = None,
    form: Format = "rich",
) -> None:
    """The table of a study: mean (std over seeds), best in bold, reference numbers beside ours, what is missing.

    Without --scale and KEY=VALUE it shows what was run last into the folder.

    \b
      fedchord study table smoke
      fedchord study table 2_table3 --only "MNIST K=100" --format markdown
    """
    from fedchord.check import one_of
    from fedchord.experiments import study
    from fedchord.report import study_table
    from fedchord.report.formats import FORMATS
    from fedchord.thesis import studies

    one_of("study table", "format", form, FORMATS)
    asked = studies.load(name)
    _say_alias(name, asked.name)
    folder = out or Path("runs") / asked.name
    if scale is None and not pairs:
        scale, pairs = study.recorded(folder)
    show(study_table.tabulate(study.narrowed(study.plan(asked, scale, pairs or ()), only or ()), folder), form)


def study_list() -> None:
    """The studies that come with the library.

    \b
      fedchord study list
    """
    from fedchord.cli.listing import studies

    typer.echo("\n".join(studies()))


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
        console.print(note, markup=False, soft_wrap=True, style="dim")
