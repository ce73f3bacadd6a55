"""How far a run is: a bar in a terminal, a line in a notebook, a few plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
import sys
import time
import uuid
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from fedchord import notebook

if TYPE_CHECKING:
    import rich.progress

LINES = 15
"""About how many lines a run prints where there is no terminal."""


class Progress(Protocol):
    """What a run tells while it goes on."""

    def begin(self, label: str, rounds: int, done: int = 0, unit: str = "round") -> None:
        """Something of so many rounds (or other units) starts, or goes on after `done` of them."""

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        """A round has ended; the metric is the newest one measured."""

    def say(self, line: str) -> None:
        """A line worth reading."""

    def end(self) -> None:
        """The run is over, in whatever way."""


class Silent:
    """Says nothing."""

    def begin(self, label: str, rounds: int, done: int = 0, unit: str = "round") -> None: ...

    def update(self, round: int, metric: str = "", value: float | None = None) -> None: ...

    def say(self, line: str) -> None: ...

    def end(self) -> None: ...


class Lines:
    """Plain lines, about fifteen over a run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rounds = self._done = 0
        self._start, self._unit = 0.0, "round"

    def begin(self, label: str, rounds: int, done: int = 0, unit: str = "round") -> None:
        self._rounds, self._done, self._unit, self._start = rounds, done, unit, time.perf_counter()
        self.say(f"{label}: {rounds} {unit}s" + (f", going on after {unit} {done}" if done else ""))

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        every = math.ceil(self._rounds / LINES)
        if round % every and round != self._rounds:
            return
        measured = "" if value is None else f": {metric} {value:.4f}"
        rest = left(self._start, self._done, round, self._rounds)
        self.say(f"{self._unit} {round} of {self._rounds}{measured}{rest}")

    def say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def end(self) -> None: ...


class Bar:
    """A bar in a terminal, drawn anew after each round (no thread of its own: workers are forked beside it)."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None

    def begin(self, label: str, rounds: int, done: int = 0, unit: str = "round") -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.end()
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metric]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            auto_refresh=False,
        )
        self._task = self._bar.add_task(label, total=rounds, completed=done, metric="")
        self._bar.start()
        self._bar.refresh()

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        if self._bar is None or self._task is None:
            return
        measured = {} if value is None else {"metric": f"{metric} {value:.4f}"}
        self._bar.update(self._task, completed=round, refresh=True, **measured)  # type: ignore[arg-type]

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Cell:
    """A bar and a line in a notebook, drawn anew in their place; ten times a second at the most."""

    OFTEN = 0.1

    def __init__(self, shell: Any) -> None:
        self._shell, self._id, self._drawn = shell, "", 0.0
        self._label, self._unit, self._metric = "", "round", ""
        self._rounds = self._done = self._round = 0
        self._start = 0.0

    def begin(self, label: str, rounds: int, done: int = 0, unit: str = "round") -> None:
        self.end()
        self._label, self._rounds, self._unit, self._metric = label, rounds, unit, ""
        self._done = self._round = done
        self._start, self._id = time.perf_counter(), uuid.uuid4().hex
        self._draw(left(self._start, done, done, rounds), update=False)

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        self._round = round
        self._metric = self._metric if value is None else f", {metric} {value:.4f}"
        if time.perf_counter() - self._drawn >= self.OFTEN:
            self._draw(left(self._start, self._done, round, self._rounds))

    def say(self, line: str) -> None:
        print(line, flush=True)

    def end(self) -> None:
        if self._id:
            took = duration(time.perf_counter() - self._start)
            self._draw(f", {took}" if self._round == self._rounds else f", stopped after {took}")
            self._id = ""

    def _draw(self, rest: str, update: bool = True) -> None:
        line = f"{self._label}: {self._unit} {self._round} of {self._rounds}{self._metric}{rest}"
        bar = f'<progress value="{self._round}" max="{self._rounds}"></progress>'
        drawn = {"text/plain": line, "text/html": f"<div>{bar} {escape(line)}</div>"}
        self._shell.display_pub.publish(drawn, transient={"display_id": self._id}, update=update)
        self._drawn = time.perf_counter()


def picked(asked: Progress | bool | None) -> Progress | None:
    """What `fedchord.run` shows: in a notebook a line unless told otherwise, elsewhere nothing unless asked for."""
    if asked is not None and not isinstance(asked, bool):
        return asked
    shell = notebook.shell()
    if asked is False or (asked is None and shell is None):
        return None
    return for_stream() if shell is None else Cell(shell)


def for_stream(stream: TextIO | None = None) -> Progress:
    """A bar if the stream (standard error unless given) is a terminal, else plain lines."""
    stream = stream or sys.stderr
    if not stream.isatty():
        return Lines(stream)
    bar = Bar(stream)
    return Lines(stream) if bar._console.is_dumb_terminal else bar


def left(start: float, done: int, round: int, rounds: int) -> str:
    """How long the rest will take, in words, by what the rounds since `done` took; nothing where that is not known."""
    if not done < round < rounds:
        return ""
    seconds = (time.perf_counter() - start) / (round - done) * (rounds - round)
    return f", about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """Seconds in words: 8 s, 3 min, 2 h 5 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
