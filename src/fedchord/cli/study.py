"""The commands of `study`: many runs from one file, and their table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedchord.cli.options import Format, Name, Only, Out, Pairs, Scale
from fedchord.cli.printing import aside, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedchord.experiments.study import Outcome, Plan


def register(app: typer.Typer) -> None:
    """Add `study` to the command line."""
    study = typer.Typer(
        rich_markup_mode=None,
        help="Many runs from one file: methods x settings x seeds, and their table.",
        no_args_is_help=True,
    )
    study.command("run")(run)
    study.command("table")(table)
    study.command("list")(list_)
    app.add_typer(study, name="study")


def run(
    name: Name,
    pairs: Pairs = None,
    out: Out = None,
    scale: Scale = None,
    only: Only = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which runs, which files are missing and how long; run nothing.")
    ] = False,
) -> None:
    """Run a study: what is done is skipped, what was interrupted goes on. All settings are checked before it starts.

    FILE_or_NAME is a TOML file, or a name that fedchord study list shows; KEY=VALUE are run keys for all its runs, and
    seeds=1,2.

    \b
      fedchord study run smoke
      fedchord study run 2_table3 --only FedAvg --only "MNIST K=50" seeds=1,2,3
      fedchord study run my-study.toml --out runs/mine executor=serial
      fedchord study run 2_table4 --scale thesis --dry-run
    """
    from fedchord.experiments import progress, study
    from fedchord.report.study_table import told
    from fedchord.thesis import studies

    plan = study.plan(studies.load(name), scale, pairs or ())
    _say_alias(name, plan.study.name)
    folder = out or Path("runs") / plan.study.name
    for label, rule in plan.missing.items():
        typer.echo(f"{label}: method {rule} is not in this version; its row is skipped", err=True)
    if dry_run:
        _foretell(plan, folder, only or ())
        return
    shown = progress.for_stream(sys.stderr) if sys.stderr.isatty() else progress.Silent()
    say = shown.say if sys.stderr.isatty() else aside
    outcome = study.run(plan, folder, only or (), say, shown, told)
    again = study.command("run", plan, name, folder, only or (), pairs or ())
    columns = [label for label in only or () if label.lower() in {s.label.lower() for s in plan.study.settings}]
    code = close(outcome, plan.study.name, again)
    if outcome.skipped + outcome.done:
        typer.echo(f"see it with: {study.command('table', plan, name, folder, columns)}")
    if code:
        raise typer.Exit(code)


def _foretell(plan: Plan, folder: Path, only: Sequence[str]) -> None:
    """What a study would run: how many runs, which are there, what is missing, about how long."""
    from fedchord.experiments import cost, study

    jobs = study.picked(plan, only)
    waiting = [job for job in jobs if not job.is_done(folder)]
    lacking: dict[str, list[str]] = {}
    for job in waiting:
        for file in cost.missing(job.config):
            lacking.setdefault(file, []).append(str(job))
    needs = {name for names in lacking.values() for name in names}
    ready = [job for job in waiting if str(job) not in needs]
    for job in waiting:
        mark = "  (files are missing)" if str(job) in needs else ""
        typer.echo(f"{job}: about {cost.told(cost.seconds(job.config))}{mark}")
    for file, names in lacking.items():
        typer.echo(f"missing: {file}, for {len(names)} of the runs")
    done, total = len(jobs) - len(waiting), sum(cost.seconds(job.config) for job in ready)
    scale = f" at scale {plan.scale}" if plan.scale else ""
    there = f"{done} are there, {len(waiting) - len(ready)} lack files"
    typer.echo(f"{plan.study.name}{scale}: {len(jobs)} runs; {there}, {len(ready)} to run")
    typer.echo(f"about {cost.told(total)} on one core, within a factor of two or three; nothing was run")


def _say_alias(name: str, known: str) -> None:
    from fedchord.thesis.studies import ALIASES

    if name in ALIASES:
        typer.echo(f"{name} is the study {known}", err=True)


def close(outcome: Outcome, name: str, again: str) -> int:
    """What came of many runs, and the exit code: 1 if a run failed, 130 if they were interrupted."""
    failed = sum(len(names) for names in outcome.failed.values())
    finished = outcome.skipped + outcome.done
    typer.echo(f"{name}: {finished} of {outcome.planned} runs finished ({outcome.skipped} were there already)")
    for message, names in outcome.failed.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        typer.echo(f"failed: {names[0]}{more}: {message}", err=True)
    if outcome.interrupted or failed:
        typer.echo(f"{'interrupted; ' if outcome.interrupted else ''}go on with: {again}", err=True)
    return 130 if outcome.interrupted else 1 if failed else 0


def table(
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
    from fedchord.check import one_of, require
    from fedchord.experiments import study
    from fedchord.report import study_table
    from fedchord.report.formats import FORMATS
    from fedchord.thesis import studies

    one_of("study table", "format", form, FORMATS)
    asked = studies.load(name)
    folder = out or Path("runs") / asked.name
    if scale is None and not pairs:
        scale, pairs = study.recorded(folder)
    plan = study.narrowed(study.plan(asked, scale, pairs or ()), only or ())
    done = any(job.is_done(folder) for job in plan.jobs)
    again = study.command("run", plan, name, folder, only or (), pairs or ())
    require(done, "study table", f"no finished run in {folder}; run it with: {again}")
    _say_alias(name, asked.name)
    show(study_table.tabulate(plan, folder), form)


def list_() -> None:
    """The studies that come with the library.

    \b
      fedchord study list
    """
    from fedchord.cli.listing import studies

    typer.echo("\n".join(studies()))
