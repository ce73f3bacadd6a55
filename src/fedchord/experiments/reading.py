"""The one reader of run folders: settings, results and rounds, for everything that looks at runs.

A run folder is finished when it holds a whole `summary.json`. Settings are read as plain keys, so that a run made from
Python with objects of its own is read like any other; only who builds the run again needs a `RunConfig`.
"""

from __future__ import annotations

import glob
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedchord.check import FedchordError
from fedchord.engine.layout import LAYOUT
from fedchord.experiments.columns import SAMPLES
from fedchord.paths import expanded
from fedchord.safe import json_of, toml_of

CONFIG, ROUNDS, SUMMARY, CHECKPOINTS = "config.toml", "rounds.jsonl", "summary.json", "checkpoints"

MADE = "python"
"""The key `made` of a run whose objects were made in Python."""
SERVED = "served"
"""The same of a run whose clients were elsewhere."""
NOWHERE = "outline.npz"
"""What stands for the data of such a run, of which no row is here."""

TEST, VALIDATION = "test", "validation"
"""The rows that numbers of a summary are about."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run folder that was read. `summary` is empty if the run is not finished."""

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> Any:
        """The seed; settings that do not name one have 0."""
        return self.config.get("seed", 0)

    @property
    def protocol(self) -> dict[str, Any]:
        """The facts about what was measured."""
        return self.summary.get("protocol") or {}

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """The facts of one kind that a reader should know."""
        return [note for note in self.protocol.get("notes") or () if note["kind"] == kind]

    def value(self, metric: str, column: str, rows: str = TEST) -> float | None:
        """A number of the summary; None where the run did not measure it, NaN where it is undefined."""
        measured = self.summary if rows == TEST else self.summary.get(rows) or {}
        found = measured.get("metrics", {}).get(metric, {})
        if metric in SAMPLES and rows == TEST:
            found = self.summary.get("synthetic", {}).get("numbers", {}).get(metric, {})
        if column not in found:
            return None
        return math.nan if found[column] is None else float(found[column])


# -- folders -------------------------------------------------------------------------------------------------------


def find(places: Iterable[str | Path]) -> list[Path]:
    """Run folders: patterns that the shell left alone are expanded, and a folder of run folders stands for them all."""
    found: dict[Path, None] = {}
    for place in places:
        path = Path(place)
        matches = [path] if path.exists() else sorted(Path(p) for p in glob.glob(str(expanded(path))))
        if not matches:
            raise FedchordError(f"{place}: no such run folder")
        for match in (m for m in matches if m.is_dir()):
            inside = [match] if _is_run(match) else sorted(sub for sub in match.iterdir() if _is_run(sub))
            found.update(dict.fromkeys(inside or [match]))
    return list(found)


def _is_run(folder: Path) -> bool:
    return (folder / CONFIG).exists() or (folder / SUMMARY).exists()


def read(folder: Path) -> Run:
    """A finished run; an unfinished or damaged folder is an error of one line."""
    run = read_config(folder)
    if not (folder / SUMMARY).exists():
        raise FedchordError(f"{folder}: not finished ({hint(folder)})")
    return replace(run, summary=read_summary(folder))


