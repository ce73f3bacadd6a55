"""Small results of runs, kept in a folder: settings, numbers, numbers by client; a file a run, and no model.

    results/2_table3/mnist-k-100_fedavg_seed1_afd2f018.json

The state of a cell of the thesis is made from these files and from nothing else. A file is written whole or not at
all; one that cannot be read is told and made again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fedchord
from fedchord.check import FedchordError, require
from fedchord.data import SOURCES, load
from fedchord.experiments.config import INDIFFERENT, RunConfig
from fedchord.experiments.reading import Run, read
from fedchord.experiments.study import Job
from fedchord.files import write_text
from fedchord.safe import json_of
from fedchord.synthetic.panel import kept_verdicts

FORM = 1
"""The number of this form; a file of another one is told and made again."""
MOST_CLIENTS = 1000
"""Of more clients their numbers are not kept one by one."""
DIGITS = 5
NEEDED = ("study", "row", "setting", "config", "metrics", "data", "versions", "seconds")


@dataclass(frozen=True)
class Result:
    """One kept run."""

    path: Path
    study: str
    row: str
    setting: str
    config: RunConfig
    content: dict[str, Any]

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def verdict(self) -> str:
        """The word of `data check` on the data of the run."""
        return str(self.content["data"].get("verdict", ""))

    @property
    def version(self) -> str:
        """The version of fedchord that made it."""
        return str(self.content["versions"].get("fedchord", "?"))

    @property
    def copied(self) -> str:
        """The document that its numbers were taken from, without those by client; "" for one that was kept of a run."""
        return str(self.content.get("from", ""))

    @property
    def is_current(self) -> bool:
        return self.version == fedchord.__version__

    def run(self) -> Run:
        """The numbers, for whoever reads runs."""
        summary: dict[str, Any] = {"metrics": self.content["metrics"], "protocol": self.content.get("protocol", {})}
        summary |= {"synthetic": self.content["synthetic"]} if "synthetic" in self.content else {}
        return Run(self.path, self.config.values(), summary)


# -- keeping -------------------------------------------------------------------------------------------------------


def keep(job: Job, study: str, metrics: Sequence[str], run: Path, folder: Path) -> Path:
    """Write the small part of a finished run."""
    done = read(run)
    require(
        RunConfig.from_values(_plain(done.config)).fingerprint() == job.config.fingerprint(), str(run), "is another run"
    )
    place = folder / study / f"{job.folder}.json"
    write_text(place, _text(content(job, study, metrics, done)))
    return place


def content(job: Job, study: str, metrics: Sequence[str], done: Run) -> dict[str, Any]:
    """What is kept of a run: no model, no rounds, and of every client only the metrics asked for."""
    summary, protocol = done.summary, done.protocol
    told = {key: protocol[key] for key in ("clients", "evaluated", "never_sampled", "global_model") if key in protocol}
    found: dict[str, Any] = {
        "form": FORM,
        "study": study,
        "row": job.method,
        "setting": job.setting,
        "config": {key: value for key, value in _plain(summary["config"]).items() if key not in INDIFFERENT},
        "data": protocol.get("data") or {"name": job.config.data, "verdict": _verdict(job.config)},
        "protocol": told,
        "metrics": _rounded(summary["metrics"]),
    }
    if swept := summary.get("sweep"):
        best = swept["lambdas"].index(swept["best_mean"]["lambda"])
        found["sweep"] = _rounded({key: swept[key] for key in ("lambdas", "mean", "std", "best_mean")})
        found["sweep"]["per_client"] = _rounded([row[best] for row in swept["per_client"]])
    if made := summary.get("synthetic"):
        found["synthetic"] = {"numbers": _rounded(made["numbers"])}
        for name, real in {"judges": None, "judges of real rows": job.config.seed}.items():
            found |= {name: _rounded(judged)} if (judged := kept_verdicts(done.folder, real)) else {}
    if choice := summary.get("choice"):
        found["choice"] = _rounded(choice)
    each = summary["per_client"]
    wanted = [name for name in ("size", *metrics) if name in each]
    few = len(each["client"]) <= MOST_CLIENTS
    found["per_client"] = {name: _rounded(each[name]) for name in wanted} if few else {}
    if not few:
        found.get("sweep", {}).pop("per_client", None)
    more = {key: summary[key] for key in ("versions", "git", "parameters", "finished")}
    return found | more | {"seconds": summary["seconds"]["total"]}


@cache
def _look(name: str, root: str | None) -> str:
    return load(name, root).verdict


def _verdict(config: RunConfig) -> str:
    """What the data are now, for a run that does not say what they were."""
    return _look(config.data, config.data_root) if config.data in SOURCES else ""


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "out"}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, DIGITS) if isinstance(value, float) and math.isfinite(value) else value


def _text(found: Mapping[str, Any]) -> str:
    """A line for each part, so that a change can be read."""
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


# -- reading -------------------------------------------------------------------------------------------------------


def read_all(folder: Path) -> tuple[list[Result], dict[Path, str]]:
    """Every result of a folder, and what is wrong with files that are none."""
    found, wrong = [], {}
    for path in sorted(folder.glob("*/*.json")):
        try:
            found.append(_read(path))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            wrong[path] = str(error) if isinstance(error, FedchordError) else "is damaged"
    return found, wrong


def _read(path: Path) -> Result:
    content = json_of(path.read_text(encoding="utf-8"))
    if content.get("form") != FORM:
        raise FedchordError(f"is of another form ({content.get('form')!r})")
    for key in NEEDED:
        content[key]
    config = RunConfig.from_values(content["config"])
    return Result(path, content["study"], content["row"], content["setting"], config, content)
