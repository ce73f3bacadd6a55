"""A study without a file: key=value texts, of which those with several values are the axes of a grid.

    fedchord sweep lr=0.1,0.03 method=fedavg,fedprox method.mu=0.1,1 seed=1,2,3

Every combination is a row of a study; seeds are its repeats. A parameter that a method does not have is left out for
that method, which then has fewer points. Settings are chosen on validation rows, so every run has some. (The sweep of
evaluation/sweep.py is another one, along lambda.)
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedchord.check import fail, require
from fedchord.experiments import study
from fedchord.experiments.config import INDIFFERENT, LISTS, RULES, WORDS, RunConfig, check_key, strangers
from fedchord.experiments.keys import is_number
from fedchord.experiments.parts import Parts, headline
from fedchord.experiments.reading import read
from fedchord.experiments.settings import Scalar, parse_value, split_values, texts_of
from fedchord.experiments.study_file import Entry, Reference, Study, seeds_of
from fedchord.metrics import find

OWNER, EXAMPLE = "sweep", "lr=0.1,0.03"
SHARE = 0.1
"""The share of each client's rows that is for validation unless it is said."""
MANY, MOST = 1_000, 100_000
"""More runs than the first must be meant; more than the second nobody can mean."""

Values = dict[str, tuple[Scalar, ...]]


@dataclass(frozen=True)
class Point:
    """One setting of the grid: its label, all its keys, and which of them are axes."""

    label: str
    keys: dict[str, Scalar]
    axes: tuple[str, ...]

    @property
    def method(self) -> str:
        """The method."""
        return str(self.keys.get("method", RunConfig.method))


@dataclass(frozen=True)
class Grid:
    """The points of a sweep, the keys in which they differ, and the study that they make."""

    axes: tuple[str, ...]
    points: tuple[Point, ...]
    plan: study.Plan
    left_out: tuple[str, ...]
    """A line on every parameter that some method does not have."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The repeats."""
        return self.plan.study.seeds

    @property
    def folder(self) -> Path:
        """Where its runs go unless it is said: the same grid has the same folder, with more seeds too."""
        marks = sorted({job.config.fingerprint("seed") for job in self.plan.jobs})
        return Path("runs") / f"sweep-{hashlib.sha256(' '.join(marks).encode()).hexdigest()[:8]}"

    def command(self, point: Point) -> list[str]:
        """The words that run a point once more, with the first seed."""
        values = point.keys | {"seed": self.seeds[0]}
        return ["fedchord", "run", *(f"{key}={study.written(value)}" for key, value in values.items())]


def parse(pairs: Sequence[str], many: bool = False, metric: str | None = None) -> Grid:
    """The grid of key=value texts, every run checked; `many` runs have to be asked for. `metric` must be one."""
    if metric is not None:
        find(metric)
    texts = texts_of(pairs, OWNER, EXAMPLE)
    seeds = seeds_of(OWNER, texts.pop("seed", "0"))
    values = {key: _values(key, text) for key, text in texts.items()}
    _check_validation(values)
    axes = [key for key, found in values.items() if len(found) > 1]
    several = "give another key several values" if len(seeds) > 1 else "give a key several values"
    told = "seeds are repeats, not choices" if len(seeds) > 1 else "there is nothing to choose between"
    require(bool(axes), OWNER, f"{told}; {several}, such as {EXAMPLE}")
    found = list(_mixtures(values))
    _check_strangers(values, found)
    runs = len(seeds) * sum(math.prod(len(kept[key]) for key in kept) for kept, _ in found)
    require(runs <= MOST, OWNER, f"{runs:,} runs are more than the {MOST:,} that it takes")
    require(runs <= MANY or many, OWNER, f"{runs:,} runs; if you mean it, add --yes (--dry-run lists them)")
    points = tuple(point for kept, _ in found for point in _points(kept, axes))
    made = replace(_plan(points, seeds), changes=texts | {"seed": ",".join(map(str, seeds))})
    _check_twins(made)
    return Grid(tuple(axes), points, made, tuple(_left_out(found, axes)))


def _values(key: str, text: str) -> tuple[Scalar, ...]:
    """The values of a key, each once."""
    check_key(key)
    require(key != "out", OWNER, "out= cannot be set here: use --out FOLDER")
    if key in LISTS:
        return (text,)
    parts = split_values(text)
    require(all(parts), OWNER, f"{key} has an empty value in {text!r}")
    found = tuple(parse_value(part, key in WORDS) for part in parts)
    for value in found:
        twice = sum(type(other) is type(value) and other == value for other in found) > 1
        require(not twice, OWNER, f"{key} has the value {study.written(value)} twice")
    few = len(found) == 1 or key not in INDIFFERENT
    require(few, OWNER, f"{key} does not change the result; give it one value")
    return found


