"""Weather: clients that are away in a round, and replies that get lost, by rate or by schedule.

A reply that is lost leaves no trace: the next time the client starts from what it kept after its last round that
entered the model, and since nothing random is consumed it is as if it had not trained. So the simulator need not train
who is lost, and ends with the very bits of a federation over a network in the same weather.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

import torch

from fedchord import check, rng
from fedchord.check import fail
from fedchord.engine.attendance import Terms

AWAY, LOST = "away", "lost"
_PART = re.compile(r"(\d+):(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Weather:
    """How bad the weather is: a share of clients (drawn anew in every round, for `lost` at every attempt), or a
    schedule such as "0:2-4,1:3", client 0 in rounds 2 to 4 and client 1 in round 3 (rounds count from 1)."""

    away: float | str = 0.0
    lost: float | str = 0.0
    terms: Terms = field(default_factory=Terms)

    def __post_init__(self) -> None:
        for name in (AWAY, LOST):
            value = getattr(self, name)
            if not isinstance(value, str):
                check.between("run", f"weather.{name}", value, 0, 1)
        _ = self._schedules

    @cached_property
    def _schedules(self) -> dict[str, dict[int, list[tuple[int, int]]]]:
        return {name: _schedule(name, value) for name, value in self._told.items() if isinstance(value, str)}

    @property
    def _told(self) -> dict[str, float | str]:
        return {AWAY: self.away, LOST: self.lost}

    @property
    def clear(self) -> bool:
        """Whether nobody is ever away and nothing lost."""
        return not self.away and not self.lost

    def here(self, seed: int, round: int, clients: int) -> list[int]:
        """Who can be asked in a round (from 0)."""
        gone = self._hit(AWAY, seed, round, 0, clients)
        return [client for client in range(clients) if not gone[client]]

    def keeps(self, seed: int, round: int, attempt: int, clients: int) -> list[bool]:
        """Whose reply would arrive at an attempt, by client."""
        return [not lost for lost in self._hit(LOST, seed, round, attempt, clients)]

    def _hit(self, name: str, seed: int, round: int, attempt: int, clients: int) -> list[bool]:
        if name in self._schedules:
            spans = self._schedules[name]
            return [any(a <= round + 1 <= b for a, b in spans.get(client, ())) for client in range(clients)]
        rate = float(self._told[name])
        if not rate:
            return [False] * clients
        draws = rng.uniform(rng.key(seed, f"weather {name}", round, attempt), clients)
        found: list[bool] = (draws < torch.tensor(rate)).tolist()
        return found


def _schedule(name: str, text: str) -> dict[int, list[tuple[int, int]]]:
    spans: dict[int, list[tuple[int, int]]] = {}
    for part in text.replace(" ", "").split(","):
        found = _PART.fullmatch(part)
        if found is None:
            example = "a share such as 0.1, or clients and rounds such as 0:2-4,1:3"
            raise fail("run", f"weather.{name} must be {example}, got {text!r}")
        client, first, last = int(found[1]), int(found[2]), int(found[3] or found[2])
        spans.setdefault(client, []).append((first, last))
    return spans
