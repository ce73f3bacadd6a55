"""What commands print: results of a run, data sets and where they are, the notes of a split."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedchord.check import require
from fedchord.data import SOURCES, Federation, data_root, split_picture, status
from fedchord.data.official.facts import FACTS
from fedchord.data.samples import samples_picture, sizes_picture
from fedchord.files import made_folder
from fedchord.report import sample_words, words

COLUMNS = {
    "mean": "mean",
    "std": "std",
    "worst10": "worst 10 %",
    "best10": "best 10 %",
    "gap": "gap",
    "gini": "Gini",
    "pooled": "pooled",
}
WIDTH = 120
"""The width of output that does not go to a terminal."""
PICTURES = (".png", ".pdf", ".svg")


def console() -> Console:
    """Standard output; colours and bold only in a terminal."""
    return Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], bold: Sequence[tuple[int, int]] = ()) -> Table:
    """A table whose first column is words and whose others are numbers; `bold` are (row, column)."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, head in enumerate(heads):
        drawn.add_column(head, justify="right" if number else "left", no_wrap=True)
    for i, row in enumerate(rows):
        drawn.add_row(*(Text(cell, "bold" if (i, j) in bold else "") for j, cell in enumerate(row)))
    return drawn


def show_results(summary: dict[str, Any], out: str | None) -> None:
    """The results of a run, what a reader should know about them, and where they are."""
    rows = [
        [name, *("-" if values[c] is None else f"{values[c]:.4f}" for c in COLUMNS)]
        for name, values in summary["metrics"].items()
    ]
    printed = console()
    printed.print(table(["metric", *COLUMNS.values()], rows))
    for line in result_notes(summary, out):
        printed.print(line, soft_wrap=not printed.is_terminal)  # between words, not where the terminal ends


def result_notes(summary: dict[str, Any], out: str | None) -> list[str]:
    """The lines under the table of a run."""
    protocol, seconds, sent = summary["protocol"], summary["seconds"], summary["bytes"]
    counted = [f"{protocol['never_sampled']} were never sampled", words.left_out(protocol)]
    counted = [part for part in (*counted, words.without_own_model(protocol)) if part]
    who = f"{protocol['evaluated']} of {protocol['clients']} clients{', drawn once,' if 'among' in protocol else ''}"
    lines = [
        f"{protocol['method']}; round {protocol['round']}; {who} "
        f"on their own {protocol['split']} rows, each with {protocol['deploys']['words']}; {', '.join(counted)}.",
        *words.sentences(protocol, str(summary["config"].get("method"))),
    ]
    for name, values in summary["metrics"].items():
        if values["undefined"]:
            lines.append(f"{name} is undefined for {values['undefined']} clients, which are left out.")
    lines += validation_notes(summary.get("validation"))
    lines += sweep_notes(summary.get("sweep"), summary["config"].get("validation", 0))
    lines += newcomer_notes(summary.get("newcomers"))
    lines += sample_words.notes(summary["synthetic"]) if summary.get("synthetic") else []
    up, down = (sent[way] / 1e6 for way in ("up_per_round", "down_per_round"))
    lines.append(f"{seconds['total']:.1f} s; {up:.3g} MB up and {down:.3g} MB down a round.")
    sets = ", synthetic.npz, snapshots/" if summary.get("synthetic") else ""
    sets += ", tensorboard/" if "tensorboard" in (summary["config"].get("log") or ()) else ""
    written = f"{out}: config.toml, rounds.jsonl, summary.json, checkpoints/{sets}" if out else ""
    return [*lines, f"Kept in {written}." if out else "Nothing was kept; add out=FOLDER to keep the run."]


def validation_notes(found: dict[str, Any] | None) -> list[str]:
    """What was measured on validation rows, in one line."""
    if not found:
        return []
    told = ", ".join(f"{name} {_number(values['mean'])}" for name, values in found["metrics"].items())
    return [f"On validation rows of {found['evaluated']} of {found['clients']} clients, mean over clients: {told}."]


def sweep_notes(found: dict[str, Any] | None, validation: float) -> list[str]:
    """What the lambda sweep found, in one line."""
    if not found:
        return []
    best, chosen = found["best_mean"], found["validated"]
    honest = "none" if validation else "none; add validation=0.1"
    if chosen:
        honest = _number(chosen["mean"])
    return [
        f"{found['metric']} along lambda, mean over clients: {_number(best['mean'])} at {best['lambda']:g}, the best "
        f"on the test rows; {_number(found['optimistic']['mean'])} at each client's own best on them (optimistic); "
        f"with lambda chosen on validation rows (honest): {honest}."
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def newcomer_notes(found: dict[str, Any] | None) -> list[str]:
    """What newcomers measured, in one line."""
    if not found:
        return []
    told = []
    for name, before in found["global"].items():
        pair = (before["mean"], found["tuned"][name]["mean"])
        first, second = map(_number, pair)
        told.append(f"{name} {first} -> {second}")
    epochs = f"{found['epochs']} local epoch{'' if found['epochs'] == 1 else 's'}"
    return [
        f"{found['clients']} newcomers got {found['model']}; means as received -> after {epochs}: {', '.join(told)}."
    ]


def show_data(root: Path | None = None) -> None:
    """Which data sets are present, and where to get the others."""
    printed, root = console(), data_root() if root is None else root
    printed.print(
        f"data root: {root}{'' if root.is_dir() else ' (does not exist)'}; FEDCHORD_DATA or data.root changes it"
    )
    for source in SOURCES.values():
        printed.print(f"\n{source.name}: {'comes with fedchord' if source.embedded else status(source, root)}")
        printed.print(f"  {source.title}; {source.classes} classes, licence {source.licence}")
        if not source.embedded and source.missing(root):
            printed.print(f"  get it from {source.home}")
            printed.print(f"  and put the files into {root / source.folder}")
            printed.print(f"  fedchord data get {source.name} {_gets(source.name)}")


def _gets(name: str) -> str:
    facts = FACTS.get(name)
    return "downloads it" if facts is not None and facts.downloads else "says more"


def check_pictures(*files: Path | None) -> list[Path]:
    """The files that are given, all of a known format."""
    given = [file for file in files if file is not None]
    for file in given:
        suffixes = " or ".join(PICTURES)
        require(file.suffix in PICTURES, "data", f"the picture must end in {suffixes}, got {str(file)!r}")
    return given


def show_split(federation: Federation, picture: Path | None, samples: Path | None = None) -> None:
    """What is known about a split, its picture, and one of examples."""
    files = check_pictures(picture, samples)
    for file in files:
        made_folder(file.parent)
    if picture is not None:
        classed = federation.columns["y"].ndim == 1 and not federation.regression
        (split_picture if classed else sizes_picture)(federation, picture)
    if samples is not None:
        samples_picture(federation, samples)
    printed = console()
    for note in federation.notes:
        printed.print(note)
    for file in files:
        printed.print(f"wrote {file}")
