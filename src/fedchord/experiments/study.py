"""A study: methods x settings x seeds (see study_file.py), each run in its own folder."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedchord.catalog import METHODS, MIXINGS, SERVERS
from fedchord.check import FedchordError, Unwritten, require, unknown
from fedchord.experiments.config import RunConfig
from fedchord.experiments.interrupts import interrupts
from fedchord.experiments.reading import Run, check_layout, read
from fedchord.experiments.settings import parse_pairs
from fedchord.experiments.study_file import BOTH, Keys, Study, load, parse, seeds_of
from fedchord.experiments.study_rows import located
from fedchord.files import blocked, write_text
from fedchord.safe import json_of

if TYPE_CHECKING:
    from fedchord.experiments.progress import Progress

__all__ = ["Job", "Outcome", "Plan", "Study", "command", "load", "parse", "plan", "run"]

PLANNED: frozenset[str] = frozenset()
"""Rules that a later version will have; a study may name them already, and its rows are skipped until then."""
RECORD = "study.json"
LONGEST = 100
"""Letters of a label in the name of a folder; names of files end at 255."""


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    method: str
    setting: str
    seed: int
    config: RunConfig

    @property
    def folder(self) -> str:
        """A readable name; the hash changes with every setting that changes the result."""
        words = (_slug(self.setting), _slug(self.method), f"seed{self.seed}", self.config.fingerprint()[:8])
        return "_".join(word for word in words if word)

    def is_done(self, out: Path) -> bool:
        """Whether it is finished and can be read; a run that was made longer since is another one."""
        folder = out / self.folder
        return is_readable(folder) and read(folder).config.get("rounds") == self.config.rounds

    def __str__(self) -> str:
        return ", ".join(part for part in (self.setting, self.method, f"seed {self.seed}") if part)


@dataclass(frozen=True)
class Plan:
    """A study at one scale: every run, checked, and the rows that this version cannot run."""

    study: Study
    scale: str
    changes: Keys
    jobs: tuple[Job, ...]
    missing: dict[str, str]

    def runs(self, out: Path) -> dict[tuple[str, str], list[Run]]:
        """The finished runs of each cell."""
        found: dict[tuple[str, str], list[Run]] = {}
        for job in self.jobs:
            if job.is_done(out):
                found.setdefault((job.method, job.setting), []).append(read(out / job.folder))
        return found


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower())[:LONGEST].strip("-.")


# -- planning ------------------------------------------------------------------------------------------------------


def plan(study: Study, scale: str | None = None, pairs: Sequence[str] = ()) -> Plan:
    """Every run of a study, checked before anything runs. The default scale is small, if the study has it."""
    owner = study.owner
    chosen = scale or ("small" if "small" in study.scales else "")
    require(bool(study.scales) or not chosen, owner, f"has no scales, got {chosen!r}")
    if chosen and chosen not in study.scales:
        raise unknown(f"scale of {owner}", chosen, study.scales)
    asked = _command_line(owner, pairs)
    changes = study.scales.get(chosen, {}) | asked
    seeds = seeds_of(owner, changes.get("seeds", list(study.seeds)))
    jobs, missing = [], {}
    for method in study.methods:
        for setting in study.settings:
            keys = study.base | setting.keys | method.keys | _matching(method.inside, setting.label)
            keys |= study.scales.get(chosen, {}) | _matching(
                study.inside.get(chosen, {}), setting.label, f"{method.label}{BOTH}{setting.label}"
            )
            keys |= asked
            keys.pop("seeds", None)
            absent = _absent(keys)
            for seed in seeds:
                config = _config(study, f"{method.label}, {setting.label}".rstrip(", "), keys, seed, absent)
                if not absent:
                    jobs.append(Job(method.label, setting.label, seed, config))
            if absent:
                missing[method.label] = absent
    for method in study.methods:
        for pattern in method.inside:
            known = [setting.label for setting in study.settings]
            if not fnmatch.filter(known, pattern):
                raise unknown(f"setting of {owner}, {method.label} in", pattern, known)
    return Plan(study, chosen, changes, tuple(jobs), missing)


def _command_line(owner: str, pairs: Sequence[str]) -> Keys:
    changes: Keys = dict(parse_pairs(pairs, words=("seeds",)))
    for key, advice in (("method", "a study has its own methods; pick rows with --only"), ("out", "use --out DIR")):
        require(key not in changes, owner, f"{key}= cannot be set here: {advice}")
    if "seed" in changes:
        require("seeds" not in changes, owner, "seed and seeds are both given")
        changes["seeds"] = [changes.pop("seed")]
    return changes


def _absent(keys: Keys) -> str:
    """The rule that this version does not have yet, if there is one."""
    for key, known in (("method", METHODS), ("mixing", MIXINGS), ("server", SERVERS)):
        if key in keys and keys[key] not in known and keys[key] in PLANNED:
            return str(keys[key])
    return ""


def _matching(parts: Mapping[str, Keys], label: str, both: str = "") -> Keys:
    """The run keys whose pattern a column's label matches, or that of its row and column; the later one on top."""
    found: Keys = {}
    for pattern, keys in parts.items():
        found |= keys if fnmatch.fnmatchcase(both if BOTH in pattern else label, pattern) else {}
    return found


