"""Another number of rounds for a run that has begun: who may have it, and in which order it is written down.

A run of 50 rounds, finished or not, goes on to 100, to the bits that a run of 100 would have had. That holds where no
rule asks for the number of all rounds (`Algorithm.horizon`). The summary of the shorter run is put aside first, then
the settings are replaced: each step is one rename, and after each of them the folder holds a run that can go on, first
the old one without its summary, then the new one.
"""

from __future__ import annotations

from fedchord.check import fail, require
from fedchord.engine.executors import Executor
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.parts import Parts, Settings
from fedchord.experiments.reading import Line
from fedchord.experiments.summary import measures

OWNER = "resume"
MEASURES = ("metrics", "left_out")
"""What the line of a round says about its evaluation."""


def claimed(folder: RunFolder | None, config: Settings, resume: bool) -> int | None:
    """How many rounds the run in the folder has, if it is this one, to be continued; None where a run is to begin.

    Refuses a folder that holds any other run, one where another process is at work, and another number of rounds where
    that would be another run.
    """
    if folder is None:
        return None
    folder.lock.check()
    if not (resume and folder.holds_run and folder.fingerprint(config.rounds) == config.fingerprint()):
        folder.refuse(config.fingerprint())
        return None
    held = folder.planned()
    if held != config.rounds:
        _check(folder, config, held)
    return held


def _check(folder: RunFolder, config: Settings, held: int) -> None:
    done = held if folder.finished else folder.done()
    told = f"{folder.path} has done {done} rounds; rounds must be at least that, got {config.rounds}"
    require(config.rounds >= done, OWNER, told)
    which = "longer" if config.rounds > held else "shorter"
    require(not config.horizon, OWNER, f"{config.method} {config.horizon}; a {which} run is another run")


def change(folder: RunFolder, parts: Parts, fitted: Fitted) -> None:
    """Give the run in a folder the number of rounds of its new settings; it is locked, and `fitted` is where it is."""
    if fitted.work.asks_rounds(fitted.state, parts.config.plan()):
        told = f"a rule of {parts.config.method} asks for the number of all rounds (RoundInfo.rounds)"
        raise fail(OWNER, f"{told} and says in no `horizon` what for; another number may be another run")
    folder.put_aside()
    folder.begin(parts.config)


def unmeasured(line: Line) -> Line:
    """The line of a round without what was measured after it."""
    return {key: value for key, value in line.items() if key not in MEASURES}


def settled(line: Line, every: int, parts: Parts, fitted: Fitted, pool: Executor) -> Line:
    """The line of the round a run goes on from, as a run of its number of rounds has it.

    The last round of a shorter run was measured as the last: due or not, and all clients, also those that an evaluation
    on the way leaves out. Any other line stays as it is.
    """
    if not (every > 0 and fitted.state.round % every == 0):
        return unmeasured(line)
    if parts.algorithm.outcome == "samples":
        waiting, clients = 0, 1
    else:
        clients = len(fitted.clients())
        waiting = sum(fitted.waits(client) for client in fitted.clients())
    wanted = {"metrics"} if not waiting else {*MEASURES} if waiting < clients else set()
    if wanted == line.keys() & {*MEASURES}:
        return line
    evaluation, _ = parts.measured(parts.chosen(fitted, pool)[0], pool, last=False)
    return unmeasured(line) | measures(evaluation)
