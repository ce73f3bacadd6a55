"""What the owner of a node lets it do and send; no message of a server changes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from fedchord import check
from fedchord.core.records import Log
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Limits:
    """None is no limit; an empty list lets nothing pass."""

    allow: tuple[str, ...] | None = None
    """Methods in which the node takes part."""
    rounds: int | None = None
    """The most rounds in which it takes part; a round that is asked for again with the same content counts once."""
    clip: float | None = None
    """The largest norm of an update that leaves."""
    log: tuple[str, ...] | None = ()
    """Entries of Upload.log that may leave."""
    metrics: tuple[str, ...] | None = None
    """Numbers of evaluation that may leave."""
    evaluations: int | None = None
    """How often it tells them at most; a question that is asked again with the same content counts once."""

    def __post_init__(self) -> None:
        if self.rounds is not None:
            check.whole("limits", "rounds", self.rounds)
        if self.evaluations is not None:
            check.whole("limits", "evaluations", self.evaluations)
        if self.clip is not None:
            check.positive("limits", "clip", self.clip)

    def allowed(self, method: str) -> None:
        """Refuse a method that is not on the list."""
        good = self.allow is None or method in self.allow
        told = ", ".join(self.allow or ()) or "none"
        check.require(good, "limits", f"this node takes part in {told}, not in {method}")

    def metric(self, names: Iterable[str]) -> tuple[str, ...]:
        """The metrics that may leave."""
        return tuple(name for name in names if self.metrics is None or name in self.metrics)

    def logged(self, log: Log) -> Log:
        """The entries of a log that may leave."""
        return Log(self._named(log.means), self._named(log.sums))

    def _named(self, entries: Tensors) -> Tensors:
        return {name: value for name, value in entries.items() if self.log is None or name in self.log}


def measurements(rounds: int, every: int) -> int:
    """How often a run asks its clients for numbers: on the way and at the end, on validation rows, along lambda."""
    return (-(-rounds // every) if every else 1) + 2
