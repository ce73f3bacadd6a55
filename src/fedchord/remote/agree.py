"""From what every party's rows look like to what all agree on: one outline of the data, in which there is no row.

Categories and classes are the union of everybody's words in sorted order. What cannot be brought together is refused in
words that name the parties; what differs and does no harm is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedchord.check import fail, require
from fedchord.core.inputs import Block, Inputs
from fedchord.data import Federation
from fedchord.data.augment import Pictures
from fedchord.data.features import MOST_SAID, Feature, blocks_of, sorted_words
from fedchord.data.ragged import Ragged
from fedchord.data.scaling import Scaling
from fedchord.remote.facts import Facts

OWNER = "deploy plan"


def agree(name: str, clients: Sequence[str], facts: Sequence[Facts]) -> tuple[Federation, list[str]]:
    """The outline of a federation's data from the facts of all its parties, and what to tell about it."""
    every = _in_order(clients, facts)
    first = every[0]
    for other in every[1:]:
        _same_kind(first, other)
    features, notes = _features(every)
    classes, class_notes = _classes(every)
    columns = {key: torch.empty(0, *shape, dtype=getattr(torch, kind)) for key, (kind, shape) in first.columns.items()}
    if features:
        columns["x"] = torch.empty(0, sum(one.width for one in features), dtype=columns["x"].dtype)
    train, validation, test = (_numbered(_sizes(every, part)) for part in ("train", "validation", "test"))
    numbered = first.kind == "arrays" or not first.named
    named = not numbered or classes != [str(number) for number in range(len(classes))]
    outline = Federation(
        name,
        columns,
        len(classes) or 1,
        train,
        validation,
        test,
        client_names=tuple(clients),
        pictures=None if first.pictures is None else _pictures(first.pictures),
        blocks=_blocks(every, features),
        class_names=tuple(classes) if named else (),
        features=features,
        scaling=_scaling(first, features, len(clients), columns["x"]),
        target=_target(every) if first.regression else None,
    )
    return replace(outline, declared=_inputs(every, outline)), [*notes, *class_notes, *_versions(every)]


def _in_order(clients: Sequence[str], facts: Sequence[Facts]) -> list[Facts]:
    """The facts in the order of client numbers, one of every party."""
    by_name: dict[str, Facts] = {}
    for one in facts:
        require(one.party in clients, OWNER, f"{one.party} is no party of the federation ({', '.join(clients)})")
        require(one.party not in by_name, OWNER, f"the facts of {one.party} are given twice")
        place = list(clients).index(one.party)
        told = f"{one.party} says it is client {one.client}, but is number {place} in clients"
        require(one.client == place, OWNER, f"{told}; put client = {place} into its node.toml and make its facts anew")
        by_name[one.party] = one
    missing = [client for client in clients if client not in by_name]
    require(not missing, OWNER, f"the facts of {', '.join(missing)} are missing (fedchord deploy facts makes them)")
    return [by_name[client] for client in clients]


def _same_kind(one: Facts, other: Facts) -> None:
    """Refuse rows that are of different kinds, shapes or types."""
    pair = f"{one.party} and {other.party}"
    require(one.kind == other.kind, OWNER, f"{one.party} has {one.kind}, {other.party} {other.kind}")
    told = "classes" if other.classes else "numbers to predict"
    require(one.regression == other.regression, OWNER, f"{pair} differ: {other.party} has {told}, the other not")
    for name in dict.fromkeys((*one.columns, *other.columns)):
        for this, that in ((one, other), (other, one)):
            require(name in this.columns, OWNER, f"{that.party} has a column {name}, {this.party} has none")
        if name == "x" and one.features:
            continue
        (kind, shape), (kind2, shape2) = one.columns[name], other.columns[name]
        sides = " and ".join("x".join(map(str, part)) or "single numbers" for part in (shape, shape2))
        require(shape == shape2, OWNER, f"rows of {pair} have different shapes ({name}): {sides}")
        require(kind == kind2, OWNER, f"rows of {pair} have different types ({name}): {kind} and {kind2}")
    require(one.pictures == other.pictures, OWNER, f"pictures of {pair} are shown in different ways")
    if not one.features:
        require(one.scaled == other.scaled, OWNER, f"{pair} scale differently; data.scale must be the same")


