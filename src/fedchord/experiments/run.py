"""Runs: from settings to results, in a folder or without one; going on after an interruption; taking a model out."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from fedchord.check import FedchordError, require
from fedchord.core.rules import ServerState
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import Checkpoints, RoundResult, pick_device, simulate
from fedchord.evaluation.evaluate import Evaluation
from fedchord.experiments.config import INDIFFERENT, RunConfig
from fedchord.experiments.folder import Line, RunFolder
from fedchord.experiments.parts import Parts, headline
from fedchord.experiments.progress import Progress, Silent
from fedchord.experiments.summary import round_line, summarise
from fedchord.tensors import Tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

Report = Callable[[str], None]


class Stopped(KeyboardInterrupt):
    """The user stopped the run; the text says where it stands and how to go on."""


def execute(
    config: RunConfig, resume: bool = False, report: Report | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Run to the end and return the summary; with `out` everything is written to that folder as well.

    With `resume` a run of the same settings in `out` is continued to the bit-identical result, and a finished one is
    returned as it is. `report` receives lines worth reading (by default `progress.say`). The first Ctrl-C ends the run
    after the current round with a checkpoint, the second at once; both raise `Stopped`.
    """
    shown = progress or Silent()
    say = report or shown.say
    folder = RunFolder(config.out) if config.out else None
    going_on = _claim(folder, config, resume)
    if folder and going_on and folder.finished:
        say(f"{folder.path} is finished; nothing was changed")
        return folder.read_summary()
    pick_device(config.device)
    parts = Parts.build(config)
    if folder and not going_on:
        folder.begin(config)
    session = _Session(parts, folder, say, shown)
    try:
        return session.run(going_on)
    except FedchordError:
        if folder and not going_on and not session.lines:
            folder.discard()
        raise
    finally:
        shown.end()


