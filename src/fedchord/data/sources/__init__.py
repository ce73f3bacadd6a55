"""The public data sets that can be named: where their files belong, whether they are there, and how to load them."""

from __future__ import annotations

from pathlib import Path

from fedchord import plugins
from fedchord.check import require, unknown
from fedchord.data.federation import DataSet
from fedchord.data.source import Source
from fedchord.data.sources import (
    berka,
    celeba,
    cifar,
    digits,
    femnist,
    heart,
    isic,
    medmnist,
    mnist,
    mqp,
    qmnist,
    reddit,
    shakespeare,
    speechcommands,
    tinyimagenet,
)
from fedchord.paths import data_root, expanded

__all__ = ["OURS", "SOURCES", "Source", "adopt", "data_root", "load", "status"]

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        *(digits.SOURCE, mnist.SOURCE, qmnist.SOURCE, cifar.CIFAR10, cifar.CIFAR100),
        *(heart.SOURCE, berka.SOURCE, berka.LEAKY, berka.BEFORE, mqp.SOURCE, isic.SOURCE),
        *medmnist.SOURCES,
        *(femnist.SOURCE, shakespeare.SOURCE, speechcommands.SOURCE, celeba.SOURCE, tinyimagenet.SOURCE),
        *reddit.SOURCES.values(),
    )
}


OURS = frozenset(SOURCES)
"""The names that come with fedchord."""


def adopt(name: str) -> None:
    """Make a source of an installed package known by its name; a name that nobody offers changes nothing."""
    if name in SOURCES or name not in plugins.installed("source"):
        return
    found = plugins.find("source", name)
    require(isinstance(found, Source), name, f"must be a fedchord.data.Source, got {type(found).__name__}")
    require(found.name == name, name, f"the source is called {found.name}, its entry point is not")
    SOURCES[name] = found


def load(name: str, root: str | Path | None = None, skip_damaged: bool = False) -> DataSet:
    """A public data set by its name, from its files under the data root; embedded ones need no files.

    `skip_damaged` leaves out damaged files of a data set that is made of many, and `origin` counts them. `origin` also
    says where files have the official number of rows, but not the official content.
    """
    from fedchord.data.official.verify import judged  # here, since it needs the records of the sources

    adopt(name)
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    source, place = SOURCES[name], _place(root)
    if not source.embedded:
        hint = f"fedchord data get {name}, or set FEDCHORD_DATA or data.root to the folder that holds {source.folder}/"
        require(place.is_dir(), name, f"{place} does not exist; {hint}")
        missing = source.missing(place)
        if missing:
            raise source.absent(place, missing)
    if not skip_damaged:
        return judged(source, place, source.load(place))
    able = [known.name for known in SOURCES.values() if known.skips]
    require(source.skips, name, f"skip_damaged is for data of many files ({', '.join(able)})")
    return judged(source, place, source.load(place, skip_damaged=True))


def status(source: Source, root: str | Path | None = None) -> str:
    """'present', or 'missing: ' and which files."""
    missing = source.missing(_place(root))
    return f"missing: {', '.join(missing)}" if missing else "present"


def _place(root: str | Path | None) -> Path:
    return data_root() if root is None else expanded(root)