def read_config(folder: Path) -> Run:
    """The run keys of a folder, finished or not."""
    if not (folder / CONFIG).exists():
        raise FedchordError(f"{folder}: not a run folder (it has no {CONFIG})")
    try:
        run = Run(folder, toml_of((folder / CONFIG).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise FedchordError(f"{folder}: {CONFIG} is damaged") from None
    if not (folder / SUMMARY).exists():
        check_checkpoints(folder)
    return run


def read_all(places: Iterable[str | Path]) -> tuple[list[Run], list[str]]:
    """Every finished run, and one line about each folder that is not one; no finished run at all is an error."""
    runs, problems = [], []
    for folder in find(places):
        try:
            runs.append(read(folder))
        except FedchordError as error:
            problems.append(str(error))
    if not runs:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise FedchordError(f"no finished run here ({problems[0]}{more})" if problems else "no run folder here")
    return runs, problems


def read_summary(folder: Path) -> dict[str, Any]:
    """The results of a finished run, in the layout of this version."""
    summary = _summary(folder)
    if summary is None:
        raise FedchordError(f"{folder}: {SUMMARY} is damaged; make it again with: {_going_on(folder)}")
    _check_layout(folder, summary)
    return summary


def damaged(folder: Path) -> bool:
    """Whether there is a summary that cannot be read."""
    return (folder / SUMMARY).is_file() and _summary(folder) is None


def _summary(folder: Path) -> dict[str, Any] | None:
    """The results as they are written, in whatever layout; None if they are damaged."""
    summary = _json(folder / SUMMARY) or {}
    metrics, clients = summary.get("metrics"), summary.get("per_client", {})
    whole = isinstance(metrics, dict) and all(isinstance(values, dict) for values in metrics.values())
    whole = whole and isinstance(clients, dict) and _is_number(summary.get("rounds", 0))
    return summary if whole else None


def check_layout(folder: Path) -> None:
    """Refuse a folder that a version with another layout wrote; a damaged summary is for its reader to tell."""
    if (summary := _summary(folder)) is None:
        check_checkpoints(folder)
    else:
        _check_layout(folder, summary)


def check_checkpoints(folder: Path) -> None:
    """Refuse the checkpoints of another layout."""
    for path in sorted((folder / CHECKPOINTS).glob("round-*/manifest.json")):
        manifest = _json(path)
        if manifest is not None:
            _check_layout(folder, manifest)


def _check_layout(folder: Path, written: dict[str, Any]) -> None:
    layout = written.get("layout", 1)
    if layout == LAYOUT:
        return
    who = "a later" if isinstance(layout, int) and layout > LAYOUT else "an earlier"
    ways = {MADE: "fedchord.run", SERVED: "fedchord serve FED.toml"}
    again = ways.get(maker(folder), f"fedchord run {folder / CONFIG} out=ANOTHER")
    raise FedchordError(f"{folder}: written by {who} fedchord (layout {layout}); run it again: {again}")


def _json(path: Path) -> dict[str, Any] | None:
    """What a JSON file holds; None if it cannot be read."""
    try:
        found = json_of(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def maker(folder: Path) -> str:
    """Who made the run of a folder: "python" (its objects cannot be made from its settings), "served", or ""."""
    try:
        found = toml_of((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""  # whoever reads it next says what is wrong
    return str(found.get("made", ""))


def hint(folder: Path) -> str:
    """How to go on with the run of a folder."""
    return f"go on with: {_going_on(folder)}"


def _going_on(folder: Path) -> str:
    ways = {MADE: "fedchord.run(..., resume=True)", SERVED: "fedchord serve FED.toml --resume"}
    return ways.get(maker(folder), f"fedchord resume {folder}")


# -- rounds --------------------------------------------------------------------------------------------------------


def rounds(run: Run) -> list[Line]:
    """The rounds of a run; a last line cut short by an interruption is left out, and a round done twice counts once."""
    found: dict[int, Line] = {}
    path = run.folder / ROUNDS
    if not path.is_file():
        raise FedchordError(f"{run.folder}: {ROUNDS} is missing; make it again with: {_going_on(run.folder)}")
    lines = _lines(path)
    last = max((line["round"] for line in lines if line is not None), default=0)
    cut = last < run.summary.get("rounds", 0)  # of a run that is done, the last line was there
    for number, line in enumerate(lines, 1):
        if line is not None:
            found[line["round"]] = line
        elif number < len(lines) or cut:
            told = f"{ROUNDS} is damaged in line {number}"
            raise FedchordError(f"{run.folder}: {told}; make it again with: {_going_on(run.folder)}")
    if cut:
        told = f"{ROUNDS} ends with round {last}"
        raise FedchordError(f"{run.folder}: {told}; make it again with: {_going_on(run.folder)}")
    return [found[number] for number in sorted(found)]


def whole_rounds(folder: Path) -> list[Line]:
    """The rounds that a run can go on with: those whose lines are whole, in order."""
    found = {line["round"]: line for line in _lines(folder / ROUNDS) if line is not None and _counted(line)}
    return [found[number] for number in sorted(found)]


def broken(folder: Path) -> tuple[int, ...]:
    """Which lines of the file of rounds are damaged, from 1; not the last of a run that was killed while writing it."""
    lines = _lines(folder / ROUNDS)
    bad = [number for number, line in enumerate(lines, 1) if line is None or not _counted(line)]
    if bad == [len(lines)] and _summary(folder) is None and not (folder / ROUNDS).read_bytes().endswith(b"\n"):
        return ()
    return tuple(bad)


def _counted(line: Line) -> bool:
    """Whether a line has the numbers that a summary adds up."""
    return all(_is_number(line.get(key)) for key in ("seconds", "bytes_up", "bytes_down"))


def _is_number(value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, float) or (whole and abs(value) <= sys.float_info.max)


def _lines(path: Path) -> list[Line | None]:
    """Every line of a file of rounds; None where it is damaged. A file that is not there has none."""
    if not path.is_file():
        return []
    return [_line(text) for text in path.read_text(encoding="utf-8", errors="replace").splitlines()]


def _line(text: str) -> Line | None:
    try:
        line = json_of(text)
    except ValueError:
        return None
    whole = isinstance(line, dict) and type(line.get("round")) is int and line["round"] > 0
    return line if whole else None


def flat(line: Line, above: str = "") -> dict[str, float]:
    """The numbers of a line by their path, such as metrics/top1/mean; texts, lists and what is undefined stay out."""
    found: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, dict):
            found |= flat(value, f"{above}{key}/")
        elif _is_number(value):
            found[f"{above}{key}"] = float(value)
    return found
