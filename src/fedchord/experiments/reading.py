"""Run folders as they are read again: the run keys and, once a run is finished, its summary."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedchord.check import FedchordError
from fedchord.experiments.columns import SAMPLES


@dataclass(frozen=True)
class Run:
    """A run folder that was read. `summary` is empty if the run is not finished."""

    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> Any:
        return self.config.get("seed", 0)

    def value(self, metric: str, column: str) -> float | None:
        """A number of the summary; None where the run did not measure it, NaN where it is undefined."""
        found = self.summary.get("metrics", {}).get(metric, {})
        if metric in SAMPLES:
            found = self.summary.get("synthetic", {}).get("numbers", {}).get(metric, {})
        if column not in found:
            return None
        return math.nan if found[column] is None else float(found[column])


def read(folder: Path) -> Run:
    """A finished run; an unfinished or damaged folder is an error of one line."""
    run = read_config(folder)
    path = folder / "summary.json"
    if not path.exists():
        raise FedchordError(f"{folder}: not finished (go on with: fedchord resume {folder})")
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        measured = all(isinstance(values, dict) for values in summary["metrics"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        measured = False
    if not measured:
        raise FedchordError(f"{folder}: summary.json is damaged")
    return replace(run, summary=summary)


def read_config(folder: Path) -> Run:
    """The run keys of a folder, finished or not."""
    path = folder / "config.toml"
    if not path.exists():
        raise FedchordError(f"{folder}: not a run folder (it has no config.toml)")
    try:
        return Run(folder, tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise FedchordError(f"{folder}: config.toml is damaged") from None