def _features(every: Sequence[Facts]) -> tuple[tuple[Feature, ...], list[str]]:
    """The columns of all tables: those of the first party, with everybody's words."""
    first, notes = every[0], []
    names = [feature.name for feature in first.features]
    for other in every[1:]:
        theirs = [feature.name for feature in other.features]
        for here, there, columns in ((first, other, theirs), (other, first, names)):
            lacking = [name for name in (names if here is first else theirs) if name not in columns]
            if lacking:
                told = f"{there.party} has no column {lacking[0]!r}, which {here.party} has"
                raise fail(OWNER, f"{told}; add it there, or leave it out with drop = [{lacking[0]!r}]")
        if theirs != names:
            notes.append(f"{other.party} has its columns in another order than {first.party}; they are read by name")
    return tuple(_feature(name, every, notes) for name in names), notes


def _feature(name: str, every: Sequence[Facts], notes: list[str]) -> Feature:
    """One column: a number everywhere, or a category everywhere, where it has a value at all."""
    own = {one.party: next(f for f in one.features if f.name == name) for one in every if name not in one.empty}
    bare = [one.party for one in every if name in one.empty]
    require(bool(own), OWNER, f"column {name!r} has no value at any party; leave it out with drop = [{name!r}]")
    if bare:
        notes.append(f"column {name!r} has no value at {', '.join(bare)}")
    words = [party for party, feature in own.items() if feature.categories]
    numbers = [party for party in own if party not in words]
    if words and numbers:
        some = " ".join(own[words[0]].categories[:5])
        told = f"column {name!r} is a number at {numbers[0]} and words at {words[0]} ({some})"
        raise fail(OWNER, f"{told}; make it a number there, or say category = [{name!r}] at all")
    marks = {one.party: one.scaled[_place(one, name)] for one in every if one.scaled is not None and name in own}
    require(len(set(marks.values())) <= 1 or bool(words), OWNER, f"column {name!r} is scaled at some parties only")
    if not words:
        return Feature(name)
    union = tuple(sorted_words(word for feature in own.values() for word in feature.categories))
    require(len(union) <= MOST_SAID, OWNER, f"column {name!r} has {len(union)} words; a category has at most 1000")
    for party, feature in own.items():
        lacking = [word for word in union if word not in feature.categories]
        if lacking:
            notes.append(f"column {name!r}: {party} has no {' '.join(lacking)}")
    return Feature(name, union)


def _place(facts: Facts, name: str) -> int:
    return [feature.name for feature in facts.features].index(name)


def _classes(every: Sequence[Facts]) -> tuple[list[str], list[str]]:
    """Everybody's classes in sorted order."""
    first, notes = every[0], []
    for other in every[1:]:
        apart = not set(first.classes) & set(other.classes) and bool(first.classes)
        alike = _all_numbers(first.classes) == _all_numbers(other.classes)
        sides = f"{' '.join(first.classes[:5])} at {first.party}, {' '.join(other.classes[:5])} at {other.party}"
        require(not apart or alike, OWNER, f"classes are called differently: {sides}; use the same words")
        if apart:
            notes.append(f"{first.party} and {other.party} have no class in common: {sides}")
    union = sorted_words(word for one in every for word in one.classes)
    if first.kind not in ("table", "texts", "arrays", "list of pictures", "folder of pictures"):
        union = list(first.classes)  # a public data set has its order
    for one in every:
        lacking = [word for word in union if word not in one.classes]
        if lacking:
            notes.append(f"{one.party} has no row of {'class' if len(lacking) == 1 else 'classes'} {' '.join(lacking)}")
    return union, notes


def _all_numbers(words: Sequence[str]) -> bool:
    return all(word.lstrip("-").replace(".", "", 1).isdecimal() for word in words)


def _blocks(every: Sequence[Facts], features: Sequence[Feature]) -> tuple[Block, ...]:
    """Where categories stand: as the data say where nobody's words were added, else by the features."""
    same = all(one.features == tuple(features) and one.blocks == every[0].blocks for one in every)
    return tuple(Block(*block) for block in every[0].blocks) if same else blocks_of(features)


def _scaling(first: Facts, features: Sequence[Feature], clients: int, x: Tensor) -> Scaling | None:
    """Which features are scaled; by what, every party knows for itself (NaN here)."""
    if first.scaled is None:
        return None
    by_column = zip(features, first.scaled, strict=True) if features else [(Feature(""), mark) for mark in first.scaled]
    marks = torch.tensor([mark for feature, mark in by_column for _ in range(feature.width)], dtype=torch.bool)
    unknown = torch.full((clients, x.shape[1]), math.nan, dtype=torch.float64)
    return Scaling(marks, unknown, unknown.clone(), torch.full((2, x.shape[1]), math.nan, dtype=torch.float64))


