"""The figures of chapters 2 and 3 by name: a study whose missing runs are made, and a drawing of the finished ones.

A figure is written as a picture and, beside it, a CSV file with the numbers behind it.
"""

from __future__ import annotations

import csv
import io
import math
import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg

from fedchord.check import fail, unknown
from fedchord.experiments import study
from fedchord.files import write_figure, write_text
from fedchord.report.plots import SUFFIXES
from fedchord.report.study_table import told
from fedchord.thesis import (
    figure_data,
    figure_draw,
    figure_fair,
    figure_grids,
    figure_hostile,
    figure_land,
    figure_privacy,
    figure_tradeoff,
    studies,
)
from fedchord.thesis.figure_data import Cells
from fedchord.thesis.figure_draw import Drawing

if TYPE_CHECKING:
    from fedchord.experiments.progress import Progress
    from fedchord.experiments.study import Job, Outcome, Plan


@dataclass(frozen=True)
class Kind:
    """A figure: what it shows, the study and the rows and columns of it that it needs, and how it is drawn."""

    about: str
    study: str
    time: str
    """How long the small scale takes on two free cores: measured for lambda, landscape, reliability and connectivity,
    estimated from the time of a round or a run for the others."""
    draw: Callable[[Cells], Drawing]
    only: tuple[str, ...] = ()


def _along_lambda(cells: Cells) -> Drawing:
    return figure_draw.along_lambda([figure_data.curve(_label(cells, key), runs) for key, runs in cells.items()])


def _munu(cells: Cells) -> Drawing:
    return figure_draw.munu(figure_data.panels(cells))


def _starts(cells: Cells) -> Drawing:
    return figure_draw.starts(figure_data.starts(cells))


def _landscape(cells: Cells) -> Drawing:
    return figure_draw.landscape(figure_land.lands({_label(cells, key): runs[0] for key, runs in cells.items()}))


def _clients(cells: Cells) -> Drawing:
    return figure_draw.clients([figure_data.spread(_label(cells, key), runs) for key, runs in cells.items()])


def _reliability(cells: Cells) -> Drawing:
    return figure_draw.reliability([figure_data.bins(_label(cells, key), runs) for key, runs in cells.items()])


def _connectivity(cells: Cells) -> Drawing:
    return figure_draw.connectivity([figure_data.link(_label(cells, key), runs) for key, runs in cells.items()])


