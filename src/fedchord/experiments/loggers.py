"""Loggers: who is told of a run while it goes on, in the very lines that its folder gets.

A logger is any object with three methods, `begin`, `round` and `end` (`Logger`). It is given copies, and what it raises
does not end the run.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from fedchord import plugins
from fedchord.check import fail, require, unknown
from fedchord.experiments.reading import Line
from fedchord.experiments.tensorboard import TensorBoard

LOGGERS: dict[str, Callable[[], Logger]] = {"tensorboard": TensorBoard}
"""The loggers by name."""
METHODS = ("begin", "round", "end")


class Logger(Protocol):
    """What a run tells a logger. Nothing is told before the first round has ended."""

    def begin(self, facts: Line) -> None:
        """A run begins or goes on: its settings (`config`), its folder or None (`out`), the number of its rounds
        (`rounds`) and of those that will not be told again (`done`): what a logger has of later ones is void."""

    def round(self, line: Line) -> None:
        """A round has ended: its line of rounds.jsonl."""

    def end(self, summary: Line) -> None:
        """The run is over: the content of summary.json, or nothing, {}, where it was stopped on the way."""


class Loggers:
    """The loggers of a run. One that fails is named in one line, and is told nothing more."""

    def __init__(self, asked: Iterable[Logger], say: Callable[[str], None] | None = None) -> None:
        self._told, self._say = list(asked), say or _warned
        for logger in self._told:
            check_logger("loggers", logger)
        self._facts: Callable[[], Line] = dict
        self._begun = False

    def open(self, facts: Callable[[], Line]) -> None:
        """What `begin` is going to be told as soon as there is a round: a run that cannot start leaves no trace."""
        self._facts, self._begun = facts, False

    def round(self, line: Line) -> None:
        """A round has ended."""
        self._begin()
        self._tell("round", line, f"round {line['round']}")

    def end(self, summary: Line) -> None:
        """The run is finished."""
        self._begin()
        self._tell("end", summary, "end")
        self._begun = False

    def close(self) -> None:
        """The run is left, finished or not."""
        if self._begun:
            self._tell("end", {}, "end")
            self._begun = False

    def _begin(self) -> None:
        if self._told and not self._begun:
            self._tell("begin", self._facts(), "begin")
            self._begun = True

    def _tell(self, method: str, line: Line, when: str) -> None:
        for logger in list(self._told):
            try:
                getattr(logger, method)(copy.deepcopy(line))
            except Exception as error:  # a foreign service may raise anything; training must not be lost by it
                self._told.remove(logger)
                words = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": ")
                self._say(f"log: {type(logger).__name__} failed at {when} and is told no more; {words}")


def made(names: Sequence[str], out: str | None) -> list[Logger]:
    """Loggers by name: ours, of files (my_log.py:Log) and of installed packages."""
    return [_made(name, out) for name in names]


def _made(name: str, out: str | None) -> Logger:
    if name in LOGGERS:
        require(out is not None, "run", f"log={name} writes into the run's folder; add out=FOLDER")
        return LOGGERS[name]()
    if not plugins.is_foreign("log", name):
        raise unknown("logger", name, [*LOGGERS, *plugins.installed("log")])
    found = plugins.find("log", name)
    try:
        logger: Logger = found() if callable(found) else found
    except Exception as error:
        raise plugins.failed(name, plugins.path_of(name), error) from None
    check_logger(name, logger)
    return logger


def check_logger(owner: str, logger: Any) -> None:
    """Refuse what is no logger."""
    lacking = [method for method in METHODS if not callable(getattr(logger, method, None))]
    if isinstance(logger, type) or lacking:
        got = f"the class {logger.__name__}" if isinstance(logger, type) else f"a {type(logger).__name__}"
        raise fail(owner, f"a logger is an object with the methods begin, round and end, got {got}")


def _warned(line: str) -> None:
    """For a run that says nothing otherwise."""
    warnings.warn(line, RuntimeWarning, stacklevel=2)