def _check_validation(values: Values) -> None:
    """Some rows to choose on, in every run."""
    for share in values.setdefault("validation", (SHARE,)):
        none = is_number(share) and share == 0
        told = "validation=0 leaves only test rows to choose on, which is what a sweep is there to avoid"
        require(not none, OWNER, f"{told}; give a share such as {SHARE}")


def _mixtures(values: Values) -> Iterator[tuple[Values, list[str]]]:
    """The grid of every combination of method, mixing and server: what they have, and what they do not have."""
    rules = [key for key in RULES if key in values]
    for chosen in itertools.product(*(values[key] for key in rules)):
        named = dict(zip(rules, chosen, strict=True))
        lost = strangers(values | named)
        rest = {key: found for key, found in values.items() if key not in (*rules, *lost)}
        yield {key: (value,) for key, value in named.items()} | rest, lost


def _check_strangers(values: Values, found: Sequence[tuple[Values, list[str]]]) -> None:
    """A parameter that no method of the grid has is a mistake, told as for a run of the first."""
    kept, lost = found[0]
    for key in lost:
        if all(key in strange for _, strange in found):
            first = {name: options[0] for name, options in (kept | {key: values[key]}).items()}
            RunConfig.from_values(first)


def _points(kept: Values, axes: Sequence[str]) -> Iterator[Point]:
    own = tuple(key for key in axes if key in kept)
    for chosen in itertools.product(*kept.values()):
        keys = dict(zip(kept, chosen, strict=True))
        told = [f"{key}={study.written(keys[key])}" for key in own if key != "method"]
        yield Point(" ".join([str(keys.get("method", RunConfig.method)), *told]), keys, own)


def _plan(points: Sequence[Point], seeds: tuple[int, ...]) -> study.Plan:
    """The study: a row for each point."""
    rows = tuple(Entry(point.label, {"method": point.method, **point.keys}) for point in points)
    made = Study(
        name=OWNER,
        title="",
        about="",
        metric="",
        columns=("mean",),
        spread="seeds",
        seeds=seeds,
        base={},
        methods=rows,
        settings=(Entry("", {}),),
        scales={},
        reference=Reference(),
        owner=OWNER,
    )
    return study.plan(made)


def _check_twins(plan: study.Plan) -> None:
    """Two points that are the same run in other words."""
    first = [job for job in plan.jobs if job.seed == plan.study.seeds[0]]
    known: dict[str, str] = {}
    for job in first:
        other = known.setdefault(job.config.fingerprint(), job.method)
        require(other == job.method, OWNER, f"{other} and {job.method} are the same run; give each value once")


def _left_out(found: Sequence[tuple[Values, list[str]]], axes: Sequence[str]) -> Iterator[str]:
    """A line on every parameter that is left out somewhere."""
    lost: dict[str, list[str]] = {}
    for kept, strange in found:
        rules = [(key, kept[key][0]) for key in RULES if key in kept]
        name = " ".join(str(value) if key == "method" else f"{key}={value}" for key, value in rules)
        for key in strange:
            lost.setdefault(key, []).append(name)
    for key, names in lost.items():
        fewer = ", so fewer settings" if key in axes else ""
        yield f"{key} left out for {', '.join(names)}: no such parameter{fewer}"


def metric_of(grid: Grid, out: Path, asked: str | None = None) -> str:
    """The metric to choose by, which all runs measure on validation rows: the one asked for, or the headline.

    What is measured is known from a finished run, else from a run that is built for it.
    """
    done = next((job for job in grid.plan.jobs if job.is_done(out)), None)
    names = _built(grid.plan.jobs[0]) if done is None else list(read(out / done.folder).summary["metrics"])
    chosen = asked or headline(names)
    told = f"{chosen} is not measured in these runs ({', '.join(names)}); add metrics={chosen}"
    require(chosen in names, OWNER, told)
    return chosen


def _built(job: study.Job) -> list[str]:
    """What a run measures; a mistake in its data is told here, before anything is written."""
    parts = Parts.build(job.config)
    if not len(parts.federation.validation.rows):
        raise fail(OWNER, "no client has validation rows; give a larger share, such as validation=0.2")
    objective = parts.task.objective
    if parts.algorithm.outcome == "samples":
        objective = job.config.judged_by().task(parts.federation.shape, parts.federation.classes).objective
    return list(parts.metrics or objective.metrics)
