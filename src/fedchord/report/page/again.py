"""How to make a run again: its settings as they were kept, and the shortest command that gives the same."""

from __future__ import annotations

import shlex

from fedchord.check import FedchordError
from fedchord.experiments.config import INDIFFERENT, RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.reading import CONFIG, MADE, SERVED, Run, maker
from fedchord.experiments.settings import Scalar
from fedchord.experiments.study import written

ELSEWHERE = {
    MADE: "# made of objects in Python, with fedchord.run",
    SERVED: "# served to clients that were elsewhere, with fedchord serve",
}
"""What is said of a run that no `fedchord run` makes again."""


def command(run: Run) -> str:
    """A command with the settings that are not the usual ones; where none gives the run, what does."""
    made = maker(run.folder)
    if made in ELSEWHERE:
        return ELSEWHERE[made]
    try:
        config = RunFolder(run.folder).read_config()
        words = [f"{key}={written(value)}" for key, value in unusual(config).items()]
        same = RunConfig.from_pairs(words).fingerprint() == config.fingerprint()
    except FedchordError:
        same, words = False, []
    if not same:
        return shlex.join(["fedchord", "run", str(run.folder / CONFIG), "out=ANOTHER_FOLDER"])
    return shlex.join(["fedchord", "run", *words, "out=ANOTHER_FOLDER"])


def unusual(config: RunConfig) -> dict[str, Scalar]:
    """The settings without which the run would be another one, or would be measured in other rounds."""
    kept = {key: value for key, value in config.values().items() if key not in INDIFFERENT or key == "eval_every"}
    for key in list(kept):
        less = {name: value for name, value in kept.items() if name != key}
        try:
            other = RunConfig.from_values(less)
        except FedchordError:
            continue  # it needs this one
        if other.fingerprint() == config.fingerprint() and _often(other) == _often(config):
            kept = less
    return kept


def _often(config: RunConfig) -> object:
    return config.values()["eval_every"]


def settings(run: Run) -> str:
    """The settings of a run as they were kept."""
    return (run.folder / CONFIG).read_text(encoding="utf-8")