def _config(study: Study, label: str, keys: Keys, seed: int, absent: str) -> RunConfig:
    """The run; for a rule that is not there yet, all else is checked in its place."""
    rules = ("method", "mixing", "server")
    known = {key: value for key, value in keys.items() if not absent or key.split(".")[0] not in rules}
    try:
        return RunConfig.from_values(known | {"seed": seed})
    except FedchordError as error:
        raise located(FedchordError(f"{study.owner}, {label}: {error}"), study.files) from None


# -- running -------------------------------------------------------------------------------------------------------


def is_readable(folder: Path) -> bool:
    """Whether a folder holds a finished run that can be read."""
    try:
        read(folder)
    except FedchordError:
        return False
    return True


@dataclass
class Outcome:
    """What came of a study: how many runs were there already, how many were done now, and what went wrong."""

    planned: int
    skipped: int = 0
    done: int = 0
    failed: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False


def run(
    study_plan: Plan,
    out: Path,
    only: Sequence[str] = (),
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
    told: Callable[[Study, Mapping[str, Any], str], str] | None = None,
) -> Outcome:
    """Run what is not done yet, each run into its own folder; what was interrupted goes on where it stopped.

    A run that fails does not stop the others. `only` picks rows and columns by label; `told` says in a few words what
    came of a run, by its summary.
    """
    jobs = picked(study_plan, only)
    reason = f"{out} is a file" if out.is_file() else blocked(out)
    require(not reason, "out", f"{out} cannot be written ({reason})")
    waiting = [job for job in jobs if not job.is_done(out)]
    outcome = Outcome(len(jobs), skipped=len(jobs) - len(waiting))
    from fedchord.engine.group import started

    require(started() < 2, "study", "runs of a study cannot share a job of torchrun; start it without")
    _record(study_plan, out)
    try:
        with interrupts() as asked:
            for place, job in enumerate(waiting, 1 + outcome.skipped):
                line = f"[{place}/{len(jobs)}] {job}"
                alike = [
                    o for o in study_plan.jobs if (o.setting, o.seed) == (job.setting, job.seed) and o.is_done(out)
                ]
                known = [out / other.folder for other in alike]
                summary = _attempt(job, out / job.folder, known, line, outcome, say, progress)
                if summary is not None:
                    outcome.done += 1
                    say(f"{line}: {told(study_plan.study, summary, job.setting) if told else 'done'}")
                if asked():  # while the run was measured, after its last round
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        outcome.interrupted = True
    return outcome


