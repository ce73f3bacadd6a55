"""Runs: from settings, or from objects in Python, to results, in a folder or without one; going on after a stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedchord import check
from fedchord.attacks.attack import Attack
from fedchord.check import FedchordError
from fedchord.core.round import Plan
from fedchord.core.rules import Algorithm
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.compress import Compress
from fedchord.engine.compress import asked as packed
from fedchord.engine.group import RANKS, group_of, started
from fedchord.engine.guards import Defence
from fedchord.engine.pages import read_once
from fedchord.engine.simulate import defended
from fedchord.engine.weather import Weather
from fedchord.engine.work import Work, pick_device
from fedchord.evaluation.choice import Chooser
from fedchord.evaluation.evaluate import checked
from fedchord.experiments.config import INDIFFERENT, RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.length import claimed
from fedchord.experiments.loggers import Logger, made
from fedchord.experiments.own import OwnConfig
from fedchord.experiments.parts import Parts
from fedchord.experiments.profile import profiled
from fedchord.experiments.progress import Progress, Silent, picked
from fedchord.experiments.repair import finished
from fedchord.experiments.session import Report, Run
from fedchord.metrics import Metric, check_kind, register
from fedchord.privacy.shield import drawing, shield
from fedchord.privacy.terms import Privacy
from fedchord.synthetic.learn import Judge

ALIKE = "processes, which would all do the same; add executor=ranks, or leave torchrun out"


def run(
    algorithm: Algorithm,
    task: Task,
    federation: Federation,
    *,
    rounds: int = 10,
    cohort: int | float = 1.0,
    seed: int = 0,
    training: Training | None = None,
    executor: str = "processes",
    workers: int | None = None,
    device: str = "auto",
    eval_every: int = 0,
    metrics: Sequence[str] | Mapping[str, Metric | None] | None = None,
    checkpoint_every: int = 10,
    judge: Judge | None = None,
    lambdas: tuple[float, ...] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
    progress: Progress | bool | None = None,
    loggers: Sequence[Logger] = (),
    weather: Weather | None = None,
    average: float = 0.0,
    choose: Chooser | None = None,
    eval_clients: int = 0,
    eval_all: bool = False,
    attack: Attack | None = None,
    defence: Defence | None = None,
    privacy: Privacy | None = None,
    compress: Compress | str | None = None,
) -> Run:
    """The run that the command makes, of your own objects: iterate over it, or call `finish`.

    `eval_every=0` evaluates after the last round only; `judge` and `lambdas` are the recipe for synthetic sets and the
    points of the lambda sweep. `metrics` are names, or names with functions of your own, {"top1": None, "cost": cost},
    of one client's scores (n, L) and labels (more is better; see `metrics.register`). With `out` everything is written
    to that folder, for tables, compare and plots; with `resume` an interrupted run of the same objects goes on there,
    to the bit-identical result, and with more `rounds` than it had a finished one does. `progress` (True, False) shows
    how far the run is; a notebook shows it unless told not to. `loggers` are told of every round
    (`experiments.loggers.Logger`: begin, round, end). In a `weather` clients are away and replies get lost. With
    `average` clients deploy the mean of the global models of that share of the rounds, the last ones. `choose` is what
    is chosen for all clients by the rows they hold out (`data.hold.hold_out`). With `eval_clients` so many clients are
    measured, always the same ones, and with `eval_all` all of them in the end. In an `attack` some clients are
    hostile, and results are those of the others; a `defence` says how the server takes uploads. With `privacy` what
    leaves clients is hidden by noise (`fedchord.privacy.terms.Privacy`). `compress` ("half", "bytes" or a `Compress`)
    sends uploads in fewer bytes.
    """
    check.whole("run", "eval_every", eval_every)
    check.whole("run", "checkpoint_every", checkpoint_every)
    asked = training or Training()
    names = _metrics(metrics)
    check_kind(names or (), federation.regression)
    packing = packed(compress)
    guarded = defended(algorithm, attack, defence, weather, privacy, packing)
    federation = federation if attack is None else attack.among(federation, seed)
    plan = Plan(rounds, cohort, seed, average=average, draw=drawing(privacy))
    hidden = shield(algorithm, privacy, task, federation, plan, asked)
    shielded = (hidden.guards, False, hidden.hiding, packing)
    work = Work.of(hidden.algorithm, hidden.task, federation, asked, seed, device, *shielded)
    config = OwnConfig(
        algorithm,
        task,
        federation,
        asked,
        plan,
        executor,
        workers,
        eval_every,
        checkpoint_every,
        judge or Judge(),
        names,
        lambdas,
        None if out is None else str(out),
        played=weather,
        choose=choose,
        eval_clients=check.whole("run", "eval_clients", eval_clients),
        eval_all=eval_all,
        attack=attack,
        guarded=guarded,
        privacy=privacy,
        compress=packing,
    )
    config.plan().size(federation.num_clients)
    if choose is not None:
        check.require(privacy is None, "run", "choose adds up losses on rows of clients, which privacy does not hide")
        choose.check(algorithm)
        check.require(federation.held is not None, "run", "choose needs rows that are held out: see data.hold_out")
    return Run(Parts(config, work, asked, metrics=names), resume, report, picked(progress), loggers)


def _metrics(asked: Sequence[str] | Mapping[str, Metric | None] | None) -> tuple[str, ...] | None:
    """The names of what is measured; functions beside them become known by their names."""
    for name, own in asked.items() if isinstance(asked, Mapping) else ():
        if own is not None:
            register(name, own)
    return None if asked is None else checked(tuple(asked))


def execute(
    config: RunConfig, resume: bool = False, report: Report | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Run settings to the end and return the summary; with `out` everything is written to that folder as well.

    With `resume` a run of the same settings in `out` is continued to the bit-identical result, and a finished one is
    returned as it is. `report` receives lines worth reading (by default `progress.say`). The first Ctrl-C ends the run
    after the current round with a checkpoint, the second at once; both raise `Stopped`.
    """
    say = report or (progress or Silent()).say
    group = group_of(config.executor)
    check.require(config.executor == RANKS or started() < 2, "run", f"torchrun started {started()} {ALIKE}")
    folder = RunFolder(config.out) if config.out and group.first else None

    def held() -> dict[str, Any] | None:
        if claimed(folder, config, resume) == config.rounds and folder and finished(folder):
            say(f"{folder.path} is finished; nothing was changed")
            return folder.read_summary()
        pick_device(config.device)
        return None

    summary = group.share(group.together(held))
    if summary is not None:
        return summary
    loggers = made(config.log or (), config.out) if group.first else ()

    def read() -> Federation:
        config.check_code()
        return config.federation()

    federation = read_once(group, read) if group.size > 1 else None
    run = Run(group.together(lambda: Parts.build(config, federation=federation)), resume, report, progress, loggers)
    return profiled(run.finish, config.out if folder else None, say) if config.profile else run.finish()


def resume(
    path: str | Path, pairs: Sequence[str] = (), report: Report | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Go on with the run in a folder; `pairs` may change what does not change the result (executor=serial, ...), and
    `rounds`, where a longer run begins with the same rounds: a finished run goes on."""
    config = RunFolder(path).read_config()
    new = config.with_pairs(pairs)
    old, free = config.values(), INDIFFERENT - {"out"} | {"rounds"}
    changed = [key for key, value in new.values().items() if key not in free and old.get(key) != value]
    if changed:
        raise FedchordError(f"resume: {', '.join(changed)} cannot be changed when a run goes on; start a new one")
    return execute(new, resume=True, report=report, progress=progress)
