"""What a party's rows look like, as a text that its owner can read before it leaves: names, shapes, words, no row.

Counts, ranges and the mean of what is predicted are read off rows; they are in it only where the owner shares them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import torch

from fedchord import __version__
from fedchord.check import FedchordError, fail, one_of, require
from fedchord.data import DataSet, Federation
from fedchord.data.features import Feature, infer, words_of
from fedchord.data.formats.csv_file import read_csv
from fedchord.experiments import own_data
from fedchord.experiments.config import RunConfig
from fedchord.files import write_text
from fedchord.remote.rows import class_words, config_of, one_client, read_rows
from fedchord.remote.settings import Party
from fedchord.safe import json_of

FORMAT = 1
FACTS = "facts.json"
SHARES = {
    "rows": "the numbers of training, validation and test rows",
    "ranges": "the smallest and the largest value of every feature of the training rows",
    "target": "the mean and the spread of the numbers to predict, over the training rows",
}
"""What is only told where the owner shares it."""
SPLIT = ("seed", "test", "validation")
"""The settings of a plan that say which rows are training rows."""


@final
@dataclass(frozen=True)
class Facts:
    """What one party's rows look like."""

    party: str
    client: int
    kind: str
    """A table, arrays, texts ..., or the name of a public data set."""
    columns: dict[str, tuple[str, tuple[int, ...]]]
    """The type and the shape of a row's x, y, ... as a model gets them; x of a table is told by its features."""
    classes: tuple[str, ...]
    """The classes that the rows have, in words; none where numbers are predicted."""
    named: bool
    """Whether these are names, or only the numbers 0, 1, ..."""
    features: tuple[Feature, ...] = ()
    empty: tuple[str, ...] = ()
    """Columns of a table that have no value here."""
    scaled: tuple[bool, ...] | None = None
    """Which features every party scales by its own rows; by column of a table, by number of an array."""
    blocks: tuple[tuple[int, int, bool], ...] = ()
    pictures: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    split: dict[str, float] = field(default_factory=dict)
    """By which settings training rows were told from others, where something was read off them."""
    shared: dict[str, Any] = field(default_factory=dict)
    """Of the keys of SHARES, those that the owner shares."""

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted."""
        return not self.classes

    def text(self) -> str:
        """All of it as JSON, one key a line at the top."""
        told = {"format": FORMAT, **asdict(self)}
        told["features"] = [
            {"name": one.name, "is": "empty" if one.name in self.empty else "category" if one.categories else "number"}
            | ({"words": list(one.categories)} if one.categories else {})
            for one in self.features
        ]
        told.pop("empty")
        return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in told.items()) + "\n}\n"

    def save(self, path: Path) -> None:
        """Write them, whole or not at all."""
        write_text(path, self.text())


def facts_of(party: Party, settings: Mapping[str, Any] | None = None, share: Collection[str] = ()) -> Facts:
    """The facts of a party's rows. `settings` are those of the plan that matter to them: seed, test and validation
    where something is shared, and the model that reads texts."""
    for what in share:
        one_of("deploy facts", "--share", what, SHARES)
    config, part = config_of(party.data, settings), str(party.data.get("part", ""))
    features, empty = _features(config)
    dataset = read_rows(config, party.name, part, features)
    known = dataset.features
    own = own_data.is_own(config.data)
    shown = dataset.augmented if config.augment else dataset.shown
    return Facts(
        party=party.name,
        client=party.client,
        kind=own_data.kind(config) if own else config.data,
        columns={name: _told(dataset, name) for name in dataset.columns},
        classes=() if dataset.regression else class_words(dataset.class_names, dataset.classes),
        named=bool(dataset.class_names),
        features=known,
        empty=empty,
        scaled=_scaled(dataset),
        blocks=tuple((block.start, block.stop, block.none) for block in dataset.blocks),
        pictures=None if shown is None else asdict(shown),
        versions={"fedchord": __version__, "torch": torch.__version__.partition("+")[0]},
        split={key: float(getattr(config, key)) for key in _split(own, share)},
        shared=_shared(one_client(dataset, config, party.client, party.name, part), share) if share else {},
    )


def read_facts(path: Path) -> Facts:
    """The facts of a file."""
    try:
        told = json_of(path.read_text(encoding="utf-8"))
        require(told.pop("format") == FORMAT, str(path), "is of another version of fedchord")
        features = told.pop("features")
        return Facts(
            **{
                **told,
                "columns": {name: (kind, tuple(shape)) for name, (kind, shape) in told["columns"].items()},
                "classes": tuple(told["classes"]),
                "features": tuple(Feature(one["name"], tuple(one.get("words", ()))) for one in features),
                "empty": tuple(one["name"] for one in features if one["is"] == "empty"),
                "scaled": None if told["scaled"] is None else tuple(told["scaled"]),
                "blocks": tuple(tuple(block) for block in told["blocks"]),
            }
        )
    except FedchordError:
        raise
    except OSError as error:
        raise fail(str(path), f"cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise fail(str(path), "is no file that fedchord deploy facts wrote") from None


def _features(config: RunConfig) -> tuple[tuple[Feature, ...] | None, tuple[str, ...]]:
    """What the columns of a party's table are, and which have no value; None where the rows are no such table."""
    if not own_data.is_own(config.data) or own_data.kind(config) != "table":
        return None, ()
    path = Path(config.data)
    require(path.is_file(), "data", f"{path}: no such file")
    read = read_csv(path, config.data_delimiter)
    client = config.data_client or (own_data.CLIENT if own_data.has_clients(config) else None)
    other = {config.data_target or config.data_label or own_data.LABEL, client, *(config.data_drop or ())}
    columns = {name: cells for name, cells in read.columns.items() if name not in other}
    empty = tuple(name for name, cells in columns.items() if not any(words_of(cells)))
    full = {name: cells for name, cells in columns.items() if name not in empty}
    found = {one.name: one for one in infer(path.name, full, config.data_category or (), read.place)}
    return tuple(found.get(name, Feature(name)) for name in columns), empty


