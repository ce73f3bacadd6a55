"""`fedchord demo`: what fedchord is for, in three parts on real digits: personal models, fair mixing, a synthetic set.

Every part is runs like any other, kept in a folder that goes when the demo ends: their table is that of `fedchord
table`, their figure that of `fedchord plot` or `fedchord synth show`. The sentences are made from the numbers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from fedchord.check import fail, require
from fedchord.cli.printing import show, tell
from fedchord.engine.executors import one_thread
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts
from fedchord.experiments.progress import Progress, for_stream
from fedchord.experiments.reading import Run as Kept
from fedchord.experiments.reading import read
from fedchord.experiments.session import Run
from fedchord.report import plots, rows
from fedchord.report.cells import Cell, Estimate, Head, Table, cell_of, estimate, factor, head_of
from fedchord.report.tables import tabulate
from fedchord.synthetic import look
from fedchord.synthetic.quality import real_beside
from fedchord.synthetic.set import load_set

OWNER, METRIC = "demo", "top1"
COMMON = {"data": "digits", "split": "pathological", "executor": "serial", "checkpoint_every": 0}
"""Two shards of the sorted rows make about two classes a client. The models are tiny: workers would only wait."""
TRAINING = {"clients": 20, "model": "twonn", "epochs": 2, "batch": 10, "lr": 0.1}
SEEDS = (0, 1, 2)
LEARNT = {METRIC: "the synthetic digits", "upper": "as many real digits", "lower": "synthetic, random labels"}
"""What a classifier learns from, by the metric that tells how well."""

Settings = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of the demo: methods, all with the same settings.

    No parameter of a method was tuned. The split and the cohort of the fair part are those of five trials in which
    AAggFF gained most over uniform weights; with five clients a round it gained nothing.
    """

    name: str
    title: str
    methods: tuple[str, ...]
    settings: Settings

    def config(self, method: str, seed: int, more: Settings) -> RunConfig:
        """The settings of one run."""
        return RunConfig.from_values({**COMMON, **self.settings, **more, "method": method, "seed": seed})

    def command(self) -> str:
        """What makes one of its runs again."""
        given = {"data": COMMON["data"], "split": COMMON["split"], **self.settings}
        return f"fedchord run method={self.methods[0]} {' '.join(f'{key}={value}' for key, value in given.items())}"


PERSONAL = Part(
    "personal",
    "1. Personal models: 20 clients with two classes each, 5 of them a round",
    ("fedavg", "fedavg-ft", "superfed-mm", "local"),
    TRAINING | {"rounds": 50, "cohort": 5, "eval_every": 5},
)
FAIR = Part(
    "fair",
    "2. Fair mixing: one model for the same 20 clients, all of them in every round",
    ("uniform", "q-fedavg", "aaggff-s"),
    TRAINING | {"rounds": 30, "cohort": "all", "eval_every": 0},
)
SYNTHETIC = Part(
    "synthetic",
    "3. A synthetic set: 10 clients with two classes each, all in every round",
    ("fedevg",),
    {"clients": 10, "model": "smallconv", "rounds": 20, "cohort": "all", "eval_every": 0},
)
PARTS = (PERSONAL, FAIR, SYNTHETIC)


def run_demo(out: str | Path = ".", progress: Progress | None = None, **more: Any) -> None:
    """Run the parts; print a table and a sentence of each, and write its figure. `more` are settings for all runs."""
    folder, start = ready(Path(out)), time.perf_counter()
    with TemporaryDirectory(prefix="fedchord-demo-") as kept, one_thread():
        runs = run_parts(Path(kept), more, progress or for_stream())
        for part in PARTS:
            found, figure = runs[part.name], folder / f"demo-{part.name}.png"
            draw(part, found, figure)
            tell(f"\n{part.title}")
            show(replace(tables(part, found), notes=()))
            tell(f"{SENTENCES[part.name](found)}\n")
            tell(f"figure: {figure}")
    tell(f"\nAccuracies are of clients on their own test rows; mean (std over {len(SEEDS)} seeds).")
    tell(
        "No parameter was tuned; the fair part has the split, of five tried, where AAggFF gains most: with 5 clients a "
        "round it gained nothing."
    )
    tell(f"Took {time.perf_counter() - start:.0f} s. The first run again, kept:")
    print(f"  {PERSONAL.command()} out=runs/demo")  # one line, to be copied


def ready(folder: Path) -> Path:
    """The folder for the figures, made if need be; refuses a file or a place where nothing can be written."""
    require(folder.is_dir() or not folder.exists(), OWNER, f"--out is a folder for the figures, {folder} is a file")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise fail(OWNER, f"nothing can be written to --out {folder} ({error.strerror})") from None
    return folder


