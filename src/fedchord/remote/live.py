"""What a server shows while it serves: a table of who is there in a terminal, a line a round elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.live import Live as RichLive
    from rich.table import Table

UNITS = ("B", "kB", "MB", "GB", "TB")


class Heard:
    """A logger that hears the lines of rounds, for one who is the run's progress already."""

    def __init__(self, told: Callable[[dict[str, Any]], None]) -> None:
        self._told = told

    def begin(self, facts: dict[str, Any]) -> None: ...

    def round(self, line: dict[str, Any]) -> None:
        self._told(line)

    def end(self, summary: dict[str, Any]) -> None: ...


class Live:
    """Hears of a run as its progress and by its lines, and asks who is `here` (client numbers)."""

    def __init__(self, parties: Sequence[str], stream: TextIO | None = None) -> None:
        from rich.console import Console

        self._parties = tuple(parties)
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._drawn: RichLive | None = None
        self.here: Callable[[], set[int]] = set
        self._title, self._rounds, self._round, self._metric = "", 0, 0, ""
        self._line: dict[str, Any] = {}
        self._up = self._down = 0

    # -- a run's progress ------------------------------------------------------------------------------------------

    def begin(self, label: str, rounds: int, done: int = 0, unit: str = "round") -> None:
        """A run starts, or goes on after some rounds."""
        self._title, self._rounds, self._round = label, rounds, done
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            from rich.live import Live as RichLive

            self._drawn = RichLive(self.table(), console=self._console, auto_refresh=False)
            self._drawn.start()
        else:
            self.say(f"{label}: {rounds} {unit}s" + (f", going on after {unit} {done}" if done else ""))

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        """A round has ended."""
        self._round = round
        self._metric = self._metric if value is None else f"{metric} {value:.4f}"
        self.draw()

    def say(self, line: str) -> None:
        """A line worth reading."""
        self._console.print(line, markup=False)

    def draw(self) -> None:
        """Draw the table anew."""
        if self._drawn is not None:
            self._drawn.update(self.table(), refresh=True)

    def round(self, line: dict[str, Any]) -> None:
        """The line of a round."""
        self._line, self._round = line, line["round"]
        self._up, self._down = self._up + line["bytes_up"], self._down + line["bytes_down"]
        if self._drawn is None:
            self.say(self.words())
        self.draw()

    def end(self) -> None:
        """The run is over, in whatever way."""
        if self._drawn is not None:
            self._drawn.stop()
            self._drawn = None

    # -- how it looks ----------------------------------------------------------------------------------------------

    def words(self) -> str:
        """The last round in a line."""
        line = self._line
        parts = [f"round {self._round} of {self._rounds}: {len(line['cohort'])} took part"]
        if worst := self.worst():
            parts.append(f"worst {self._parties[worst[0]]} (loss {worst[1]:.4f})")
        parts += [
            f"{self._parties[int(client)]} missing ({cause})" for client, cause in line.get("missing", {}).items()
        ]
        parts += [
            f"{line['seconds']:.1f} s",
            f"{size_words(line['bytes_up'])} up, {size_words(line['bytes_down'])} down",
        ]
        return ", ".join(parts)

    def worst(self) -> tuple[int, float] | None:
        """The client with the largest loss in the last round, where losses are told."""
        told = self._losses()
        return max(told.items(), key=lambda entry: entry[1]) if told else None

    def table(self) -> Table:
        """Who is there, and what they did in the last round."""
        from rich.table import Table

        state = f"{self._title}: round {self._round} of {self._rounds}"
        took = f", {self._line['seconds']:.1f} s" if self._line else ""
        traffic = f", {size_words(self._up)} up, {size_words(self._down)} down"
        made = Table(title=f"{state}{took}{traffic}{self._metric and ', ' + self._metric}")
        for name in ("party", "is", "weight", "loss", "last round"):
            made.add_column(name, justify="right" if name in ("weight", "loss") else "left")
        here, losses, worst = self.here(), self._losses(), self.worst()
        cohort = self._line.get("cohort", [])
        shares = dict(zip(cohort, self._line.get("shares") or [], strict=False))
        missing = self._line.get("missing", {})
        for client, name in enumerate(self._parties):
            loss = f"{losses[client]:.4f}" if client in losses else ""
            mark = " (worst)" if worst and worst[0] == client and len(losses) > 1 else ""
            weight = f"{shares[client]:.3f}" if isinstance(shares.get(client), float) else ""
            took_part = "took part" if client in cohort else str(missing.get(str(client), ""))
            made.add_row(name, "here" if client in here else "away", weight, loss + mark, took_part)
        return made

    def _losses(self) -> dict[int, float]:
        pairs = zip(self._line.get("cohort", []), self._line.get("losses") or [], strict=False)
        return {client: loss for client, loss in pairs if isinstance(loss, float)}


def size_words(count: float) -> str:
    """Bytes in words: 12.3 kB."""
    for unit in UNITS:
        if count < 1000 or unit == UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
