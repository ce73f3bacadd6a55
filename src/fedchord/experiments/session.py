"""A run under way: it trains by the loop of `simulate` and does the rest itself.

After a round it evaluates, writes a checkpoint and a line, and warns; at the end it sweeps, measures newcomers and sums
up: all in the workers of one executor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedchord import notebook
from fedchord.check import FedchordError, Unwritten, require, warn
from fedchord.core import clock
from fedchord.core.round import open_run
from fedchord.core.rules import SamplesRule, ServerState
from fedchord.engine.attendance import TooFew
from fedchord.engine.checkpoint import Checkpoints, add_course
from fedchord.engine.executors import Executor
from fedchord.engine.group import Lost, group_of
from fedchord.engine.guards import FAULTS, Diverged, outgrown
from fedchord.engine.memory import ClientMemory
from fedchord.engine.ranks import RankMemory
from fedchord.engine.simulate import RoundResult
from fedchord.evaluation.evaluate import Evaluation
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments import shown
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.interrupts import Stopped, interrupts
from fedchord.experiments.length import change, claimed, settled, unmeasured
from fedchord.experiments.loggers import Logger, Loggers
from fedchord.experiments.parts import Parts, headline
from fedchord.experiments.progress import Progress, Silent
from fedchord.experiments.reading import Line
from fedchord.experiments.repair import Standing, finished, lost, name_damage, spans
from fedchord.experiments.round import Round
from fedchord.experiments.summary import as_chosen, measures, round_line, summarise
from fedchord.synthetic.set import drawn

Report = Callable[[str], None]


class Run:
    """A run: iterating over it does the rounds that are left. Afterwards it has `summary`, `fitted` and `evaluation`.

    A finished run that is resumed has no rounds left, and its summary as it was written.
    """

    def __init__(
        self,
        parts: Parts,
        resume: bool = False,
        report: Report | None = None,
        progress: Progress | None = None,
        loggers: Iterable[Logger] = (),
    ) -> None:
        ends, tests = parts.algorithm.outcome, len(parts.federation.test.rows)
        name = parts.federation.name
        require(tests > 0 or ends != "model", name, "no client has test rows; clients need two rows or more")
        self.parts, self._group = parts, group_of(parts.config.executor)
        if not self._group.first:  # the first process of a job writes and tells
            report, progress, loggers = None, None, ()
        self.summary: dict[str, Any] | None = None
        self.fitted: Fitted | None = None
        self.evaluation: Evaluation | None = None
        self._shown = progress or Silent()
        self._say = report or self._shown.say
        self._heard = bool(report or progress)
        self._loggers = Loggers(loggers, self._say if self._heard else None)
        self._folder = RunFolder(parts.config.out) if parts.config.out and self._group.first else None
        self._every: int = parts.config.choices()["eval_every"]
        marks = (parts.config.fingerprint(), parts.config.course()) if self._folder else ()
        home = self._folder.checkpoints if self._folder else Path()
        self._checkpoints = Checkpoints(home, parts.config.checkpoint_every, *marks)
        self._held = self._group.together(lambda: claimed(self._folder, parts.config, resume))
        self._going_on = self._held is not None
        self._lines: list[Line] = []
        self._before, self._start, self._warned = 0.0, time.perf_counter(), False
        self._paced = False  # whether lines of an earlier stretch were measured as often as now
        self._reached: tuple[ServerState, ClientMemory] | None = None

    def __repr__(self) -> str:
        measured = shown.first(shown.latest(self._lines, self.summary))
        return f"Run({notebook.one_line(self._title)}: {self._state}{measured and f', {measured}'})"

    def _repr_html_(self) -> str:
        """Where the run stands: its metrics and the curve of the first."""
        return shown.page(self._title, self._state, self._lines, self.summary)

    @property
    def _title(self) -> str:
        return f"{self.parts.algorithm.title} on {self.parts.federation.name}"

    @property
    def _state(self) -> str:
        begun = "to go on" if self._going_on else "not started"
        return shown.state(self._lines, self.summary, self.parts.config.rounds) or begun

    def __iter__(self) -> Iterator[Round]:
        return self._session(lambda: False)

    def finish(self) -> dict[str, Any]:
        """Do all rounds that are left and return the summary; Ctrl-C ends it after a round, with a checkpoint."""
        with interrupts(told=self._group.first) as asked:
            try:
                for _ in self._session(asked):
                    pass
            except Stopped:
                raise
            except KeyboardInterrupt:
                raise self._abort() from None
        assert self.summary is not None
        return self.summary

    # -- one stretch: from the start, or from a checkpoint, to the end or an interruption ---------------------------

    def _session(self, asked: Callable[[], bool]) -> Iterator[Round]:
        if self.summary is not None:
            return
        folder, parts = self._folder, self.parts
        self._start = time.perf_counter()
        if folder:
            self._occupy(folder)
        try:
            standing = self._standing()
            state, memory = self._opened(standing.latest)
            if folder and self._going_on and self._lengthened:
                change(folder, parts, Fitted(parts.work, state, memory))
                self._held = parts.config.rounds
            done = bool(folder and self._going_on and folder.finished and state.round == parts.config.rounds)
            opened = done, state, standing.lines, self._paced
            done, state, lines, self._paced = self._group.share(opened)  # one process reads, all walk the same course
            memory = RankMemory.of(memory, self._group)
            if done:
                self._lines = lines
                self._read(state, memory)
                return
            parts.work.rehearse(state, parts.config.plan())
            self._shown.begin(parts.algorithm.title, parts.config.rounds, state.round)
            self._loggers.open(lambda: self._facts(state.round))
            yield from self._rounds(state, memory, lines, asked)
        except Unwritten as error:
            raise Unwritten(f"{error}; {folder.hint}" if folder else str(error)) from None
        except FedchordError as error:
            if folder and not self._going_on and not self._lines:
                folder.discard()
            elif isinstance(error, Lost):
                raise Lost(f"{error}; {self._left()}") from None
            elif folder and isinstance(error, TooFew):
                raise type(error)(f"{error}; {self._left()}") from None
            raise
        finally:
            self._going_on = True  # what comes next goes on from here
            self._loggers.close()
            if folder:
                folder.lock.give_back()
            self._shown.end()

    def _occupy(self, folder: RunFolder) -> None:
        """Lock the folder for this stretch, and begin there if it is the first; a finished run is only read."""
        if self._going_on and finished(folder) and not self._lengthened:
            return
        folder.occupy()
        try:
            if not self._going_on:
                folder.refuse(self._checkpoints.fingerprint)  # once more: now nobody else can begin there
                self._begin(folder)
            elif self._lengthened:
                self._held = claimed(folder, self.parts.config, resume=True)  # once more, for the same reason
                add_course(folder.checkpoints, folder.fingerprint(), self._checkpoints.course)
        except BaseException:
            folder.lock.give_back()
            raise

    def _begin(self, folder: RunFolder) -> None:
        try:
            folder.write_outline(self.parts.federation, ranges=self.parts.algorithm.outcome == "samples")
            folder.begin(self.parts.config)
        except BaseException:
            folder.discard()
            raise

    @property
    def _lengthened(self) -> bool:
        """Whether the run in the folder is to have another number of rounds."""
        return self._held not in (None, self.parts.config.rounds)

    def _rounds(
        self, state: ServerState, memory: ClientMemory, logged: list[Line], asked: Callable[[], bool]
    ) -> Iterator[Round]:
        parts, plan = self.parts, self.parts.config.plan()
        pool = parts.staffed(state, self._say)
        last: Round | None = None
        try:
            kept = [line for line in logged if line["round"] <= state.round]
            self._take_over(kept, Fitted(parts.work, state, memory), pool)
            begun = Fitted(parts.work, state, memory)
            for result in self._guarded(clock.over(clock.OTHER, parts.rounds(pool, state, memory)), begun):
                last = self._done(result, pool)
                yield last
                if last.round < plan.rounds and self._group.any(asked()):
                    raise self._stop(last)
            with clock.span(clock.EVALUATION):
                self._end(last, begun, pool)
        finally:
            pool.close()

    def _opened(self, latest: int | None) -> tuple[ServerState, ClientMemory]:
        """Where the run begins: at its start, or at its newest checkpoint of a round up to `latest`."""
        work = self.parts.work
        if self._reached is not None and not self.parts.config.out:  # iterated before, and nothing was written
            return self._reached
        memory = ClientMemory(device=work.task.device)
        found = self._checkpoints.load(memory, latest) if self._folder and self._going_on else None
        for problem in found.problems if found else ():
            self._say(f"{problem}; going on from the one before")
        if found:
            rounds, last = self.parts.config.rounds, found.state.round
            require(last <= rounds, str(self._checkpoints.folder), f"is of round {last}, but the run has {rounds}")
            return found.state.to(work.task.device), memory
        first = open_run(work.algorithm, work.task, work.federation.num_clients, self.parts.config.plan())
        return first.to(work.task.device), memory

    def _standing(self) -> Standing:
        """The rounds that are written down; what is damaged is named."""
        folder = self._folder
        if folder is None or not self._going_on:
            return Standing(self._lines)
        self._paced = folder.read_values().get("eval_every") == self._every
        found = Standing.of(folder)
        if not finished(folder):
            for line in name_damage(folder, found):
                self._say(line) if self._heard else warn("run", line)
            if found.latest is not None:
                self._say(f"{folder.rounds} lacks rounds; they are done again from round {found.latest + 1} on")
        return found

    def _done(self, result: RoundResult, pool: Executor) -> Round:
        """Everything that follows a round: evaluation, checkpoint, line, warning."""
        rounds, evaluation, made, choice = self.parts.config.rounds, None, None, None
        last = result.round == rounds
        if last or (self._every > 0 and result.round % self._every == 0):
            with clock.span(clock.EVALUATION):
                fitted, choice = self.parts.chosen(Fitted.of(result), pool)
                evaluation, made = self.parts.measured(fitted, pool, last)
            self._watch(result.round, evaluation, last)
        if self._checkpoints.due(result.round, rounds):
            with clock.span(clock.WRITING):
                self._save(result.state, result.memory)
        plain = {part.name: getattr(result, part.name) for part in fields(RoundResult)}
        done = Round(**plain, evaluation=evaluation, samples=made, choice=choice)
        self._reached = result.state, result.memory
        self._write(done)
        self._warn(done)
        return done

    def _keep(self, state: ServerState, memory: ClientMemory) -> None:
        """Write a checkpoint of a round unless it has one."""
        folder = self._folder
        if self._group.share(folder is not None and state.round not in folder.checkpoint_rounds()):
            self._save(state, memory)

    def _save(self, state: ServerState, memory: ClientMemory) -> None:
        """Write a checkpoint, if the run has a folder; in a job by one process, of what all keep."""
        if self.parts.config.out:
            memory.collect()
        if self._folder:
            self._folder.flush_rounds()  # those before it cannot be had again once the checkpoint is there
            self._checkpoints.save(state, memory)

    def _watch(self, round: int, evaluation: Evaluation | None, last: bool) -> None:
        """End a run early whose losses have grown beyond measure; after the last round it is only told."""
        losses = None if evaluation is None else evaluation.per_client.get("loss")
        factor = self.parts.config.defence().grown
        told = "" if losses is None else outgrown(round, losses, self._lines, factor)
        if told and not last:
            raise Diverged(told)
        if told:
            self._say(told)

    def _warn(self, done: Round) -> None:
        """Updates that were left out; the first alarm of a rule that makes samples."""
        for client, cause in done.missing.items():
            if cause.startswith(FAULTS):
                self._say(f"round {done.round}: the update of client {client} was left out ({cause})")
        rule = self.parts.algorithm.client
        if isinstance(rule, SamplesRule) and not self._warned and (alarm := rule.alarm(done.log)):
            self._say(f"round {done.round}: {alarm}")
            self._warned = True

    def _write(self, done: Round) -> None:
        line = round_line(done, done.evaluation, self._elapsed())
        self._lines.append(line)
        if self._folder:
            if done.samples is not None:
                self._folder.add_snapshot(done.samples, done.round)
            self._folder.add_round(line)  # last: a round with a line is not done again
        self._loggers.round(line)
        metric = headline(tuple(done.evaluation.metrics)) if done.evaluation else ""
        self._shown.update(done.round, metric, done.evaluation.mean(metric) if done.evaluation else None)

    def _end(self, last: Round | None, begun: Fitted, pool: Executor) -> None:
        """Sweep, newcomers, synthetic set, summary; a run whose last round was done before is measured once more."""
        parts = self.parts
        fitted, choice = parts.chosen(begun, pool) if last is None else (last.fitted, last.choice)
        evaluation, made = (None, None) if last is None else (last.evaluation, last.samples)
        if evaluation is None:
            evaluation, made = parts.measured(fitted, pool)
            self._measured_at_last(measures(evaluation))
        assert evaluation is not None  # somebody is measured at the end
        swept, late = parts.swept(fitted, executor=pool), parts.welcomed(fitted, pool)
        if self._folder and made is not None:
            self._folder.write_samples(made)
        looked = parts.looked(made, evaluation, self._lines)
        held = parts.validated(fitted, pool)
        summary = summarise(parts, evaluation, swept, self._lines, self._elapsed(), late, looked, held, choice)
        if self._folder:
            self._folder.write_summary(summary)
        self._loggers.end(summary)
        self.summary, self.fitted, self.evaluation = summary, fitted, evaluation

    def _measured_at_last(self, found: Line) -> None:
        """Put what was measured after the last round into its line, where the round was done before."""
        if self._lines and self._lines[-1]["round"] == self.parts.config.rounds:
            self._lines[-1] = unmeasured(self._lines[-1]) | found
            if self._folder:
                self._folder.write_rounds(self._lines)

    def _read(self, state: ServerState, memory: ClientMemory) -> None:
        """The results of a run that is finished already."""
        self._say(f"{self.parts.config.out} is finished; nothing was changed")
        self.summary = self._group.share(self._folder.read_summary() if self._folder else {})
        self.fitted = as_chosen(Fitted(self.parts.work, state, memory), self.summary)

    def _guarded(self, results: Iterator[RoundResult], last: Fitted) -> Iterator[RoundResult]:
        """The rounds; where they end early, a checkpoint of the last good one is kept before the error goes on, and the
        set where the outcome is samples."""
        try:
            for result in results:
                last = Fitted.of(result)
                yield result
        except FedchordError as error:
            if isinstance(error, TooFew) and self._reached is not None:
                self._keep(*self._reached)
            if self._folder and self.parts.algorithm.outcome == "samples" and last.state.round:
                self._folder.write_samples(drawn(last))
                self._say(f"the set of round {last.state.round} is kept in {self._folder.samples}")
            raise

    def _take_over(self, kept: list[Line], begun: Fitted, pool: Executor) -> None:
        """Take over the lines of the rounds before this session; later ones are computed again."""
        done = begun.state.round
        if kept and kept[-1]["round"] == done < self.parts.config.rounds and self._paced:
            kept[-1] = settled(kept[-1], self._every, self.parts, begun, pool)
        self._lines = kept
        self._before = kept[-1].get("elapsed", 0.0) if kept else 0.0
        if self._folder and self._going_on:
            self._folder.write_rounds(kept)
            if gone := lost(kept, done):
                told = "the metrics are not affected, seconds and bytes count the others only"
                self._say(f"{self._folder.rounds} has lost rounds {spans(gone)}; {told}")

    def _facts(self, done: int) -> dict[str, Any]:
        """What loggers are told at the beginning."""
        config = self.parts.config
        return {"config": config.values(), "out": config.out, "rounds": config.rounds, "done": done}

    def _elapsed(self) -> float:
        return self._before + time.perf_counter() - self._start

    # -- interruptions ----------------------------------------------------------------------------------------------

    def _stop(self, done: Round) -> Stopped:
        """After the round in which Ctrl-C was pressed: keep a checkpoint and say how to go on."""
        folder, config = self._folder, self.parts.config
        where = f"stopped after round {done.round} of {config.rounds}"
        self._keep(done.state, done.memory)
        if folder is None:
            return self._told(f"{where}; nothing was kept, since the run has no out folder")
        return self._told(f"{where}; {folder.hint}")

    def _abort(self) -> Stopped:
        """At the second Ctrl-C: say which checkpoint there is."""
        return self._told(f"stopped at once; {self._left()}")

    def _left(self) -> str:
        """What there is to go on from."""
        rounds = self._folder.checkpoint_rounds() if self._folder else []
        if self._folder is None or not rounds:
            return "there is no checkpoint yet"
        return f"the last checkpoint is of round {rounds[-1]}; {self._folder.hint}"

    def _told(self, line: str) -> Stopped:
        self._shown.end()
        self._say(line)
        return Stopped(line)
