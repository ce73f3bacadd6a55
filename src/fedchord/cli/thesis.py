"""The commands of `thesis`: what has been measured of its tables, and the runs that are missing."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedchord.cli.options import Format
from fedchord.cli.printing import aside, show
from fedchord.cli.study import close

if TYPE_CHECKING:
    from fedchord.thesis.budget import Todo

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="Tables of the thesis, such as 2_table3; by default all."),
]
WORK, RESULTS = Path("runs/thesis"), Path("results")
Results = Annotated[Path, typer.Option("--results", help="The folder of kept results.")]


def register(app: typer.Typer) -> None:
    """Add `thesis` to the command line."""
    thesis = typer.Typer(
        rich_markup_mode=None,
        help="The thesis' tables of results: what has been measured of every cell, and what is missing.",
        no_args_is_help=True,
    )
    thesis.command("status")(status)
    thesis.command("run")(run)
    thesis.command("keep")(keep)
    app.add_typer(thesis, name="thesis")


def status(
    tables: Tables = None,
    results: Results = RESULTS,
    claims: Annotated[
        bool, typer.Option("--claims", help="Only what the thesis claims, and whether it holds.")
    ] = False,
    form: Format = "rich",
) -> None:
    """Every cell of the thesis' tables: full, reduced or none, beside its number; and whether its claims hold.

    Without a table it counts; with one it lists the cells. All of it is made from the kept results.

    \b
      fedchord thesis status
      fedchord thesis status 2_table3 --format markdown
      fedchord thesis status --claims
    """
    from fedchord.check import one_of
    from fedchord.report.formats import FORMATS
    from fedchord.thesis import status as states

    one_of("thesis status", "format", form, FORMATS)
    asked = [states.check_table(name) for name in tables or ()]
    found = states.Status(results)
    for table in () if claims else asked:
        show(states.listing(found, table), form)
    if not asked and not claims:
        show(states.overview(found), form)
    show(states.claim_table(found, asked or states.studies.TABLES), form)


def run(
    tables: Tables = None,
    scale: Annotated[str, typer.Option("--scale", help="smoke (does it run), small or thesis.")] = "small",
    hours: Annotated[float | None, typer.Option("--hours", help="Stop after so many hours.")] = None,
    part: Annotated[str | None, typer.Option("--part", help="Only one part of the runs, such as 3/10.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what another version of fedchord made.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is missing and how long; run nothing.")] = False,
    work: Annotated[Path, typer.Option("--work", help="The folder of unfinished runs.")] = WORK,
    results: Results = RESULTS,
    pairs: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A run key that changes no result.")
    ] = None,
) -> None:
    """Make the runs that cells still lack, empty cells and cheap ones first, and keep their small results.

    It goes on after any interruption: what is kept is not run again, and an unfinished run continues. Runs whose files
    are missing are named and left out. The scale smoke keeps nothing.

    \b
      fedchord thesis run --scale smoke                     does every row of every table run?
      fedchord thesis run --scale small --hours 8
      fedchord thesis run 2_table3 --scale thesis --set executor=serial
    """
    from fedchord.check import one_of, positive
    from fedchord.experiments import progress
    from fedchord.thesis import budget, cells, studies
    from fedchord.thesis import results as keeping
    from fedchord.thesis.status import check_table

    one_of("thesis run", "scale", scale, studies.SCALES)
    if hours is not None:
        positive("thesis run", "hours", hours)
    asked = [check_table(name) for name in tables or ()]
    kept, wrong = keeping.read_all(results)
    for path, why in wrong.items():
        aside(f"{path}: {why}; its run is made again")
    runs = budget.todo(asked or studies.TABLES, scale, cells.Kept(kept), again, pairs or ())
    runs = budget.part_of(runs, part) if part is not None else runs
    ready = _without(runs)
    if dry_run or not ready:
        _foretell(ready, scale)
        return
    shown = progress.for_stream(sys.stderr) if sys.stderr.isatty() else progress.Silent()
    say = shown.say if sys.stderr.isatty() else aside
    outcome = budget.run(ready, scale, work / scale, results, hours, say, shown)
    words = ["fedchord", "thesis", "run", *asked, "--scale", scale, *(("--again",) if again else ())]
    options = {
        "--hours": (hours, None),
        "--part": (part, None),
        "--work": (work, WORK),
        "--results": (results, RESULTS),
    }
    for option, (value, usual) in options.items():
        words += [option, str(value)] if value != usual else []
    words += [word for pair in pairs or () for word in ("--set", pair)]
    code = close(outcome, f"thesis at scale {scale}", shlex.join(words))
    if outcome.interrupted and hours is not None and not outcome.failed:
        return
    if code:
        raise typer.Exit(code)


def _without(runs: list[Todo]) -> list[Todo]:
    """The runs whose files are there; what is missing is said."""
    lacking: dict[str, int] = {}
    for one in runs:
        for file in one.missing:
            lacking[file] = lacking.get(file, 0) + 1
    for file, count in lacking.items():
        typer.echo(f"missing: {file}, for {count} of the runs, which are left out", err=True)
    return [one for one in runs if not one.missing]


def _foretell(runs: list[Todo], scale: str) -> None:
    from fedchord.experiments import cost

    for one in runs:
        typer.echo(f"{one.table}: {one.job}: about {cost.told(one.seconds)}, {one.cells} cells")
    total = cost.told(sum(one.seconds for one in runs))
    typer.echo(f"scale {scale}: {len(runs)} runs to make, about {total} on one core; nothing was run")


def keep(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="The study that made the runs.")],
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished runs, or folders of them.")],
    results: Results = RESULTS,
    lines: Annotated[bool, typer.Option(help="One table, a line a run, without numbers by client: STUDY.csv.")] = False,
) -> None:
    """Keep the small results of runs that fedchord study run made, at any length.

    A run is known by its settings or, where they are not those of a scale, by what differs in rounds and epochs.

    \b
      fedchord thesis keep 2_table3 runs/2_table3
      fedchord thesis keep writers_average runs/writers_average --lines
    """
    from fedchord.check import require
    from fedchord.thesis.keeping import keep_lines, keep_runs

    kept, problems = (keep_lines if lines else keep_runs)(study, runs, results)
    for line in problems:
        aside(line)
    for path in kept:
        typer.echo(str(path))
    require(bool(kept), "thesis keep", f"no finished run of study {study} among {', '.join(map(str, runs))}")