def _attempt(
    job: Job,
    folder: Path,
    known: Sequence[Path],
    line: str,
    outcome: Outcome,
    say: Callable[[str], None],
    progress: Progress | None,
) -> dict[str, Any] | None:
    """One run, which may begin with the rounds of a known one; None, and a word in the outcome, if it failed."""
    from fedchord.experiments import borrow
    from fedchord.experiments import run as runs

    begun = (folder / "config.toml").exists()
    config, lines = job.config.with_values(out=str(folder)), list[str]()
    try:
        source = None if begun else borrow.begin(config, known)
        say(f"{line}{' (going on)' if begun else f' (with rounds of {source.name})' if source else ''}")
        check_layout(folder)
        summary = runs.execute(config, begun or source is not None, lines.append, progress)
        for told in lines:
            say(f"  {told}")
        return summary
    except KeyboardInterrupt as stop:
        say(f"  {stop}")
        raise
    except Unwritten:
        raise  # nor could the others be written
    except FedchordError as error:
        told = str(error).replace(str(folder), job.folder)
    except Exception as error:  # one broken run must not cost the others; its folder keeps the traceback
        write_text(folder / "error.txt", traceback.format_exc())
        first = (str(error).strip().splitlines() or [""])[0]
        told = f"{type(error).__name__}: {first} (see {folder}/error.txt)"
    outcome.failed.setdefault(told, []).append(str(job))
    return None


def picked(study_plan: Plan, only: Sequence[str]) -> list[Job]:
    """The runs of some rows and columns: labels of one kind add up, labels of both kinds cross."""
    rows = {entry.label.lower() for entry in study_plan.study.methods}
    columns = {entry.label.lower() for entry in study_plan.study.settings}
    asked = [label.lower() for label in only]
    for label in asked:
        if label not in rows | columns:
            raise unknown(f"row or column of study {study_plan.study.name}", label, rows | columns)
    rows = rows.intersection(asked) or rows
    columns = columns.intersection(asked) or columns
    return [job for job in study_plan.jobs if job.method.lower() in rows and job.setting.lower() in columns]


def narrowed(study_plan: Plan, only: Sequence[str]) -> Plan:
    """The plan of some rows and columns, as `picked` takes them."""
    if not only:
        return study_plan
    jobs, study = picked(study_plan, only), study_plan.study
    rows, columns = {job.method for job in jobs}, {job.setting for job in jobs}
    methods = tuple(entry for entry in study.methods if entry.label in rows)
    settings = tuple(entry for entry in study.settings if entry.label in columns)
    return replace(study_plan, study=replace(study, methods=methods, settings=settings), jobs=tuple(jobs))


def _record(study_plan: Plan, out: Path) -> None:
    """Write down at which scale and with which changes the study was run last, for the table."""
    changes = {
        k: v for k, v in study_plan.changes.items() if study_plan.study.scales.get(study_plan.scale, {}).get(k) != v
    }
    record = {"study": study_plan.study.name, "scale": study_plan.scale, "changes": changes}
    write_text(out / RECORD, json.dumps(record, indent=1) + "\n", several=True)


def recorded(out: Path) -> tuple[str | None, list[str]]:
    """The scale and the changes of the last run into a folder."""
    try:
        record = json_of((out / RECORD).read_text(encoding="utf-8"))
        return record["scale"] or None, [f"{key}={written(value)}" for key, value in record["changes"].items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, []


def written(value: Any) -> str:
    """A run key's value as it is written on the command line."""
    return (
        ",".join(str(v) for v in value)
        if isinstance(value, list)
        else value
        if isinstance(value, str)
        else json.dumps(value)
    )


def command(
    what: str, study_plan: Plan, name: str, out: Path, only: Iterable[str] = (), pairs: Iterable[str] = ()
) -> str:
    """The command that goes on with a study (`run`) or shows it (`table`)."""
    words = ["fedchord", "study", what, name]
    words += ["--out", str(out)] if out != Path("runs") / study_plan.study.name else []
    words += ["--scale", study_plan.scale] if what == "run" and study_plan.scale not in ("", "small") else []
    words += [word for label in only for word in ("--only", label)]
    return shlex.join([*words, *pairs])
