"""What is damaged in the folder of a run: it is named, kept under another name, and made again from checkpoints.

A damaged summary.json is measured again from the last checkpoint. Rounds that rounds.jsonl has lost are done again, to
the same bits, where that costs no more than an interruption would have: from the checkpoint before the newest, or from
the start where there is none. Earlier ones cannot be had again; the lines that are whole stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedchord.engine.checkpoint import KEEP
from fedchord.experiments import reading
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.reading import Line


@dataclass(frozen=True)
class Standing:
    """Where a run that goes on stands: its whole lines, and the round from which it goes on at the latest (None: from
    its newest checkpoint)."""

    lines: list[Line]
    latest: int | None = None
    broken: tuple[int, ...] = ()

    @staticmethod
    def of(folder: RunFolder) -> Standing:
        """Look at a folder; nothing is written."""
        lines = folder.read_rounds()
        saved = folder.checkpoint_rounds()
        return Standing(lines, _latest(saved, lost(lines, saved[-1] if saved else 0)), reading.broken(folder.path))

    @property
    def whole(self) -> bool:
        """Whether rounds.jsonl is as it should be, or as good as it can become."""
        return self.latest is None and not self.broken


def finished(folder: RunFolder) -> bool:
    """Whether the run is done and nothing in its folder is to be made again."""
    return folder.finished and Standing.of(folder).whole


def name_damage(folder: RunFolder, standing: Standing) -> list[str]:
    """Keep damaged files under another name, so that nothing is lost; returns a line about each."""
    told = []
    if reading.damaged(folder.path):
        kept = folder.keep_damaged(folder.summary)
        told.append(f"{folder.summary} is damaged; it is made again, the old one is {kept.name}")
    if standing.broken:
        which = f"line{'s' * (len(standing.broken) > 1)} {spans(standing.broken)}"
        kept = folder.keep_damaged(folder.rounds)
        folder.write_rounds(standing.lines)
        told.append(f"{folder.rounds} is damaged in {which}; whole lines stay, the old one is {kept.name}")
    return told


def lost(lines: Sequence[Line], done: int) -> list[int]:
    """The rounds up to `done` without a line."""
    known = {line["round"] for line in lines}
    return [number for number in range(1, done + 1) if number not in known]


def _latest(saved: Sequence[int], lost: Sequence[int]) -> int | None:
    """The newest place to go on from after which lie all lost rounds that can be had again; None if none can."""
    places = [*([0] if len(saved) < KEEP else []), *saved]
    again = [number for number in lost if number > places[0]]
    return max(place for place in places if place < again[0]) if again else None


def spans(numbers: Sequence[int]) -> str:
    """Numbers in order as text: 1 to 3, 7."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in ends)