def _told(dataset: DataSet, name: str) -> tuple[str, tuple[int, ...]]:
    """The type and the shape of a row's entry as it is kept after scaling."""
    column = dataset.columns[name]
    kind = torch.float32 if name == "x" and dataset.scaled is not None else column.dtype
    return str(kind).removeprefix("torch."), tuple(column.shape[1:])


def _scaled(dataset: DataSet) -> tuple[bool, ...] | None:
    """Which columns of a table, or which numbers of an array, are scaled."""
    if dataset.scaled is None:
        return None
    marks, start, found = dataset.scaled.tolist(), 0, []
    if not dataset.features:
        return tuple(marks)
    for feature in dataset.features:
        found.append(marks[start])
        start += feature.width
    return tuple(found)


def _split(own: bool, share: Collection[str]) -> tuple[str, ...]:
    """The settings that matter to what is shared; how many rows of an own file train does not depend on the seed."""
    return () if not share else SPLIT[1:] if own and set(share) == {"rows"} else SPLIT


def _shared(own: Federation, share: Collection[str]) -> dict[str, Any]:
    """What is read off the rows, as far as the owner shares it."""
    found: dict[str, Any] = {}
    sizes = {part: len(own.part(part).rows) for part in ("train", "validation", "test")}
    if "rows" in share:
        found["rows"] = sizes
    if "ranges" in share:
        low, high = (torch.as_tensor(end).tolist() for end in (own.inputs.low, own.inputs.high))
        found["ranges"] = {"low": low, "high": high, "train": sizes["train"]}
    if "target" in share:
        require(own.target is not None, "deploy facts", "--share target is for numbers to predict")
        assert own.target is not None
        found["target"] = {"mean": own.target[0], "std": own.target[1], "train": sizes["train"]}
    return found


def lines(facts: Facts) -> list[str]:
    """The facts in words, for whoever decides whether they may leave."""
    rows = ", ".join(f"{name} ({_words(facts, one)})" for name, one in _named(facts).items())
    found = [
        f"{facts.party} (client {facts.client}): {facts.kind}",
        f"features: {rows}" if rows else f"shape of a row: {'x'.join(map(str, facts.columns['x'][1])) or 'one number'}",
        f"classes: {', '.join(facts.classes)}" if facts.classes else "numbers are predicted",
    ]
    found += [f"shared: {SHARES[key]}: {json.dumps(value)}" for key, value in facts.shared.items()]
    kept = [what for key, what in SHARES.items() if key not in facts.shared and (key != "target" or facts.regression)]
    return [*found, *(f"not in it: {what}" for what in kept)]


def _named(facts: Facts) -> Mapping[str, Feature]:
    return {feature.name: feature for feature in facts.features}


def _words(facts: Facts, feature: Feature) -> str:
    if feature.name in facts.empty:
        return "no value here"
    return " ".join(feature.categories) if feature.categories else "number"
