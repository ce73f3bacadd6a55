"""What is known about a public data set, and how its files are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedchord import paths
from fedchord.check import FedchordError, fail
from fedchord.data.federation import DataSet


@final
@dataclass(frozen=True)
class Source:
    """One public data set.

    `files` lists what is expected under the data root: for each file the accepted places, the usual one first; a place
    with a `*` stands for all files it matches, of which there must be one. `rows` and `holdout` are the official
    numbers of training and test rows; files with fewer rows load, and say so. `skips`: the data are made of many files,
    and `load` takes `skip_damaged`. `augments`: the data set knows how to vary its pictures in training. `natural`: it
    has clients of its own, which are used unless a split is named. `table`: its rows are vectors of features. `model`:
    the one it is learned with unless another is named.
    """

    name: str
    title: str
    licence: str
    home: str
    load: Callable[..., DataSet]
    classes: int
    rows: int
    holdout: int = 0
    files: tuple[tuple[str, ...], ...] = ()
    embedded: bool = False
    skips: bool = False
    augments: bool = False
    natural: bool = False
    table: bool = False
    model: str = "twonn"

    @property
    def folder(self) -> str:
        """The folder under the data root that holds the files."""
        return self.files[0][0].partition("/")[0] if self.files else ""

    def missing(self, root: Path) -> list[str]:
        """The expected files that are not there, by their usual names."""
        return paths.missing(root, self.files)

    def locate(self, root: Path, file: str) -> Path:
        """The path of one expected file, given by its usual name."""
        places = next(places for places in self.files if places[0] == file)
        for place in places:
            found = paths.first(root, place)
            if found is not None:
                return found
        raise self.absent(root, [file])

    def absent(self, root: Path, files: list[str]) -> FedchordError:
        """The error for missing files: which, where from and where to."""
        them = "it" if len(files) == 1 else "them"
        where = f"or get {them} from {self.home} and put the files into {root / self.folder}"
        return fail(self.name, f"missing {', '.join(files)} in {root}; fedchord data get {self.name}, {where}")

    def origin(self, rows: int, holdout: int) -> str:
        """A sentence that tells whether the files hold the whole data set."""
        official = f"{self.rows} training and {self.holdout} test rows" if self.holdout else f"{self.rows} rows"
        if (rows, holdout) == (self.rows, self.holdout):
            return f"{self.title}: {official}, the official number."
        return (
            f"{self.title}: {rows} training and {holdout} test rows, not the official {official}; "
            "results are not comparable with published ones."
        )
