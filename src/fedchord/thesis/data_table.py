"""Every data set beside the thesis: is it here, is it the original, how many clients and rows, and why it differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedchord.check import FedchordError
from fedchord.data import SOURCES, Federation, Source, federate, load
from fedchord.data.official.facts import FACTS, Facts, Thesis
from fedchord.data.official.verify import File, loaded_rows, look, verdict
from fedchord.data.statistics import Statistics, statistics
from fedchord.experiments.config import RunConfig
from fedchord.report.cells import Cell, Head, Table

HEADS = ("data", "here", "clients", "samples", "mean", "std")
THESIS = ("thesis clients", "thesis samples", "thesis mean", "thesis std", "table")
DASH = "-"


@final
@dataclass(frozen=True)
class Entry:
    """One data set: a word and a sentence on the copy that is here, and its statistics if it can be read."""

    source: Source
    word: str
    told: str
    files: tuple[File, ...] = ()
    found: Statistics | None = None
    origin: str = ""


def settings(name: str, given: Sequence[str]) -> list[str]:
    """The settings that make clients of a data set: those given, and for the rest those of the thesis."""
    facts = FACTS.get(name, Facts())
    asked = {pair.partition("=")[0] for pair in given}
    split = facts.thesis.split if facts.thesis else ()
    own = any(key == "split" or key.startswith("split.") for key in asked)
    kept = [pair for pair in split if pair.partition("=")[0] not in asked and not (own and pair.startswith("split"))]
    cohort = [] if "cohort" in asked else ["cohort=all"]  # it does not matter here
    return [f"data={name}", *kept, *cohort, *given]


def federation_of(name: str, given: Sequence[str] = ()) -> Federation:
    """The clients of a data set, by the thesis' split or another."""
    return RunConfig.from_pairs(settings(name, given)).federation()


def entry(source: Source, root: Path, read: bool = True) -> Entry:
    """What there is of one data set; what cannot be read, or not be given to clients, is told and not raised."""
    files = tuple(look(source, root))
    word, told = verdict(source, files, None)
    if word == "missing" or not read:
        return Entry(source, word, told, files)
    try:
        dataset = load(source.name, root)
    except FedchordError as error:
        return Entry(source, "damaged", str(error).removeprefix(f"{source.name}: "), files)
    word, told = verdict(source, files, loaded_rows(dataset), dataset.altered)
    config = RunConfig.from_pairs(settings(source.name, []))
    clients = config.choices()["clients"]
    try:
        found = statistics(federate(dataset, config.partition(), None if clients == "all" else clients))
    except FedchordError as error:  # too few rows for so many clients
        return Entry(source, word, f"{told}; {error}", files, None, dataset.origin)
    return Entry(source, word, told, files, found, dataset.origin)


def way_to_get(source: Source, root: Path) -> str:
    """How to get a data set that is not here."""
    facts = FACTS.get(source.name, Facts())
    if facts.downloads:
        return f"fedchord data get {source.name}"
    return f"{facts.manual or f'get it from {source.home} and put the files'} into {root / source.folder}"


def table(root: Path, names: Sequence[str] = ()) -> Table:
    """One row for each data set, the numbers here beside the thesis', and a note on each difference."""
    entries = [entry(source, root) for name, source in SOURCES.items() if not names or name in names]
    rows = [(*_here(one), *_printed(FACTS.get(one.source.name, Facts()).thesis)) for one in entries]
    notes = [f"{one.source.name}: {explain(one, root)}" for one in entries]
    return Table(
        tuple(Head(name) for name in (*HEADS, *THESIS)),
        tuple(tuple(Cell(text) for text in row) for row in rows),
        tuple(notes),
    )


def _here(one: Entry) -> tuple[str, ...]:
    found = one.found
    if found is None:
        return (one.source.name, one.word, *[DASH] * 4)
    return (one.source.name, one.word, str(found.clients), str(found.samples), f"{found.mean:.2f}", f"{found.std:.2f}")


def _printed(thesis: Thesis | None) -> tuple[str, ...]:
    if thesis is None:
        return (*[DASH] * 4, "not in the thesis")
    numbers = (thesis.samples, thesis.mean, thesis.std)
    shown = [DASH if value is None else f"{value:.2f}" if isinstance(value, float) else str(value) for value in numbers]
    return ("/".join(str(count) for count in thesis.clients), *shown, thesis.table)


def agrees(found: Statistics, thesis: Thesis) -> bool:
    """Whether the numbers are the thesis' as far as it gives them, to its two decimals."""
    pairs = ((found.mean, thesis.mean), (found.std, thesis.std))
    close = all(theirs is None or abs(mine - theirs) <= 0.005 + 1e-9 for mine, theirs in pairs)
    return found.clients in thesis.clients and thesis.samples in (None, found.samples) and close


def explain(one: Entry, root: Path) -> str:
    """Why a data set is as it is here, in a sentence or two."""
    facts = FACTS.get(one.source.name, Facts())
    thesis, found = facts.thesis, one.found
    if one.word == "missing":
        nothing = all(not file.count for file in one.files)
        return f"{'not here' if nothing else one.told}; to get it: {way_to_get(one.source, root)}"
    if found is None:
        return one.told
    if thesis is None:
        return f"{one.told}. Not in the thesis' tables of data."
    if agrees(found, thesis):
        if thesis.samples is not None:
            return f"{one.told}. All four numbers are the thesis'."
        return f"{one.told}. {'Split into' if thesis.split else 'It has'} as many clients as in the thesis. {facts.why}"
    clients = "/".join(str(count) for count in thesis.clients)
    samples = f" with {thesis.samples} rows" if thesis.samples is not None else ""
    return f"{one.told}. The thesis has {clients} clients{samples}. {facts.why}".rstrip()


def statistics_lines(name: str, federation: Federation) -> list[str]:
    """The statistics of a federation, and the thesis' below them."""
    found, thesis = statistics(federation), FACTS.get(name, Facts()).thesis
    lines = [_line("here", str(found.clients), found.samples, found.mean, found.std)]
    if thesis is not None:
        clients = "/".join(str(count) for count in thesis.clients)
        lines.append(f"{_line('thesis', clients, thesis.samples, thesis.mean, thesis.std)} ({thesis.table})")
    return lines


def _line(who: str, clients: str, samples: int | None, mean: float | None, std: float | None) -> str:
    rows = (
        "rows not given"
        if samples is None or mean is None or std is None
        else (f"{samples} rows, per client {mean:.2f} (std {std:.2f})")
    )
    return f"{who}: {clients} clients, {rows}"
