"""The command `sweep`: a study without a file, whose settings are chosen on validation rows."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedchord.cli.printing import aside, show
from fedchord.cli.study import close

if TYPE_CHECKING:
    from fedchord.experiments.progress import Progress
    from fedchord.experiments.sweep_grid import Grid

TABLE, PICTURE = "sweep.csv", "sweep.png"


def sweep(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="key=value[,value ...] ...", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder of the runs; by default runs/sweep-HASH of the grid.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="What to choose by: top1, auroc, loss, ... (default: the headline).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and how many there are; run none.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Run more than 1,000 runs.")] = False,
) -> None:
    """Try settings: every combination of values with commas is run, and the best is chosen on validation rows.

    \b
      fedchord sweep lr=0.1,0.03,0.01 seed=1,2,3
      fedchord sweep method=fedavg,fedprox method.mu=0.01,0.1,1 lr=0.1,0.03 rounds=50 --dry-run
      fedchord sweep data=mnist method=fedavg,scaffold lr=0.1,0.01 seed=1-3 --out runs/rates --metric loss

    Every key of fedchord run can be given; what has commas is an axis (metrics and sweep.lambdas keep theirs; a value
    in quotes is one value). seed=1,2,3 are repeats, not choices. A parameter that a method does not have is left out
    for that method.

    The choice is made on validation rows (validation=0.1 unless you give another share), for each method, by the mean
    over seeds. Test numbers are shown for the chosen settings alone. Given again, the command skips what is finished
    and goes on with what was interrupted; with --out the same folder takes a larger grid.
    """
    from fedchord.experiments import progress, study, sweep_grid
    from fedchord.report.sweep_table import told

    grid = sweep_grid.parse(settings or [], many=yes or dry_run, metric=metric)
    folder = out or grid.folder
    if dry_run:
        _list(grid, folder)
        return
    chosen = sweep_grid.metric_of(grid, folder, metric)
    grid = replace(grid, plan=replace(grid.plan, study=replace(grid.plan.study, metric=chosen)))
    for line in grid.left_out:
        aside(line)
    terminal = sys.stderr.isatty()
    shown = Unseen(progress.for_stream(sys.stderr)) if terminal else progress.Silent()
    outcome = study.run(grid.plan, folder, (), shown.say if terminal else aside, shown, told)
    again = ["fedchord", "sweep", *(settings or [])]
    again += ["--out", str(out)] if out else []
    again += ["--metric", metric] if metric else []
    code = close(outcome, f"sweep in {folder}", shlex.join([*again, *(["--yes"] if yes else [])]))
    if not outcome.interrupted:
        _tell(grid, folder, chosen)
    if code:
        raise typer.Exit(code)


class Unseen:
    """Progress without numbers: those of the rounds are test numbers, which are not for choosing."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self.begin, self.say, self.end = shown.begin, shown.say, shown.end

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        """A round has ended."""
        self._shown.update(round)


def _list(grid: Grid, folder: Path) -> None:
    """The runs, those that are finished marked, and how many they are."""
    for line in grid.left_out:
        aside(line)
    done = 0
    for job in grid.plan.jobs:
        finished = job.is_done(folder)
        done += finished
        typer.echo(f"{job}{' (finished)' if finished else ''}")
    jobs, points, seeds = len(grid.plan.jobs), len(grid.points), len(grid.seeds)
    size = f"{points} setting{'s' * (points > 1)} x {seeds} seed{'s' * (seeds > 1)}"
    typer.echo(f"{jobs} runs ({size}) into {folder}, {done} of them finished")


def _tell(grid: Grid, folder: Path, metric: str) -> None:
    """The table, the best setting of each method, and how to run the best of all again."""
    from fedchord.files import write_text
    from fedchord.report import formats, sweep_plot, sweep_table

    rows = sweep_table.rows(grid, folder, metric)
    if not any(row.runs for row in rows):
        return
    table = sweep_table.tabulate(grid, rows, metric)
    show(table)
    write_text(folder / TABLE, formats.render(table, "csv"))
    (folder / PICTURE).unlink(missing_ok=True)  # of another grid, where this one has none
    drawn = sweep_plot.draw(grid, rows, metric, folder / PICTURE)
    for line in sweep_table.best_lines(rows, metric):
        typer.echo(line)
    best = sweep_table.winners(rows, metric)
    for row in best:
        where = f" of {' '.join(row.problem)}" if row.problem else ""
        kept = next(run.folder for run in row.runs if run.seed == grid.seeds[0])  # a row that wins has all its seeds
        typer.echo(
            f"the best{where} by {metric} on validation rows is kept, with its first seed, in {kept}; once more:"
        )
        typer.echo(f"  {shlex.join(grid.command(row.point))}")
    typer.echo(f"wrote {folder / TABLE}{f' and {folder / PICTURE}' if drawn else ''}")
