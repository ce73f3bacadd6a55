"""Where the time of a run goes, if somebody asks: `with watch() as clock`, and the kinds of work that follow are timed.

Outside of it `timed` and `over` give back what they were given, so that a loop that is not watched costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")

DATA, MODEL, UPDATE = "data", "forward and backward", "update"
MIXING, EVALUATION, WRITING, WAITING = "mixing", "evaluation", "writing", "waiting"
OTHER = "other"
KINDS = (DATA, MODEL, UPDATE, MIXING, EVALUATION, WRITING, WAITING, OTHER)

MOST_SPANS = 20_000
"""How many spans a process keeps for the trace; the sums count all of them."""

Span = tuple[str, float, float]
"""Kind, start and end, in seconds of a clock that forked processes share."""
Seen = tuple[dict[str, float], list[Span], int]
"""Seconds by kind, spans, and how many more there were."""


class Clock:
    """The time this process spent on each kind of work; of work within other work the inner kind counts."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self.spans: list[Span] = []
        self.left_out = 0
        self.others: list[Clock] = []
        """The clocks of worker processes, as far as they have told."""
        self._inner = [0.0]

    def enter(self) -> float:
        """Begin a piece of work: when that was."""
        self._inner.append(0.0)
        return perf_counter()

    def leave(self, kind: str, start: float) -> None:
        """End the piece of work that was begun last."""
        end = perf_counter()
        self.seconds[kind] += end - start - self._inner.pop()
        self._inner[-1] += end - start
        if len(self.spans) < MOST_SPANS:
            self.spans.append((kind, start, end))
        else:
            self.left_out += 1

    def taken(self) -> Seen:
        """What was seen since the last time; what follows is counted anew."""
        seen = self.seconds, self.spans, self.left_out
        self.seconds, self.spans, self.left_out = dict.fromkeys(KINDS, 0.0), [], 0
        return seen

    def add(self, worker: int, seen: Seen) -> None:
        """What a worker process has seen."""
        while len(self.others) <= worker:
            self.others.append(Clock())
        other, (seconds, spans, left_out) = self.others[worker], seen
        room = MOST_SPANS - len(other.spans)
        other.seconds = {kind: other.seconds[kind] + seconds[kind] for kind in KINDS}
        other.spans += spans[:room]
        other.left_out += left_out + max(0, len(spans) - room)


_running: Clock | None = None


def running() -> Clock | None:
    """The clock that runs in this process; None where nobody asks."""
    return _running


@contextmanager
def watch() -> Iterator[Clock]:
    """Time what is done within."""
    global _running
    before, _running = _running, Clock()
    try:
        yield _running
    finally:
        _running = before


@contextmanager
def span(kind: str) -> Iterator[None]:
    """A piece of work that is done now and then."""
    clock = _running
    if clock is None:
        yield
        return
    start = clock.enter()
    try:
        yield
    finally:
        clock.leave(kind, start)


def timed(kind: str, function: Callable[Given, Found]) -> Callable[Given, Found]:
    """A function whose calls count as a kind of work."""
    clock = _running
    if clock is None:
        return function

    def call(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        start = clock.enter()
        try:
            return function(*args, **kwargs)
        finally:
            clock.leave(kind, start)

    return call


def over(kind: str, items: Iterator[Found]) -> Iterator[Found]:
    """An iterator, getting the next item of which counts as a kind of work."""
    return items if _running is None else _each(_running, kind, items)


def _each(clock: Clock, kind: str, items: Iterator[Found]) -> Iterator[Found]:
    while True:
        start = clock.enter()
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            clock.leave(kind, start)
        yield item