def _sizes(every: Sequence[Facts], part: str) -> Tensor:
    """How many rows each party has, by which the server weighs them."""
    counts = _everybodys(every, "rows", "the numbers of rows")
    return torch.tensor([one[part] for one in counts], dtype=torch.int64)


def _numbered(sizes: Tensor) -> Ragged:
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    return Ragged(torch.arange(int(offsets[-1])), offsets)


def _pictures(told: dict[str, Any]) -> Pictures:
    lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
    return Pictures(**lists)


def _target(every: Sequence[Facts]) -> tuple[float, float]:
    """Mean and std of the numbers to predict over everybody's training rows, from each party's own:
    m = sum n_i m_i / n and s^2 = sum n_i (s_i^2 + (m_i - m)^2) / n."""
    found = _everybodys(every, "target", "the mean and the spread of the numbers to predict")
    rows = [one["train"] for one in found]
    mean = math.fsum(n * one["mean"] for n, one in zip(rows, found, strict=True)) / sum(rows)
    parts = (n * (one["std"] ** 2 + (one["mean"] - mean) ** 2) for n, one in zip(rows, found, strict=True))
    return mean, math.sqrt(math.fsum(parts) / sum(rows)) or 1.0


def _inputs(every: Sequence[Facts], outline: Federation) -> Inputs | None:
    """The ranges of numbers, where all parties share theirs; rules that make examples need them."""
    if any("ranges" not in one.shared for one in every):
        return None
    found = [one.shared["ranges"] for one in every]
    if len(outline.shape) != 1 or not outline.columns["x"].is_floating_point():
        low, high = min(one["low"] for one in found), max(one["high"] for one in found)
        fixed = outline.pictures is not None or outline.columns["x"].dtype != torch.float32
        return Inputs(outline.shape, outline.classes, low, high, observed=not fixed)
    lows, highs = (_spread(every, outline, end) for end in ("low", "high"))
    low, high = lows.nan_to_num(math.inf).amin(0), highs.nan_to_num(-math.inf).amax(0)
    weights = torch.tensor([one["train"] for one in found]).unsqueeze(1) * (highs > lows).double()
    total = weights.sum(0)
    coded = torch.zeros(len(low), dtype=torch.bool)
    for start, stop, _ in outline.blocks:
        coded[start:stop] = True
    for end, values in ((low, lows), (high, highs)):
        mean = (weights * values.nan_to_num(0.0)).sum(0) / total
        end[coded] = torch.where(total > 0, mean, end)[coded]
    low, high = low.to(torch.float32), high.to(torch.float32)
    return Inputs(outline.shape, outline.classes, low, high, outline.blocks, observed=True)


def _spread(every: Sequence[Facts], outline: Federation, end: str) -> Tensor:
    """Everybody's smallest or largest values, (parties, features); a word that a party has not met is 0 there."""
    found: list[Tensor] = []
    for one in every:
        own = torch.tensor(one.shared["ranges"][end], dtype=torch.float64)
        labels = [label for feature in one.features for label in feature.labels]
        place = {label: number for number, label in enumerate(labels)}
        agreed = [label for feature in outline.features for label in feature.labels]
        at = [place.get(label, -1) for label in agreed] if agreed else list(range(len(own)))
        found.append(torch.stack([own[number] if number >= 0 else own.new_zeros(()) for number in at]))
    return torch.stack(found)


def _everybodys(every: Sequence[Facts], key: str, what: str) -> list[dict[str, Any]]:
    silent = [one.party for one in every if key not in one.shared]
    ask = f"fedchord deploy facts NODE.toml --share {key}"
    require(not silent, OWNER, f"{what} must be known of all parties, {', '.join(silent)} did not say; ask for: {ask}")
    return [one.shared[key] for one in every]


def _versions(every: Sequence[Facts]) -> list[str]:
    """Which parties have other versions: results then differ in their last digits, or messages are refused."""
    found: list[str] = []
    for program in every[0].versions:
        told = {one.party: one.versions.get(program, "unknown") for one in every}
        if len(set(told.values())) > 1:
            parts = ", ".join(f"{version} at {party}" for party, version in told.items())
            found.append(f"{program} differs: {parts}; install the same version everywhere")
    return found