def run_parts(kept: Path, more: Settings, progress: Progress) -> dict[str, list[Kept]]:
    """All runs of all parts, method by method."""
    todo = [(part, method, seed) for part in PARTS for method in part.methods for seed in SEEDS]
    found: dict[str, list[Kept]] = {part.name: [] for part in PARTS}
    progress.begin(OWNER, len(todo), unit="run")
    try:
        for done, (part, method, seed) in enumerate(todo, 1):
            place = kept / part.name / f"{method}-{seed}"
            for _ in Run(Parts.build(part.config(method, seed, more | {"out": str(place)})), report=lambda _: None):
                pass
            found[part.name].append(read(place))
            progress.update(done, method, found[part.name][-1].value(METRIC, "mean"))
    finally:
        progress.end()
    return found


def tables(part: Part, found: Sequence[Kept]) -> Table:
    """The table of `fedchord table`; for a synthetic set what its classifier reaches, between bounds."""
    if part is not SYNTHETIC:
        return tabulate(found, (METRIC,), ("mean", "worst10", "gini"))
    heads = (Head("a classifier learnt from"), Head(head_of(METRIC, "mean"), numbers=True))
    cells = {name: cell_of(estimate(found, metric, "mean"), metric, "mean") for metric, name in LEARNT.items()}
    return Table(heads, tuple((Cell(name), cell) for name, cell in cells.items()))


def draw(part: Part, found: Sequence[Kept], to: Path) -> None:
    """Curves over rounds, the clients from worst to best, or the samples beside real digits."""
    if part is not SYNTHETIC:
        plots.plot([run.folder for run in found], to, METRIC, "curves" if part is PERSONAL else "clients")
        return
    made, config = load_set(found[0].folder), RunConfig.from_toml(str(found[0].folder / "config.toml"), [])
    real = real_beside(config.federation(), made)
    look.write(look.sheet({"real": look.grid(real), config.method: look.grid(made)}), to)


# -- what it says --------------------------------------------------------------------------------------------------


def personal(found: Sequence[Kept]) -> str:
    """Whether SuPerFed is worth its second model, and whether learning together is worth anything here."""
    by = by_method(found, "mean")
    alone = f"local, which never talks to anyone, has {percent(by['local'])} %, {apart(by, 'local', 'superfed-mm')}"
    why = ": a client is only asked about its own two classes, which is easy" if leads(by, "local") else ""
    return (
        f"One model for all, fedavg's, is right on {percent(by['fedavg'])} % of a client's own rows. A few local steps "
        f"(fedavg-ft) make it {percent(by['fedavg-ft'])} %; SuPerFed has {percent(by['superfed-mm'])} %, "
        f"{apart(by, 'superfed-mm', 'fedavg-ft')}; {alone}{why}."
    )


def fair(found: Sequence[Kept]) -> str:
    """What the fair mixings do for the worst tenth of clients, beside equal weights."""
    by, mean = by_method(found, "worst10"), by_method(found, "mean")
    told = [f"{percent(by[name])} % with {name}, {apart(by, name, 'uniform')}" for name in by if name != "uniform"]
    return (
        f"The worst tenth of clients has {percent(by['uniform'])} % with equal weights, {', and '.join(told)}. "
        f"The mean is {', '.join(f'{percent(mean[name])} % with {name}' for name in mean)}."
    )


def synthetic(found: Sequence[Kept]) -> str:
    """What the synthetic digits are worth beside as many real ones."""
    asked = {name: estimate(found, metric, "mean") for metric, name in LEARNT.items()}
    by = {name: one for name, one in asked.items() if one is not None}
    made, real, chance = LEARNT.values()
    return (
        f"A classifier that saw nothing but {found[0].summary['synthetic']['samples']} synthetic digits is right on "
        f"{percent(by[made])} % of the clients' rows, {apart(by, made, real)}, which make {percent(by[real])} %; with "
        f"the labels dealt out at random it is {percent(by[chance])} %."
    )


SENTENCES = {"personal": personal, "fair": fair, "synthetic": synthetic}


def by_method(found: Sequence[Kept], column: str) -> dict[str, Estimate]:
    """Mean and spread over seeds of every method."""
    groups = {group.config["method"]: estimate(group.runs, METRIC, column) for group in rows.group(found)}
    return {name: one for name, one in groups.items() if one is not None}


def percent(one: Estimate) -> str:
    return f"{factor(METRIC, 'mean') * one.mean:.1f}"


def leads(by: dict[str, Estimate], name: str) -> bool:
    return by[name].mean == max(one.mean for one in by.values())


def apart(by: dict[str, Estimate], one: str, other: str) -> str:
    """The difference of two methods in words, and whether it is more than their spreads over seeds together."""
    gap = by[one].mean - by[other].mean
    which = "more" if gap > 0 else "less"
    beyond = "beyond" if abs(gap) > by[one].spread + by[other].spread else "within"
    return f"{100 * abs(gap):.1f} points {which} than {other} ({beyond} the spread over seeds)"
