"""A page for every study: what it asks, its commands, every cell beside the thesis' number, the runs that are kept, and
the notes of docs/studies where there are some."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

from fedchord.thesis import claims, studies
from fedchord.thesis.cells import FULL, MARKED, NONE, WHOLE, Cell, State
from fedchord.thesis.results import Result
from fedchord.thesis.status import Status

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "docs" / "studies"
DIGITS = {"loss": 4, "ece": 4, "mce": 4, "kid": 3}


@cache
def status() -> Status:
    """What is kept, read once."""
    return Status(ROOT / "results")


def names() -> list[str]:
    """Every study but the one that only tries whether studies run."""
    return [name for name in studies.built_in() if name != "smoke"]


def tables(name: str) -> list[str]:
    """The thesis' tables that a study is of."""
    return [table for table in studies.TABLES if studies.ALIASES.get(table, table) == name]


def number(cell: Cell, value: float) -> str:
    """A number as its table has it."""
    return f"{value:.{DIGITS.get(cell.metric, 2)}f}"


def pages() -> dict[str, str]:
    """Every page, by its place in the site."""
    return {f"studies/{name}.md": page(name) for name in names()}


def page(name: str) -> str:
    """The page of one study."""
    study = studies.load(name)
    notes = NOTES / f"{name}.md"
    lines = [f"# {name}", "", f"**{study.title}.**", "", *_about(study.about), "```sh"]
    lines += [
        f"fedchord study run {name} --dry-run   # what it would run",
        f"fedchord study run {name}",
    ]
    lines += [f"fedchord study table {name}", "```", ""]
    for table in tables(name):
        lines += _claims(table) + _cells(table)
    lines += _kept(name)
    if notes.exists():
        text = notes.read_text(encoding="utf-8").split("\n", 1)[1]
        lines += ["## Notes", "", re.sub(r"^(#+) ", r"#\1 ", text.strip(), flags=re.MULTILINE)]
    return "\n".join(lines) + "\n"


def _about(text: str) -> list[str]:
    """The words of a study file; what looks like Markdown in them is not meant so, apart from code."""
    parts = text.strip().split("`")
    plain = [f"`{part}`" if index % 2 else re.sub(r"([*_<])", r"\\\1", part) for index, part in enumerate(parts)]
    return ["".join(plain), ""]


def _claims(table: str) -> list[str]:
    found = [
        (claim, claims.answer(claim, claims.measured(status().states)))
        for claim in claims.claims()
        if claim.table == table
    ]
    lines = [f"- {claim.text}: **{answer.word}** ({answer})." for claim, answer in found]
    return ["## Claims", "", *lines, "", "[All claims](../results.md)", ""] if lines else []


def _cells(table: str) -> list[str]:
    """A table for every column: methods by settings, ours above the thesis' number."""
    states = status().of(table)
    lines = [f"## Table {table}", "", LEGEND, ""]
    for column in dict.fromkeys(cell.column for cell in states):
        some = {(cell.row, cell.setting): (cell, one) for cell, one in states.items() if cell.column == column}
        rows, settings = (list(dict.fromkeys(key[place] for key in some)) for place in (0, 1))
        lines += [f"**{column}**", "", f"| method | {' | '.join(settings)} |", "|---|" + "---|" * len(settings)]
        for row in rows:
            shown = [_shown(*some[row, setting]) if (row, setting) in some else "" for setting in settings]
            lines.append(f"| {row} | {' | '.join(shown)} |")
        lines.append("")
    return lines


LEGEND = """Ours, and below it the thesis' number. **Bold**: the thesis' settings and seeds on data with the official
number of rows; plain: less than that (the kept runs say what); a dash: nothing is kept; †: altered or derived data;
‡: a subset, or other rows."""


def _shown(cell: Cell, one: State) -> str:
    ours = "–"
    if one.state != NONE and one.value is not None:
        mark = "†" if one.verdict in MARKED else "" if one.verdict in WHOLE else "‡"
        ours = number(cell, one.value)
        ours = f"**{ours}**{mark}" if one.state == FULL else f"{ours}{mark}"
    return f"{ours}<br><small>{number(cell, cell.printed)}</small>"


def _kept(name: str) -> list[str]:
    found = [result for result in status().results if result.study == name]
    if (lines := ROOT / "results" / f"{name}.csv").exists():
        return _lines(lines)
    if not found:
        return ["## Kept runs", "", "None is kept in `results/`.", ""]
    head = "| method | setting | seed | rounds x epochs | data | seconds | from |"
    lines = [
        "## Kept runs",
        "",
        f'<details markdown="1"><summary>{len(found)} runs in results/{name}</summary>',
        "",
        head,
    ]
    lines += ["|---|---|---|---|---|---|---|", *map(_run, found), "", "</details>", ""]
    return lines


def _run(result: Result) -> str:
    config, seconds = result.config, result.content["seconds"]
    length = f"{config.rounds} x {config.epochs}"
    time = "" if seconds is None else f"{seconds:.0f}"
    origin = f"[notes](../../{result.copied})" if result.copied else f"fedchord {result.version}"
    return f"| {result.row} | {result.setting} | {result.seed} | {length} | {result.verdict} | {time} | {origin} |"


def _lines(path: Path) -> list[str]:
    """A study whose many seeds are kept as lines: means over the seeds of a hundred."""
    groups: dict[tuple[str, str, int], list[dict[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        table = csv.DictReader(file)
        names = list(table.fieldnames or ())
        columns = names[names.index("run") + 1 : names.index("chosen lambda")]
        for line in table:
            groups.setdefault((line["setting"], line["row"], int(line["seed"]) // 100), []).append(line)
    shown = ["## Kept runs", "", f"Means over seeds in `results/{path.name}`, in percent.", ""]
    heads = ["setting", "method", "seeds", *("worst 10 %" if name == "worst10" else name for name in columns)]
    shown += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for (setting, row, _), some in groups.items():
        seeds = sorted(int(line["seed"]) for line in some)
        means = [f"{100 * sum(float(line[name]) for line in some) / len(some):.2f}" for name in columns]
        shown.append(f"| {setting} | {row} | {seeds[0]} to {seeds[-1]} ({len(seeds)}) | {' | '.join(means)} |")
    return [*shown, ""]