def resume(
    path: str | Path, pairs: Sequence[str] = (), report: Report | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Go on with the run in a folder; `pairs` may change what does not change the result (executor=serial, ...)."""
    config = RunFolder(path).read_config()
    new = config.with_pairs(pairs)
    old, free = config.values(), INDIFFERENT - {"out"}
    changed = [key for key, value in new.values().items() if key not in free and old.get(key) != value]
    if changed:
        raise FedchordError(f"resume: {', '.join(changed)} cannot be changed when a run goes on; start a new one")
    return execute(new, resume=True, report=report, progress=progress)


def _claim(folder: RunFolder | None, config: RunConfig, resume: bool) -> bool:
    """Whether the folder holds this run and it is to be continued; refuses a folder that holds any other."""
    if folder is None:
        return False
    if resume and folder.holds_run and folder.read_config().fingerprint() == config.fingerprint():
        return True
    folder.refuse(config)
    return False


@dataclass
class _Session:
    """One stretch of a run: from its start, or from a checkpoint, to its end or an interruption."""

    parts: Parts
    folder: RunFolder | None
    say: Report
    shown: Progress
    lines: list[Line] = field(default_factory=list)
    start: float = field(default_factory=time.perf_counter)
    before: float = 0.0

    def run(self, going_on: bool) -> dict[str, Any]:
        """Train, evaluate, summarise."""
        logged, done = self._standing() if going_on else ([], 0)
        self.shown.begin(self.parts.algorithm.name, self.parts.config.rounds, done)
        with _interrupts() as asked, closing(self._simulate(going_on)) as results:  # type: ignore[type-var]
            try:
                last = self._train(results, logged, asked)
            except Stopped:
                raise
            except KeyboardInterrupt:
                raise self._abort() from None
        if last is None:
            state, memory = self._last_state(logged)
            evaluation: Evaluation | None = self.parts.measured(state, memory)
        else:
            state, memory, evaluation = last.state, last.memory, last.evaluation
        assert evaluation is not None
        swept, late = self.parts.swept(state, memory), self.parts.welcomed(state)
        if self.folder and evaluation.samples is not None:
            self.folder.write_samples(evaluation.samples)
        looked = self.parts.looked(evaluation, self.lines)
        summary = summarise(self.parts, evaluation, swept, self.lines, self._elapsed(), late, looked)
        if self.folder:
            self.folder.write_summary(summary)
        return summary

    def _standing(self) -> tuple[list[Line], int]:
        """The rounds that are written down, and after which round the run will probably go on."""
        assert self.folder is not None
        logged = self.folder.read_rounds()
        self.folder.drop_unlogged(len(logged))
        return logged, max(self.folder.checkpoint_rounds(), default=0)

    def _train(
        self, results: Iterator[RoundResult], logged: list[Line], asked: Callable[[], bool]
    ) -> RoundResult | None:
        """All rounds that are left; None if there were none."""
        result: RoundResult | None = None
        metric, value = "", None
        for result in self._guarded(results):
            if not self.lines:
                self._take_over(logged[: result.round - 1], result.round - 1)
            self._write(result)
            if result.evaluation is not None:
                metric = headline(tuple(result.evaluation.metrics))
                value = result.evaluation.mean(metric)
            self.shown.update(result.round, metric, value)
            if asked() and result.round < self.parts.config.rounds:
                raise self._stop(result)
        return result

    def _guarded(self, results: Iterator[RoundResult]) -> Iterator[RoundResult]:
        """The rounds; if samples diverge, the set of the last good round is kept before the error goes on."""
        last: ServerState | None = None
        try:
            for result in results:
                last = result.state
                yield result
        except FedchordError:
            if self.folder and self.parts.algorithm.outcome == "samples":
                last = last or self._resumed_from()
                if last is not None:
                    self.folder.write_samples(self.parts.drawn(last))
                    self.say(f"the set of round {last.round} is kept in {self.folder.samples}")
            raise

    def _resumed_from(self) -> ServerState | None:
        """The state in the newest checkpoint; None if there is none that can be read."""
        assert self.folder is not None
        try:
            found = checkpoint.load(self.folder.checkpoints, ClientMemory(), self.parts.config.fingerprint())
        except FedchordError:
            return None
        return found.state if found else None

    def _simulate(self, going_on: bool) -> Iterator[RoundResult]:
        parts, config, folder = self.parts, self.parts.config, self.folder
        plan = config.plan()
        checkpoints = None
        if folder:
            mark = config.fingerprint()
            checkpoints = Checkpoints(folder.checkpoints, config.checkpoint_every, going_on, mark)
        return simulate(
            parts.algorithm,
            parts.task,
            parts.federation,
            rounds=plan.rounds,
            cohort=plan.cohort,
            seed=plan.seed,
            training=parts.training,
            executor=config.executor,
            workers=config.workers,
            device=config.device,
            eval_every=config.choices()["eval_every"],
            checkpoints=checkpoints,
            judge=config.judged_by(),
            report=self.say,
        )

    def _take_over(self, kept: list[Line], done: int) -> None:
        """Take over the lines of the rounds before this session; later ones are computed again."""
        self.lines = kept
        self.before = kept[-1].get("elapsed", 0.0) if kept else 0.0
        if self.folder:
            self.folder.write_rounds(kept)
            if len(kept) < done:
                self.say(
                    f"{self.folder.rounds} has lost rounds {len(kept) + 1} to {done}; the results are not affected"
                )

    def _write(self, result: RoundResult) -> None:
        line = round_line(result, self._elapsed())
        self.lines.append(line)
        if self.folder:
            self.folder.add_round(line)
            if result.evaluation is not None and result.evaluation.samples is not None:
                self.folder.add_snapshot(result.evaluation.samples, result.round)

    def _elapsed(self) -> float:
        return self.before + time.perf_counter() - self.start

    def _stop(self, result: RoundResult) -> Stopped:
        """After the round in which Ctrl-C was pressed: keep a checkpoint and say how to go on."""
        folder, config = self.folder, self.parts.config
        where = f"stopped after round {result.round} of {config.rounds}"
        if folder is None:
            return self._told(f"{where}; nothing was kept, since the run has no out folder")
        if result.round not in folder.checkpoint_rounds():
            checkpoint.save(folder.checkpoints, result.state, result.memory, config.fingerprint())
        return self._told(f"{where}; {folder.hint}")

    def _abort(self) -> Stopped:
        """At the second Ctrl-C: say which checkpoint there is."""
        rounds = self.folder.checkpoint_rounds() if self.folder else []
        if self.folder is None or not rounds:
            return self._told("stopped at once; there is no checkpoint yet")
        return self._told(f"stopped at once; the last checkpoint is of round {rounds[-1]}; {self.folder.hint}")

    def _told(self, line: str) -> Stopped:
        self.shown.end()
        self.say(line)
        return Stopped(line)

    def _last_state(self, logged: list[Line]) -> tuple[ServerState, ClientMemory]:
        """The last round was done before this session, only the summary was not: it is measured once more."""
        assert self.folder is not None
        self._take_over(logged, self.parts.config.rounds)
        place = self.parts.task.device
        memory = ClientMemory(device=place)
        found = checkpoint.load(self.folder.checkpoints, memory, self.parts.config.fingerprint())
        assert found is not None
        return found.state.to(place), memory


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; the second time raises KeyboardInterrupt. Only the main thread can listen."""
    pressed = False

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        os.write(2, b"\nstopping after this round; Ctrl-C again stops at once\n")  # print is not safe in a handler

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, heard)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


def load_model(path: str | Path, client: int | None = None, report: Report = lambda line: None) -> Tensors:
    """The model of a run as a plain state_dict: the global one, or the one a client would use."""
    folder = RunFolder(path)
    config = folder.read_config()
    parts, memory = Parts.build(config, "cpu"), ClientMemory()
    clients = parts.federation.num_clients
    ends = parts.algorithm.outcome == "model"
    require(ends, "export", f"{config.method} ends with samples, not with a model; write fedchord synth export {path}")
    if client is None:
        shares = bool(parts.algorithm.client.mixes)
        require(shares, "export", f"{config.method} has no shared model; name a client")
    else:
        require(0 <= client < clients, "export", f"client must be a number from 0 to {clients - 1}, got {client}")
    found = checkpoint.load(folder.checkpoints, memory, config.fingerprint())
    if found is None:
        raise FedchordError(f"{path}: has no checkpoint yet")
    for problem in found.problems:
        report(f"{problem}; taking the one before")
    report(f"{config.method} after round {found.state.round} of {config.rounds}")
    model = found.state.broadcast if client is None else parts.deployed(found.state, memory, client)
    if client is not None and found.state.visits[client] == 0:
        report(f"client {client} was never sampled")
    whole = len(model["theta"]) == parts.task.layout.size
    require(whole, "export", f"{config.method} shares only a part of the model; name a client")
    return parts.task.state_dict(model["theta"], model["buffers"])
