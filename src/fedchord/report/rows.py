"""Which runs belong together, in one definition: a row, a problem, and the names that tell rows apart.

Runs that differ only in side issues (the seed, and where and how the same computation was done) make one row. Rows
whose settings agree in all that decides the federation are about the same problem: only they are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedchord.experiments.config import INDIFFERENT
from fedchord.experiments.keys import COHORT
from fedchord.experiments.reading import SUMMARY, Run

SIDE_ISSUES = INDIFFERENT | {"seed", "objects"}
"""Run keys that do not tell two rows apart."""
PROBLEM = ("data", "split", "clients", "newcomers", "noise", "test", "validation")
"""Run keys (with their parameters, such as split.alpha) that decide the problem."""
CODE = "code"
"""The run key that holds the hashes of own code; the file itself is named by method, model, ..."""
HASH = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Group:
    """Runs of one row, in the order of their seeds."""

    runs: tuple[Run, ...]

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the first; the others differ in side issues only."""
        return self.runs[0].config


# -- which runs, which rows ----------------------------------------------------------------------------------------


def group(runs: Iterable[Run]) -> list[Group]:
    """The rows of some runs; of two runs with the same seed the newer one counts."""
    found: dict[str, dict[Any, Run]] = {}
    for run in runs:
        seeds = found.setdefault(settings(run.config), {})
        if run.seed not in seeds or _written(run) > _written(seeds[run.seed]):
            seeds[run.seed] = run
    return [Group(tuple(sorted(seeds.values(), key=lambda run: str(run.seed).zfill(20)))) for seeds in found.values()]


def blocks(groups: Iterable[Group]) -> list[list[Group]]:
    """Rows of the same problem, together."""
    found: dict[str, list[Group]] = {}
    for one in groups:
        found.setdefault(problem(one.config), []).append(one)
    return list(found.values())


def settings(config: Settings) -> str:
    """What the runs of one row share, as text."""
    return _text({"cohort": None} | {key: value for key, value in config.items() if key not in SIDE_ISSUES})


def problem(config: Settings) -> str:
    """What rows of the same problem share, as text: data, split, clients, noise, parts; not the seed."""
    return _text({key: value for key, value in config.items() if is_problem(key)})


def is_problem(key: str) -> bool:
    """Whether a run key decides the problem."""
    return key.split(".")[0] in PROBLEM and key not in SIDE_ISSUES


def _text(config: Settings) -> str:
    return json.dumps({key: canonical(key, value) for key, value in config.items()}, sort_keys=True, default=str)


def canonical(key: str, value: Any) -> Any:
    """A value as it is compared: 1 and 1.0 are the same, except as a cohort (one client, all clients)."""
    if key == "cohort":
        value = COHORT if value is None else value  # it was left to be chosen
        return "all" if value == "all" or (isinstance(value, float) and value == 1) else repr(value)
    return float(value) if type(value) is int else value


def _written(run: Run) -> float:
    path = run.folder / SUMMARY
    return path.stat().st_mtime if path.exists() else 0.0


# -- names ---------------------------------------------------------------------------------------------------------


def differing(groups: Sequence[Group]) -> list[str]:
    """The run keys, besides the method, in which rows differ; the hashes of own code only where nothing else does."""
    keys = dict.fromkeys(key for g in groups for key in g.config if key not in SIDE_ISSUES and key != "method")
    found = [key for key in keys if len({_text({key: g.config.get(key)}) for g in groups}) > 1]
    plain = [key for key in found if key != CODE]
    named = {_text({key: g.config.get(key) for key in ("method", *plain)}) for g in groups}
    return plain if len(named) == len(groups) else found


def differing_problems(groups: Sequence[Group]) -> list[str]:
    """The run keys in which the problems of rows differ."""
    return [key for key in differing(groups) if is_problem(key)]


def labels(groups: Sequence[Group]) -> list[str]:
    """A short name for each row: its method and what tells it apart."""
    keys = differing(groups)
    names = []
    for g in groups:
        parts = [f"{key.removeprefix('method.')}={value(g, key)}" for key in keys if key in g.config]
        names.append(", ".join([str(g.config.get("method", "?")), *parts]))
    return names


def value(g: Group, key: str) -> str:
    """A run key of a row as it is printed."""
    found = g.config.get(key)
    if key == CODE:
        return HASH.sub(r"\1", word(found))
    return "all" if key == "cohort" and canonical(key, found) == "all" else word(found)


def word(value: Any) -> str:
    """A run key's value as it is printed."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(word(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
