"""The one reader of run folders: settings, results and rounds, for everything that looks at runs.

A run folder is finished when it holds `summary.json`. Settings are read as plain keys, so that a run made from Python
with objects of its own is read like any other; only who builds the run again needs a `RunConfig`.
"""

from __future__ import annotations

import glob
import json
import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedchord.check import FedchordError
from fedchord.engine.layout import LAYOUT
from fedchord.experiments.columns import SAMPLES

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
        matches = [path] if path.exists() else sorted(Path(p) for p in glob.glob(str(path.expanduser())))
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
    summary = read_summary(folder)
    metrics = summary.get("metrics")
    if not isinstance(metrics, dict) or not all(isinstance(values, dict) for values in metrics.values()):
        raise FedchordError(f"{folder}: {SUMMARY} is damaged")
    return replace(run, summary=summary)


def read_config(folder: Path) -> Run:
    """The run keys of a folder, finished or not."""
    if not (folder / CONFIG).exists():
        raise FedchordError(f"{folder}: not a run folder (it has no {CONFIG})")
    try:
        run = Run(folder, tomllib.loads((folder / CONFIG).read_text(encoding="utf-8")))
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
    summary = _json(folder / SUMMARY)
    if summary is None:
        raise FedchordError(f"{folder}: {SUMMARY} is damaged")
    _check_layout(folder, summary)
    return summary


def check_layout(folder: Path) -> None:
    """Refuse a folder that a version with another layout wrote; a damaged summary is for its reader to tell."""
    if not (folder / SUMMARY).exists():
        check_checkpoints(folder)
    elif (summary := _json(folder / SUMMARY)) is not None:
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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def maker(folder: Path) -> str:
    """Who made the run of a folder: "python" (its objects cannot be made from its settings), "served", or ""."""
    try:
        found = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""  # whoever reads it next says what is wrong
    return str(found.get("made", ""))


def hint(folder: Path) -> str:
    """How to go on with the run of a folder."""
    ways = {MADE: "fedchord.run(..., resume=True)", SERVED: "fedchord serve FED.toml --resume"}
    return f"go on with: {ways.get(maker(folder), f'fedchord resume {folder}')}"


# -- rounds --------------------------------------------------------------------------------------------------------


def rounds(run: Run) -> list[Line]:
    """The rounds of a run; a last line cut short by an interruption is left out, and a round done twice counts once."""
    found: dict[int, Line] = {}
    path = run.folder / ROUNDS
    if not path.is_file():
        raise FedchordError(f"{run.folder}: {ROUNDS} is missing")
    lines = _lines(path)
    for number, line in enumerate(lines, 1):
        if line is not None:
            found[line["round"]] = line
        elif number < len(lines):
            raise FedchordError(f"{run.folder}: {ROUNDS} is damaged in line {number}")
    return [found[number] for number in sorted(found)]


def unbroken_rounds(folder: Path) -> list[Line]:
    """The rounds from the first on, up to the first line that is missing or damaged: where a run can go on."""
    found: list[Line] = []
    for line in _lines(folder / ROUNDS):
        if line is None or line["round"] != len(found) + 1:
            break
        found.append(line)
    return found


def _lines(path: Path) -> list[Line | None]:
    """Every line of a file of rounds; None where it is damaged. A file that is not there has none."""
    if not path.is_file():
        return []
    return [_line(text) for text in path.read_text(encoding="utf-8", errors="replace").splitlines()]


def _line(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("round"), int) else None


def flat(line: Line, above: str = "") -> dict[str, float]:
    """The numbers of a line by their path, such as metrics/top1/mean; texts, lists and what is undefined stay out."""
    found: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, dict):
            found |= flat(value, f"{above}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{above}{key}"] = float(value)
    return found
