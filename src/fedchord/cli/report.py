"""The command `report`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedchord.report.page.write import Report

FIRST = "make one with: fedchord run method=fedavg out=runs/a"


def report(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...|STUDY",
            help="Run folders, patterns, or folders of run folders; or one study, by its file or name.",
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="The file, .html.")] = Path("report.html"),
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="LABEL", help="What rows are compared with; by default fedavg."),
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="top1, loss, ...; by default the headline.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Of a study: the folder of its runs; by default runs/NAME.")
    ] = None,
    data: Annotated[
        bool, typer.Option("--data/--no-data", help="Read the data, for the split by class and real samples.")
    ] = True,
) -> None:
    """Runs or a study as one page to look at, print and send: a single HTML file that loads nothing else.

    What was run and how it was measured; tables to sort, with intervals; curves; every client as a dot, to be found by
    name; mean against worst tenth; models between two ends, with a slider; shares in the mix; the split; synthetic
    samples beside real ones; bytes and time; settings to copy and the commands that make it again.

    \b
      fedchord report runs/*                          all runs here, into report.html
      fedchord report runs/a runs/b --to ab.html
      fedchord report runs --against local --metric loss
      fedchord report smoke                           a study, after: fedchord study run smoke
    """
    from fedchord.report.page.write import check_file, write

    check_file(to)
    asked = [*places, "--to", str(to)]
    asked += [] if against is None else ["--against", against]
    asked += [] if metric is None else ["--metric", metric]
    asked += [] if out is None else ["--out", str(out)]
    command = shlex.join(["fedchord", "report", *asked, *([] if data else ["--no-data"])])
    study = len(places) == 1 and is_study(places[0])
    made = (_study if study else _runs)(places, command, against, metric, out, data)
    for line in made.left_out:
        typer.echo(line, err=True)
    for line in write(made, to):
        typer.echo(f"not shown: {line}", err=True)
    typer.echo(f"wrote {to}: {sum(len(problem.runs) for problem in made.problems)} runs; open it in a browser")


def is_study(place: str) -> bool:
    """Whether a study is meant and not runs: a study's file, or a name that is no folder here."""
    from fedchord.thesis.studies import ALIASES, built_in

    known = {*built_in(), *ALIASES}
    return place.endswith(".toml") or (place in known and not Path(place).exists())


def _runs(
    places: list[str], command: str, against: str | None, metric: str | None, out: Path | None, data: bool
) -> Report:
    from fedchord.check import FedchordError, require
    from fedchord.experiments.reading import find, read_all
    from fedchord.report.page.problems import of_runs
    from fedchord.report.page.write import Report

    require(out is None, "report", "--out is for a study; name the run folders themselves")
    require(bool(find(places)), "report", f"{places[0]} is a file, not a run folder; {FIRST}")
    try:
        runs, problems = read_all(places)
    except FedchordError as error:
        raise FedchordError(f"nothing to report: {error}; {FIRST}") from None
    return Report(of_runs(runs, metric), command, left_out=problems, against=against, data=data)


def _study(
    places: list[str], command: str, against: str | None, metric: str | None, out: Path | None, data: bool
) -> Report:
    from fedchord.check import require
    from fedchord.experiments import study
    from fedchord.report import study_table
    from fedchord.report.page import numbers
    from fedchord.report.page.problems import of_plan
    from fedchord.report.page.write import Report
    from fedchord.thesis import studies

    asked = studies.load(places[0])
    folder = out or Path("runs") / asked.name
    plan = study.plan(asked, *study.recorded(folder))
    again = study.command("run", plan, places[0], folder)
    problems = of_plan(plan, folder, metric)
    require(bool(problems), "report", f"no finished run of the study in {folder}; run it with: {again}")
    missing = [job for job in plan.jobs if not job.is_done(folder)]
    left_out = [f"{len(missing)} of {len(plan.jobs)} runs of the study are missing; run them with: {again}"]
    sheet = numbers.of_table(study_table.tabulate(plan, folder), "the study")
    return Report(problems, command, asked.title, asked.about, sheet, left_out if missing else (), against, data)
