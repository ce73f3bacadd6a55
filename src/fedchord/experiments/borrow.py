"""Runs of a study that train alike: the second begins with the rounds of the first, and measures what is its own.

Fine-tuned FedAvg trains as FedAvg does, a joint choice of lambda as one of the effort, the last model as the mean of
the last models, and 250 rounds as the first half of 500. What differs is what clients deploy, or how long it goes on.
So a run whose rounds a finished run of the same folder has done already starts from a copy of its last checkpoint, to
the bits that it would have had alone; `begun.txt` says from which one. Only where nothing is measured on the way
(eval_every=0).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fedchord.check import FedchordError
from fedchord.clients.finetune import FineTune
from fedchord.clients.plain import Plain
from fedchord.engine.checkpoint import load, save
from fedchord.engine.memory import ClientMemory
from fedchord.experiments.config import CODE, FREE, RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.length import unmeasured
from fedchord.files import write_text, written

NOTE = "begun.txt"
USE = ("average", "choose", "choose.epochs", "choose.lambdas", "choose.held", "choose.within")
"""Keys that do not change the rounds; that rows are held out of them does, and is asked for by itself."""


def training(config: RunConfig) -> str:
    """What the rounds of a run are made of, their number left out; "" where code of your own may look at anything."""
    if any(config.is_foreign(rule) for rule in CODE):
        return ""
    algorithm = replace(config.algorithm(), name="")
    if isinstance(algorithm.client, FineTune) and algorithm.client.form == "global":
        algorithm = replace(algorithm, client=Plain())
    free = [key for key in config.values() if key.split(".")[0] in FREE and key != "model"]
    held = config.held() if config.choose else 0.0
    return f"{config.fingerprint('rounds', *USE, *free)} {algorithm!r} {held}"


def serves(config: RunConfig, other: RunConfig) -> bool:
    """Whether a run begins with all rounds of another, finished one."""
    if config.average not in (None, other.average) or not training(config) == training(other) != "":
        return False
    shorter = other.rounds < config.rounds and not config.horizon and not other.horizon
    return (other.rounds == config.rounds or shorter) and config.choices()["eval_every"] == 0


def begin(config: RunConfig, finished: Iterable[Path]) -> Path | None:
    """Begin a run in its folder, which is not yet there, where one of these ends, the longest that serves; which?"""
    known = [(RunFolder(folder).read_config(), folder) for folder in finished]
    found = [(other.rounds, folder) for other, folder in known if serves(config, other)]
    if not found or config.out is None or Path(config.out).exists():
        return None
    _, source = max(found, key=lambda pair: pair[0])
    theirs, memory = RunFolder(source), ClientMemory()
    try:
        done = load(theirs.checkpoints, memory)
    except FedchordError:
        done = None
    if done is None:  # damaged, or thrown away to save room: the run does its rounds itself
        return None
    state = done.state if config.average else replace(done.state, sums={})
    with written(Path(config.out)) as partial:
        partial.mkdir()
        ours = RunFolder(partial)
        shutil.copyfile(theirs.outline, ours.outline)
        shutil.copytree(theirs.checkpoints / "memory", ours.checkpoints / "memory")
        save(ours.checkpoints, state, memory, config.fingerprint(), config.course())
        ours.write_rounds([unmeasured(line) for line in theirs.read_rounds()])
        write_text(partial / NOTE, f"rounds 1 to {state.round} are those of {source.name}\n")
        ours.begin(config)
    return source
