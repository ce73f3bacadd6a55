"""A study file: methods x settings x seeds in TOML, read and checked.

    title = "What this shows"
    metric = "top1"                      # and columns = ["mean", "worst10"], spread = "seeds" or "clients";
                                         # a column of another metric is written "ece mean"
    seeds = [1, 2, 3]
    [settings]                           # run keys of every run
    data = "digits"
    [[method]]                           # a row: label and run keys
    label = "FedProx"
    method = "fedprox"
    "method.mu" = 0.01
    in = { "K=50*" = { lr = 0.1 } }      # run keys of this row in the columns whose label matches
    [[setting]]                          # a column: label and run keys; metric = "top5" if it has one of its own
    label = "K=50"
    clients = 50
    [scale.small]                        # run keys (and seeds) on top; the default scale is small
    rounds = 10
    in = { "K=50*" = { rounds = 5 } }    # and those of some columns, or of a row there: "FedProx / K=50*"
    [reference]                          # printed numbers to stand beside ours: value and spread, in percent
    source = "paper"
    about = "table 3; std over clients"
    [reference.values.FedProx]
    "K=50" = [95.13, 2.67]               # of the first column; of several: { mean = [..], worst10 = [..] }

Run keys are joined in the order settings, setting, method, `in`, scale, command line; the later one counts.

What several studies have is written once:

    include = ["result_silo", "shared/fair"]   # other files, without .toml: of this folder, or built in
    methods = ["FedAvg", "set:cdf", "Mine"]    # rows by name, and all rows of a set, in this order
    [row]                                      # rows by name; one of an included file is changed, not replaced
    FedAvg = { lr = 0.1 }
    Mine = { like = "FedAvg", mixing = "term" }   # begins as another row
    [set]
    mine = ["FedAvg", "Mine"]

A file stands on top of what it includes: settings, scales and rows are joined key by key, all else is taken whole, and
its own rows (`methods`, [[method]]) take the place of the included ones. Seeds may be a range: "1-50".
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedchord.check import FedchordError, fail, number, one_of, require, unknown, whole
from fedchord.experiments.columns import COLUMNS, SAMPLES, SPREADS
from fedchord.experiments.settings import flatten
from fedchord.experiments.study_rows import files, located, read, rows
from fedchord.metrics import METRICS

KEYS = (
    *("title", "about", "include", "metric", "columns", "spread", "seeds", "settings", "methods", "method", "row"),
    *("set", "setting", "scale", "reference"),
)

BOTH = " / "
"""What stands between row and column in a pattern of both."""
MOST_SEEDS = 100_000
"""More than anybody can mean."""

Keys = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A row or a column: its label and its run keys; `inside` holds keys for some columns only, by pattern."""

    label: str
    keys: Keys
    inside: dict[str, Keys] = field(default_factory=dict)
    metric: str = ""
    """The metric of a column that has one of its own."""