MM, LM = "SuPerFed-MM", "SuPerFed-LM"
SILO = ("Berka", "Berka leaking", "Heart")
"""The silos that are small: the others take hours, and weights of networks."""
WEIGHTS = ("Uniform", "q=1", "step 2", "AAggFF-D", "PropFair", "TERM", "FedMGDA")
"""The rules of the writers' study."""
FIGURES: dict[str, Kind] = {
    "lambda": Kind(
        "accuracy along lambda, mean and one std over clients: APFL, Ditto, SuPerFed-MM, SuPerFed-LM",
        "2_lambda",
        "about 5 min",
        _along_lambda,
        ("APFL", "Ditto", MM, LM),
    ),
    "munu": Kind("accuracy along lambda for 4 mu x 4 nu, both mixings", "2_munu", "about 12 min", _munu),
    "start": Kind(
        "accuracy and loss over the start of mixing L/T, both mixings", "2_start", "about 4 min", _starts, (MM, LM)
    ),
    "landscape": Kind(
        "loss on the plane through the global model and two clients' own models (FedAvg: their last local copies)",
        "2_landscape",
        "about 3 min",
        _landscape,
    ),
    "clients": Kind(
        "how the deployed models' accuracy spreads over clients, every method of the table",
        "2_table3",
        "about 3 min",
        _clients,
        ("MNIST K=100",),
    ),
    "reliability": Kind(
        "reliability diagrams under label noise (pair 0.4), with ECE and MCE",
        "2_noise",
        "about 1 min",
        _reliability,
        ("MNIST pair 0.4", "FedAvg", "FedPer", "APFL", "Ditto", MM, LM),
    ),
    "connectivity": Kind(
        "accuracy along lambda over the clients with two models and over all, with nu and without; |cos(f, l)|",
        "2_lambda",
        "about 5 min",
        _connectivity,
        (MM, LM, f"{MM} nu=0", f"{LM} nu=0"),
    ),
    "fairness": Kind(
        "how AUROC spreads over the clients of the silos, a ridge per method, with its mean and its worst client",
        "result_silo",
        "about 3 min",
        figure_fair.fairness,
        SILO,
    ),
    "weights": Kind(
        "AAggFF-S: every client's mixing coefficient over rounds",
        "result_silo",
        "about 20 s",
        figure_fair.weights,
        ("AAggFF-S", *SILO),
    ),
    "cdf": Kind(
        "AAggFF-S: the cumulative objective sum p_i F_i per CDF, and the average and worst client at the end",
        "cdf_effect",
        "about 2 min",
        figure_fair.objectives,
        SILO,
    ),
    "cdf-words": Kind(
        "AAggFF-D: the same on the next words of Shakespeare's roles; --only Reddit for those who have it",
        "cdf_effect",
        "about 1 hour",
        figure_fair.objectives,
        ("Shakespeare's words",),
    ),
    "regret": Kind(
        "AAggFF-S: regret against the best fixed decision over rounds, and the bound, whose proof asks for beta <= 1/2",
        "result_silo",
        "about 20 s",
        figure_fair.regrets,
        ("AAggFF-S", *SILO),
    ),
    "regret-device": Kind(
        "AAggFF-D: regret of the linearised losses over rounds, and the bound",
        "result_device",
        "about 5 min",
        figure_fair.regrets,
        ("AAggFF-D", "SpeechCommands"),
    ),
    "tradeoff": Kind(
        "worst tenth against mean over 500 writers, for uniform weights and six fair rules, before and after the "
        "personal step",
        "writers_average",
        "about 1 hour",
        figure_tradeoff.tradeoff,
        ("logistic regression", *(f"{rule}, {form}" for form in ("quarter", "personal") for rule in WEIGHTS)),
    ),
}

FIGURES |= {
    "hostile": Kind(
        "accuracy, worst tenth and personal accuracy over the share of hostile clients: five attacks, five defences",
        "hostile",
        "about 5 min",
        figure_hostile.hostile,
    ),
    "hostile-mnist": Kind(
        "the same on MNIST, at two shares of hostile clients",
        "hostile_mnist",
        "about 3 min",
        figure_hostile.hostile,
    ),
}

PRIVATE = {
    "writers": ("accuracy over epsilon, 500 writers hidden whole", "about 2 min"),
    "heart": ("AUROC over epsilon, rows of four hospitals hidden", "about 1 min"),
    "sets": ("use of a synthetic set over epsilon, rows of ten clients hidden", "about 3 min"),
    "sets_writers": ("use of a synthetic set over epsilon, 500 writers hidden whole", "about 4 min"),
}
FIGURES |= {
    f"privacy-{name.replace('_', '-')}": Kind(about, f"privacy_{name}", time, figure_privacy.epsilons)
    for name, (about, time) in PRIVATE.items()
}

GRIDS = {"mnist": ("disc", "MNIST"), "cifar10": ("disc", "CIFAR-10")}
GRIDS |= {"dermamnist": ("disc2", "DermaMNIST"), "organcmnist": ("disc2", "OrganCMNIST")}
FIGURES |= {
    f"grid-{name}": Kind(
        f"samples of {title} beside real ones, rows are classes: FedCGAN, FedCVAE, FedEvg, FedEvg ours",
        table,
        "about 30 min",
        figure_grids.grids,
        (f"{title} K=10 alpha=1", f"{title} K=10 alpha=0.01"),
    )
    for name, (table, title) in GRIDS.items()
}


@dataclass(frozen=True)
class Made:
    """What came of a figure: the files that were written (none if a run is missing), and what came of the runs."""

    files: tuple[Path, ...]
    outcome: Outcome
    plan: Plan
    folder: Path


def find(name: str) -> Kind:
    """A figure by its name."""
    if name not in FIGURES:
        raise unknown("figure", name, (*FIGURES, "list"))
    return FIGURES[name]


