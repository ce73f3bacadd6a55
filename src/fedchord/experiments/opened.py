"""A run folder as it stands: its last checkpoint with what is known of its data, and its rows only where need be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedchord.check import FedchordError, require
from fedchord.data import outline
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.parts import Parts
from fedchord.experiments.reading import NOWHERE
from fedchord.experiments.summary import as_chosen

Report = Callable[[str], None]
CODE = ("method", "mixing", "server", "model")
"""The code of your own that must be what the run was begun with, where the data are not read."""


def opened(here: RunFolder, config: RunConfig, report: Report) -> Fitted:
    """The last checkpoint, without a row of the data; they are read where the folder does not tell about them."""
    config.check_code(CODE)
    memory = ClientMemory()
    found = checkpoint.load(here.checkpoints, memory, here.fingerprint(), config.course())
    if found is None:
        raise FedchordError(f"{here.path}: has no checkpoint yet")
    for problem in found.problems:
        report(f"{problem}; taking the one before")
    if not here.outline.exists():
        return _deployed(Fitted(Parts.build(config, "cpu").work, found.state, memory), here, config)
    federation = outline.load(here.outline)
    work = Work.of(
        config.algorithm(),
        config.task(federation),
        federation,
        config.training(),
        config.seed,
        "cpu",
        central=bool(config.central),
    )
    return _deployed(Fitted(work, found.state, memory), here, config)


def _deployed(fitted: Fitted, here: RunFolder, config: RunConfig) -> Fitted:
    """What clients deploy, after their choice where one was made."""
    if config.chooser() is None:
        return fitted
    told = "is not finished, and what its clients choose is known when it is"
    require(here.finished, str(here.path), told)
    return as_chosen(fitted, here.read_summary())


def with_rows(fitted: Fitted, config: RunConfig) -> Fitted:
    """The same with the rows, read anew: for rules that train before use, and for BatchNorm statistics of a client."""
    require(config.data != NOWHERE, "run", "the clients' rows and private models are where they are, not here")
    work = Parts.build(config, "cpu").work
    if config.chooser() is None:
        return replace(fitted, work=work)
    return replace(fitted, work=replace(work, algorithm=fitted.work.algorithm, federation=work.federation.whole()))