@dataclass(frozen=True)
class Reference:
    """Printed numbers by (method, setting, column): value and spread."""

    source: str = ""
    about: str = ""
    values: dict[tuple[str, str, str], tuple[float, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """What a study file says."""

    name: str
    title: str
    about: str
    metric: str
    columns: tuple[str, ...]
    spread: str
    seeds: tuple[int, ...]
    base: Keys
    methods: tuple[Entry, ...]
    settings: tuple[Entry, ...]
    scales: dict[str, Keys]
    reference: Reference
    inside: dict[str, dict[str, Keys]] = field(default_factory=dict)
    """Run keys of a scale for some columns only, by scale and pattern."""
    files: tuple[Path, ...] = ()
    """The file it was read from, and those it includes."""
    owner: str = ""
    """Whose mistakes are told: "study NAME" unless it says otherwise."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "owner", self.owner or f"study {self.name}")

    def number(self, column: str, setting: str = "") -> tuple[str, str]:
        """Metric and column of one of `columns`: "mean" is the metric of the setting or the study, "ece mean" another
        one."""
        other, _, name = column.rpartition(" ")
        own = next((entry.metric for entry in self.settings if entry.label == setting), "")
        return other or own or self.metric, name


def load(path: str | Path, library: Path | None = None) -> Study:
    """A study from a file; what it includes is looked for beside it, then in the library."""
    try:
        return parse(Path(path).stem, read(Path(path), library), files(Path(path), library))
    except FedchordError as error:
        raise located(error, files(Path(path), library)) from None


def parse(name: str, content: Mapping[str, Any], files: Sequence[Path] = ()) -> Study:
    """The content of a study file, checked; run keys are checked when a plan is made."""
    owner = f"study {name}"
    for key in content:
        if key not in KEYS:
            raise unknown(f"key of {owner}", key, KEYS)
    metric, columns = content.get("metric", "top1"), tuple(_list(owner, content, "columns", ["mean"]))
    known = (*METRICS, *SAMPLES)
    if metric not in known:
        raise unknown(f"metric of {owner}", str(metric), known)
    for column in columns:
        other, _, plain = str(column).rpartition(" ")
        if other and other not in known:
            raise unknown(f"metric of {owner}", other, known)
        if plain not in COLUMNS:
            raise unknown(f"column of {owner}", plain, COLUMNS)
    require(len(columns) > 0, owner, "columns must name at least one")
    methods = _entries(owner, rows(owner, content), "method")
    settings = _entries(owner, _list(owner, content, "setting", []), "setting")
    for entry in settings:
        if entry.metric and entry.metric not in known:
            raise unknown(f"metric of {owner}, {entry.label}", entry.metric, known)
    require(len(methods) > 0, owner, "needs at least one [[method]]")
    settings = settings or (Entry("", {}),)
    study = Study(
        name=name,
        title=str(content.get("title", name)),
        about=str(content.get("about", "")),
        metric=metric,
        columns=columns,
        spread=one_of(owner, "spread", content.get("spread", "seeds"), SPREADS),
        seeds=seeds_of(owner, content.get("seeds", [0])),
        base=_run_keys(owner, "settings", content.get("settings", {})),
        methods=methods,
        settings=settings,
        scales={
            name: _scale(owner, name, keys) for name, keys in _table(owner, "scale", content.get("scale", {})).items()
        },
        reference=_reference(owner, content.get("reference", {}), methods, settings, columns),
        inside=_inside(owner, _table(owner, "scale", content.get("scale", {})), methods, settings),
        files=tuple(files),
    )
    for keys in (
        study.base,
        *(e.keys for e in (*methods, *settings)),
        *(k for e in methods for k in e.inside.values()),
    ):
        require("seeds" not in keys, owner, "seeds stands at the top of the file or in a scale")
    return study


def _entries(owner: str, written: Sequence[Any], kind: str) -> tuple[Entry, ...]:
    found: dict[str, Entry] = {}
    for values in written:
        keys = dict(_table(owner, kind, values))
        inside = _table(owner, f"{kind} in", keys.pop("in", {})) if kind == "method" else {}
        metric = str(keys.pop("metric", "")) if kind == "setting" else ""
        label = keys.pop("label", keys.get("method") if kind == "method" else None)
        require(isinstance(label, str) and bool(label), owner, f"every [[{kind}]] needs a label")
        require(label not in found, owner, f"two [[{kind}]] are called {label!r}")
        if kind == "method":
            require(isinstance(keys.get("method"), str), owner, f"[[method]] {label!r} needs method = NAME")
        parts = {pattern: _run_keys(owner, f"{label} in {pattern}", part) for pattern, part in inside.items()}
        found[str(label)] = Entry(str(label), _run_keys(owner, str(label), keys), parts, metric)
    return tuple(found.values())


def _reference(
    owner: str, content: Any, methods: Sequence[Entry], settings: Sequence[Entry], columns: Sequence[str]
) -> Reference:
    table = _table(owner, "reference", content)
    for key in table:
        if key not in ("source", "about", "values"):
            raise unknown(
                f"key of {owner}", f"reference.{key}", [f"reference.{k}" for k in ("source", "about", "values")]
            )
    values: dict[tuple[str, str, str], tuple[float, float | None]] = {}
    for method, row in _table(owner, "reference.values", table.get("values", {})).items():
        if method not in [entry.label for entry in methods]:
            raise unknown(f"method in the reference of {owner}", method, [entry.label for entry in methods])
        for setting, cell in _table(owner, f"reference of {method}", row).items():
            if setting not in [entry.label for entry in settings]:
                raise unknown(f"setting in the reference of {owner}", setting, [entry.label for entry in settings])
            for column, pair in (cell if isinstance(cell, dict) else {columns[0]: cell}).items():
                if column not in columns:
                    raise unknown(f"column in the reference of {owner}", column, columns)
                values[method, setting, column] = _pair(f"{owner}: reference of {method}, {setting}", pair)
    return Reference(str(table.get("source", "reference")), str(table.get("about", "")), values)


def _pair(owner: str, value: Any) -> tuple[float, float | None]:
    """A printed number: a value, or a value and its spread."""
    pair = value if isinstance(value, list) else [value]
    require(1 <= len(pair) <= 2, owner, f"must be [value, spread], got {value!r}")
    return number(owner, "value", pair[0]), number(owner, "spread", pair[1]) if len(pair) == 2 else None


def _run_keys(owner: str, name: str, value: Any) -> Keys:
    keys = flatten(_table(owner, name, value))
    for key in ("seed", "out"):
        require(key not in keys, owner, f"{name} must not set {key} (use {'seeds' if key == 'seed' else '--out'})")
    return keys


def _scale(owner: str, name: str, value: Any) -> Keys:
    table = {key: part for key, part in _table(owner, f"scale.{name}", value).items() if key != "in"}
    keys = _run_keys(owner, f"scale.{name}", table)
    return keys | ({"seeds": list(seeds_of(owner, keys["seeds"]))} if "seeds" in keys else {})


def _inside(
    owner: str, scales: Mapping[str, Any], methods: Sequence[Entry], settings: Sequence[Entry]
) -> dict[str, dict[str, Keys]]:
    """The run keys of every scale for some columns, or rows there, by pattern."""
    found: dict[str, dict[str, Keys]] = {}
    columns = [entry.label for entry in settings]
    labels = [*columns, *(f"{row.label}{BOTH}{column}" for row in methods for column in columns)]
    for name, scale in scales.items():
        parts = _table(owner, f"scale.{name}.in", scale.get("in", {}))
        found[name] = {pattern: _run_keys(owner, f"scale.{name} in {pattern}", part) for pattern, part in parts.items()}
        for pattern, keys in found[name].items():
            require("seeds" not in keys, owner, f"scale.{name} in {pattern} must not set seeds (the scale does)")
            if not fnmatch.filter(labels, pattern):
                raise unknown(f"setting of {owner}, scale.{name} in", pattern, labels)
    return found


def _table(owner: str, name: str, value: Any) -> dict[str, Any]:
    require(isinstance(value, dict), owner, f"{name} must be a table, got {value!r}")
    return dict(value)


def _list(owner: str, content: Mapping[str, Any], name: str, default: list[Any]) -> list[Any]:
    value = content.get(name, default)
    require(isinstance(value, list), owner, f"{name} must be a list, got {value!r}")
    return list(value)


def seeds_of(owner: str, value: Any) -> tuple[int, ...]:
    """Seeds from a file ([1, 2]) or as text (1,2 or 1-50)."""
    if isinstance(value, str):
        parts = re.fullmatch(r"\[?\s*(\d+(-\d+)?(\s*,\s*\d+(-\d+)?)*)\s*\]?", value)
        if parts is None:
            raise fail(owner, f"seeds must be like 1,2,3, got {value!r}")
        ends = [[int(end) for end in part.split("-")] for part in parts[1].split(",")]
        count = sum(max(0, pair[-1] - pair[0] + 1) for pair in ends)
        require(count <= MOST_SEEDS, owner, f"seeds must be at most {MOST_SEEDS:,}, got {count:,}")
        value = [seed for pair in ends for seed in range(pair[0], pair[-1] + 1)]
    seeds = value if isinstance(value, list) else [value]
    require(
        len(seeds) > 0 and len(set(seeds)) == len(seeds), owner, f"seeds must be different whole numbers, got {seeds}"
    )
    return tuple(whole(owner, "seeds", seed) for seed in seeds)