def make(
    name: str,
    scale: str | None = None,
    pairs: Sequence[str] = (),
    out: Path | None = None,
    to: Path | None = None,
    only: Sequence[str] = (),
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> Made:
    """Run what is missing, then draw; nothing is drawn unless every run is there."""
    kind = find(name)
    if to is not None and to.suffix.lower() not in SUFFIXES:
        raise fail("figure", f"the file must end in {', '.join(SUFFIXES)}, got {str(to)!r}")
    whole = study.plan(studies.load(kind.study), scale, pairs)
    plan = replace(whole, jobs=tuple(study.picked(whole, _asked(whole, only, kind.only))))
    folder = out or Path("runs") / kind.study
    outcome = study.run(plan, folder, say=say, progress=progress, told=told)
    if outcome.failed or outcome.interrupted:
        return Made((), outcome, plan, folder)
    drawn = kind.draw(plan.runs(folder))
    drawn.figure.suptitle(textwrap.fill(caption(plan), int(14 * drawn.figure.get_figwidth())), fontsize=9)
    file = to or folder / f"{name}-{plan.scale or 'figure'}.png"
    return Made(save(drawn, file), outcome, plan, folder)


def _asked(plan: Plan, only: Sequence[str], usual: Sequence[str]) -> list[str]:
    """The rows and columns asked for; where no row is named the figure's own rows, and so for columns."""
    found = list(only)
    for entries in (plan.study.methods, plan.study.settings):
        kind = {entry.label.lower() for entry in entries}
        if not kind.intersection(label.lower() for label in only):
            found += [label for label in usual if label.lower() in kind]
    return found


def save(drawn: Drawing, to: Path) -> tuple[Path, Path]:
    """Write the picture, and its numbers beside it as CSV."""
    FigureCanvasAgg(drawn.figure)
    write_figure(drawn.figure, to, dpi=150)
    table, text = to.with_suffix(".csv"), io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(drawn.heads)
    writer.writerows([_plain(value) for value in row] for row in drawn.rows)
    write_text(table, text.getvalue())
    return to, table


def caption(plan: Plan) -> str:
    """What was run, in a line: scale, data, model, split, clients, rounds, epochs, seeds."""
    names = {"split.alpha": "alpha", "clients": "K", "cohort": "cohort", "epochs": "epochs"}
    words = [_shared(plan.jobs, key) for key in ("data", "model", "split")]
    words += [f"{short} {value}" for key, short in names.items() if (value := _shared(plan.jobs, key))]
    words += [f"{_shared(plan.jobs, 'rounds')} rounds", f"seed {_shared(plan.jobs, 'seed')}"]
    noise = _shared(plan.jobs, "noise")
    words += [f"noise {noise} {_shared(plan.jobs, 'noise.rate')}"] if noise != "none" else []
    return f"scale {plan.scale or 'as written'}: {', '.join(words)}"


def _shared(jobs: Iterable[Job], key: str) -> str:
    values = [job.config.values().get(key) for job in jobs]
    texts = list(dict.fromkeys(str(value) for value in values if value is not None))
    in_line = key == "seed" and len(texts) > 2 and texts == [str(int(texts[0]) + place) for place in range(len(texts))]
    return f"{texts[0]} to {texts[-1]}" if in_line else "/".join(texts)


def again(name: str, made: Made, pairs: Sequence[str], out: Path | None, to: Path | None, only: Sequence[str]) -> str:
    """The command that goes on with a figure."""
    words = ["fedchord", "figure", name]
    words += ["--scale", made.plan.scale] if made.plan.scale not in ("", "small") else []
    for option, value in (("--out", out), ("--to", to)):
        words += [option, str(value)] if value is not None else []
    return shlex.join([*words, *(word for label in only for word in ("--only", label)), *pairs])


def _label(cells: Cells, key: tuple[str, str]) -> str:
    """The method, and the setting where there are several."""
    method, setting = key
    return f"{method}, {setting}" if setting and len({name for _, name in cells}) > 1 else method


def _plain(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.9g}"
    return value
