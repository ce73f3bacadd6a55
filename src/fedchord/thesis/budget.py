"""The runs that cells of the thesis still lack, the empty and the cheapest first, within a budget of hours.

Every run is made in a work folder, from which it goes on after an interruption; when it is finished, its small part is
kept (results.py) and the folder goes. At the scale `smoke` nothing is kept: it only asks whether everything runs.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from fedchord.check import require
from fedchord.experiments import cost, study
from fedchord.experiments.config import INDIFFERENT
from fedchord.experiments.settings import parse_pairs
from fedchord.report.study_table import told
from fedchord.thesis import cells, results
from fedchord.thesis.cells import Kept

if TYPE_CHECKING:
    from fedchord.experiments.progress import Progress
    from fedchord.experiments.study import Job, Outcome

SMOKE = "smoke"
FREE = INDIFFERENT - {"out"}
"""Run keys that may be given: none of them changes a result."""


@dataclass
class Todo:
    """A run that is to be made: whose it is, which metrics of clients are kept, how long, for how many cells, and
    whether one of these has nothing."""

    job: Job
    table: str
    metrics: dict[str, None]
    seconds: float
    missing: list[str]
    cells: int = 0
    empty: bool = False


def todo(tables: Sequence[str], scale: str, kept: Kept, again: bool = False, pairs: Sequence[str] = ()) -> list[Todo]:
    """Runs that cells lack: those of cells that have nothing first, then the cheapest for a cell.

    A cell lacks a run of which nothing is kept unless it has a better one (`_lacks`). Results of another version count
    as none with `again`. At the scale smoke every run is made.
    """
    changes: dict[str, Any] = dict(parse_pairs(pairs))
    for key in changes:
        require(key in FREE, "thesis run", f"{key} would change the results; only {', '.join(sorted(FREE))} can be set")
    found: dict[str, Todo] = {}
    for table in tables:
        plan = cells.plan(table, scale)
        for job in plan.jobs:
            done = kept.has(job) if scale != SMOKE else None
            if done is not None and not done.copied and (done.is_current or not again):
                continue
            mark = job.config.fingerprint()
            own = [cell for cell in cells.cells(table) if cell.key == (job.method, job.setting)]
            states = {cell: cells.state(cell, kept) for cell in own}
            if scale != SMOKE and not again:
                own = [cell for cell in own if _lacks(states[cell], job)]
            if not own:
                continue
            if mark not in found:
                changed = replace(job, config=job.config.with_values(**changes)) if changes else job
                found[mark] = Todo(changed, table, {}, cost.seconds(job.config), cost.missing(job.config))
            found[mark].metrics |= dict.fromkeys(cell.metric for cell in own)
            found[mark].cells += len(own)
            found[mark].empty |= any(states[cell].state == cells.NONE for cell in own)
    return sorted(found.values(), key=lambda one: (not one.empty, one.seconds / one.cells, one.table, one.job.folder))


def _lacks(now: cells.State, job: Job) -> bool:
    """Whether a run would tell more of a cell than what is kept of it: nothing, numbers without runs, less of a run."""
    if now.state == cells.FULL:
        return False
    kept = [one for one in now.results if not one.copied]
    lengths = [one.config.rounds * one.config.epochs for one in kept if one.seed == job.config.seed]
    return max(lengths, default=0) < job.config.rounds * job.config.epochs


def part_of(runs: Sequence[Todo], part: str) -> list[Todo]:
    """The runs of one part of several, such as 3/10; a run is always in the same part."""
    number, slash, parts = part.partition("/")
    good = slash and number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)
    require(bool(good), "thesis run", f"part must be like 3/10, got {part!r}")
    return [one for one in runs if int(one.job.config.fingerprint()[:8], 16) % int(parts) == int(number) - 1]


def run(
    runs: Sequence[Todo],
    scale: str,
    work: Path,
    folder: Path,
    hours: float | None = None,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> Outcome:
    """Make runs one after another until the budget is spent; the last one stops after a round and can go on."""
    end = None if hours is None else time.monotonic() + 3600 * hours
    outcome = study.Outcome(len(runs))
    for place, one in enumerate(runs, 1):
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            outcome.interrupted = True
            break
        plan = replace(cells.plan(one.table, scale), jobs=(one.job,))
        if scale == SMOKE and one.job.is_done(work):
            outcome.skipped += 1
            continue
        say(f"{one.table}, {place} of {len(runs)}, about {cost.told(one.seconds)}:")
        with _alarm(left):
            came = study.run(plan, work, say=say, progress=progress, told=told)
        outcome.done += came.done + came.skipped
        for message, names in came.failed.items():
            outcome.failed.setdefault(message, []).extend(names)
        if came.interrupted:
            outcome.interrupted = True
            break
        if not came.failed and scale != SMOKE:
            results.keep(one.job, plan.study.name, [*one.metrics], work / one.job.folder, folder)
            shutil.rmtree(work / one.job.folder)
    return outcome


@contextmanager
def _alarm(seconds: float | None) -> Iterator[None]:
    """SIGTERM after some time, which ends a run after its round; where no run listens it is a KeyboardInterrupt."""

    def heard(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, heard)
    timer = None if seconds is None else threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        signal.signal(signal.SIGTERM, before)
