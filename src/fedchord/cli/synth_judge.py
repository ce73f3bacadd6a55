"""The command `synth judge`: several classifiers, drawn several times, judge the sets of many runs."""

from __future__ import annotations

from typing import Annotated

import typer

from fedchord.cli.options import Format, Runs
from fedchord.cli.printing import show


def judge(
    runs: Runs,
    classifier: Annotated[
        list[str] | None,
        typer.Option(
            help="A classifier, repeated for several.",
            show_default="smallconv, twonn, leafconv; for small pictures and vectors twonn, logreg",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How often each classifier is drawn.")] = 3,
    rows: Annotated[str, typer.Option(help="official (test rows), or clients' validation or test.")] = "official",
    metric: Annotated[
        str, typer.Option(help="top1, or balanced-accuracy: the mean over classes of the share that is recognised.")
    ] = "top1",
    real: Annotated[bool, typer.Option(help="As many real training rows beside, under the same judges.")] = False,
    against: Annotated[
        str | None, typer.Option(help="The reference of paired differences: a method, a label, a run folder, or real.")
    ] = None,
    form: Format = "rich",
) -> None:
    """Judge synthetic sets by several classifiers, each drawn anew several times, with the fixed recipe.

    What was found is kept in judges.json of the run's folder and is not measured again, so that the command can be
    interrupted. With --against, differences are paired over the seeds of the runs, with a t interval.

    \b
      fedchord synth judge runs/disc
      fedchord synth judge runs/disc --classifier smallconv --classifier twocnn --seeds 1 --rows validation
      fedchord synth judge runs/disc --against fedcgan --real
      fedchord synth judge runs/disc --against real      as many real rows are the reference
      fedchord synth judge runs/disc --metric balanced-accuracy      every class counts alike
    """
    from fedchord.check import one_of
    from fedchord.cli.synth import sets
    from fedchord.engine.executors import keep_freed_memory
    from fedchord.experiments.reading import read
    from fedchord.report.formats import FORMATS
    from fedchord.report.judges_table import REAL, tabulate
    from fedchord.report.rows import problem
    from fedchord.synthetic.panel import Panel, Verdicts, judge_folder, usual

    one_of("judges", "format", form, FORMATS)
    keep_freed_memory()
    here, finished, found, beside = sets(runs), [], {}, {}
    drawn: dict[tuple[str, int, int], Verdicts] = {}  # real rows are the same for all methods on one problem
    panel = Panel(tuple(classifier or usual(here[0][2].shape)), seeds, rows, metric)
    for place, config, made in here:
        finished.append(read(place))
        federation = config.federation()
        found[place] = judge_folder(panel, place, federation)
        if real or against == REAL:
            rows_of = (problem(finished[-1].config), config.seed, made.spc)
            if rows_of not in drawn:
                drawn[rows_of] = judge_folder(panel, place, federation, config.seed)
            beside[place] = drawn[rows_of]
    show(tabulate(panel, finished, found, beside, against), form)
