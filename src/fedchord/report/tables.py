"""Tables of finished runs: runs that differ only in their seed make one row, mean (spread), best in bold.

A run folder is finished when it holds `summary.json`. Everything printed comes from that file; nothing is computed anew
except the mean and the standard deviation over seeds (with n - 1). The notes under a table say how to read it and
repeat the protocol of the runs.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from fedchord.check import FedchordError, one_of, unknown
from fedchord.core.rules import ClientRule
from fedchord.experiments.columns import COLUMNS, SAMPLES, SPREAD_OF, SPREADS
from fedchord.experiments.config import INDIFFERENT
from fedchord.experiments.parts import headline
from fedchord.experiments.reading import Run, read
from fedchord.experiments.summary import FEW_ROWS
from fedchord.metrics import HIGHER_IS_BETTER, over_seeds

FORMATS = ("rich", "markdown", "latex", "csv")
SCALES = ("percent", "raw")
SHARES = frozenset({"top1", "top5", "auroc"})
"""Metrics between 0 and 1 that are printed in percent, as papers do."""
NO_CONTEST = frozenset(SAMPLES) - {"official", "frechet", "kid"}
"""Those with no best: bounds, numbers of real samples, and `membership`."""
COUNTS = frozenset({"clients", "undefined"})
LOWER_IS_BETTER = frozenset({"std", "gini", "gap"})
SIDE_ISSUES = INDIFFERENT | {"seed"}
"""Run keys that do not tell two rows apart: the seed, and where and how the same computation was done."""
PROBLEM = ("data", "split", "clients", "newcomers", "noise", "test", "validation")
"""Run keys (with their parameters, such as split.alpha) that decide the problem; only equals are compared for bold."""
DASH, DAGGER = "-", "†"
AS_SET, ALL, UNTOLD = "as set", "all", "not counted"
"""Facts that need no line where no run has another one."""


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    runs: tuple[Run, ...]

    @property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config


def find(places: Iterable[str | Path]) -> list[Path]:
    """Run folders: patterns that the shell left alone are expanded, and a folder of run folders stands for them all."""
    found: dict[Path, None] = {}
    for place in places:
        path = Path(place)
        matches = [path] if path.exists() else sorted(Path(p) for p in glob.glob(str(path.expanduser())))
        if not matches:
            raise FedchordError(f"{place}: no such run folder")
        for match in (m for m in matches if m.is_dir()):
            inside = [match] if _is_run(match) else sorted(sub for sub in match.iterdir() if _is_run(sub))
            found.update(dict.fromkeys(inside or [match]))
    return list(found)


def read_all(places: Iterable[str | Path]) -> tuple[list[Run], list[str]]:
    """Every finished run, and one line about each folder that is not one; no finished run at all is an error."""
    runs, problems = [], []
    for folder in find(places):
        try:
            runs.append(read(folder))
        except FedchordError as error:
            problems.append(str(error))
    if not runs:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise FedchordError(f"no finished run here ({problems[0]}{more})" if problems else "no run folder here")
    return runs, problems


def group(runs: Iterable[Run]) -> list[Group]:
    """Runs that differ only in their seed, together; of two runs with the same seed the newer one counts."""
    groups: dict[str, dict[Any, Run]] = {}
    for run in runs:
        seeds = groups.setdefault(_identity(run.config), {})
        if run.seed not in seeds or _written(run) > _written(seeds[run.seed]):
            seeds[run.seed] = run
    return [Group(tuple(sorted(seeds.values(), key=lambda run: str(run.seed).zfill(20)))) for seeds in groups.values()]


def differing(groups: Sequence[Group]) -> list[str]:
    """The run keys, besides the method, in which groups differ."""
    keys = dict.fromkeys(key for g in groups for key in g.config if key not in SIDE_ISSUES and key != "method")
    return [key for key in keys if any(g.config.get(key) != groups[0].config.get(key) for g in groups)]


def labels(groups: Sequence[Group]) -> list[str]:
    """A short name for each group: its method and what tells it apart."""
    keys = differing(groups)
    names = []
    for g in groups:
        parts = [f"{key.removeprefix('method.')}={word(g.config[key])}" for key in keys if key in g.config]
        names.append(", ".join([str(g.config.get("method", "?")), *parts]))
    return names


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its spread, over seeds or over clients ("" where there is none)."""

    mean: float
    spread: float
    over: str
    seeds: int


def estimate(runs: Sequence[Run], metric: str, column: str, over: str = "seeds") -> Estimate | None:
    """The mean over seeds, its spread over seeds (n - 1) or, of one seed, over clients; None if not measured."""
    values = [value for run in runs if (value := run.value(metric, column)) is not None]
    if not values or len(values) < len(runs):
        return None
    mean, std = over_seeds(values)
    if over == "seeds" and len(values) > 1:
        return Estimate(mean, std, "seeds", len(values))
    inside = [run.value(metric, SPREAD_OF[column]) for run in runs] if column in SPREAD_OF else [None]
    if None in inside:
        return Estimate(mean, math.nan, "", len(values))
    return Estimate(mean, sum(x for x in inside if x is not None) / len(inside), "clients", len(values))


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table: words, or a number (scaled, not rounded) with its spread."""

    text: str = ""
    number: float | None = None
    spread: float | None = None
    digits: int = 2
    best: bool = False
    mark: str = ""

    def __str__(self) -> str:
        if self.number is None:
            return self.text
        if math.isnan(self.number):
            return f"nan{self.mark}"
        spread = "" if self.spread is None else f" ({self.spread:.{self.digits}f})"
        return f"{self.number:.{self.digits}f}{spread}{self.mark}"

    @property
    def rounded(self) -> float:
        return math.nan if self.number is None else round(self.number, self.digits)


@dataclass(frozen=True)
class Head:
    """The head of a column. `aside` names the source of numbers that stand beside those of the column before."""

    name: str
    numbers: bool = False
    aside: str = ""


@dataclass(frozen=True)
class Table:
    """Heads, rows of cells and notes, before any format."""

    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    title: str = ""


def factor(metric: str, column: str, scale: str = "percent") -> int:
    """What a number is multiplied by before printing: 100 for accuracies and for Gini coefficients."""
    if scale == "raw" or column in COUNTS:
        return 1
    return 100 if metric in SHARES or metric in SAMPLES[:8] or column == "gini" else 1


def head_of(metric: str, column: str, scale: str = "percent") -> str:
    unit = "" if factor(metric, column, scale) == 1 else " x100" if column == "gini" else " %"
    return f"{metric} {column}{unit}"


def cell_of(found: Estimate | None, metric: str, column: str, scale: str = "percent") -> Cell:
    """An estimate as it is printed."""
    if found is None:
        return Cell(DASH)
    times = factor(metric, column, scale)
    digits = 0 if column in COUNTS and found.seeds == 1 else 2 if times == 100 else 4
    return Cell("", found.mean * times, found.spread * times if found.over else None, digits)


def mark_best(cells: Sequence[Cell], metric: str, column: str) -> list[Cell]:
    """The best of several cells in bold, and all that print the same number; nothing where there is no contest."""
    numbers = [cell.rounded for cell in cells if not math.isnan(cell.rounded)]
    if len(numbers) < 2 or column in COUNTS or metric in NO_CONTEST:
        return list(cells)
    higher = metric in (*HIGHER_IS_BETTER, "official") and column not in LOWER_IS_BETTER
    top = max(numbers) if higher else min(numbers)
    return [replace(cell, best=cell.rounded == top) for cell in cells]


def tabulate(
    runs: Iterable[Run],
    metrics: Sequence[str] = (),
    columns: Sequence[str] = (),
    scale: str = "percent",
    spread: str = "seeds",
) -> Table:
    """One row per group of runs: method, the keys in which groups differ, the number of seeds, and the numbers."""
    groups = group(runs)
    metrics = _metrics(groups, metrics)
    columns = list(columns) or ["mean", "worst10", "gini"]
    for column in columns:
        if column not in COLUMNS:
            raise unknown("column", column, COLUMNS)
    one_of("table", "scale", scale, SCALES)
    one_of("table", "spread", spread, SPREADS)
    blocks: dict[str, list[Group]] = {}
    for g in groups:
        blocks.setdefault(_problem(g), []).append(g)
    groups = [g for block in blocks.values() for g in block]
    keys, wanted = differing(groups), [(metric, column) for metric in metrics for column in columns]
    body: list[list[Cell]] = [[] for _ in groups]
    for metric, column in wanted:
        found = [estimate(g.runs, metric, column, spread) for g in groups]
        marked = _with_daggers([cell_of(e, metric, column, scale) for e in found], found)
        start = 0
        for block in blocks.values():
            for row, cell in enumerate(mark_best(marked[start : start + len(block)], metric, column), start):
                body[row].append(cell)
            start += len(block)
    rows = tuple(
        (
            Cell(word(g.config.get("method"))),
            *(Cell(word(g.config.get(key))) for key in keys),
            Cell(str(len(g.runs))),
            *cells,
        )
        for g, cells in zip(groups, body, strict=True)
    )
    heads = [Head("method"), *(Head(key) for key in keys), Head("seeds", numbers=False)]
    heads += [Head(head_of(metric, column, scale), numbers=True) for metric, column in wanted]
    names = [(word(g.config.get("method")), label) for g, label in zip(groups, labels(groups), strict=True)]
    bold = "bold: the best of its column" + (", among rows of the same problem" if len(blocks) > 1 else "")
    notes = [
        *spread_notes([g.runs for g in groups], spread),
        *([bold] if _any_best(rows) else []),
        *(unvalidated(groups) if "validated" in columns else []),
        *protocol(groups, names),
    ]
    return Table(tuple(heads), rows, tuple(notes))


def spread_notes(cells: Iterable[Sequence[Run]], over: str = "seeds") -> list[str]:
    """How to read the brackets."""
    counts = {len(runs) for runs in cells if runs}
    if over == "clients":
        return ["in brackets the std over clients (ddof 0)" + (", mean over seeds" if counts != {1} else "")]
    if counts == {1}:
        return ["one seed: in brackets the std over clients (ddof 0)"]
    several = "mean over seeds, in brackets the std over seeds (ddof 1)"
    return [several, f"{DAGGER} one seed: in brackets the std over clients (ddof 0)"] if 1 in counts else [several]


def why_unvalidated(run: Run) -> str:
    """Why a run has a lambda sweep and no validated values; empty if it has them, or no sweep."""
    swept = run.summary.get("sweep")
    if not swept or swept.get("validated") is not None:
        return ""
    notes = run.summary.get("protocol", {}).get("notes") or ()
    told = [note.removeprefix("validated: ") for note in notes if note.startswith("validated: ")]
    return told[0] if told else "its clients have no validation rows; run it with validation=0.1"


def unvalidated(groups: Sequence[Group], names: Sequence[str] = ()) -> list[str]:
    """Why the column `validated` is empty, and where it rests on few rows: one line for groups with the same reason."""
    found: dict[str, dict[str, None]] = {}
    for g, name in zip(groups, names or labels(groups), strict=True):
        reason = next(filter(None, map(why_unvalidated, g.runs)), "")
        few = next(filter(None, map(_few_rows, g.runs)), "")
        for line in [f"no validated values: {reason}" if reason else "", few]:
            found.setdefault(line, {})[name] = None
    return [f"{', '.join(who)}: {line}" for line, who in found.items() if line]


def _few_rows(run: Run) -> str:
    """The note on few validation rows, if the run has one."""
    notes = run.summary.get("protocol", {}).get("notes") or ()
    return next((note for note in notes if note.startswith(FEW_ROWS)), "")


def protocol(groups: Sequence[Group], names: Sequence[tuple[str, ...]]) -> list[str]:
    """The written protocol of the runs: which model, which clients, which split, never sampled, seeds.

    Each group has several names (its method; its setting; both): where groups differ in a fact, they are named by the
    first kind of name that tells them apart.
    """
    told = [_facts(g) for g in groups]
    lines = []
    for fact in told[0] if told else ():
        by_value: dict[str, list[tuple[str, ...]]] = {}
        for facts, name in zip(told, names, strict=True):
            by_value.setdefault(facts[fact], []).append(name)
        kinds = range(len(names[0]))
        clear = [kind for kind in kinds if _clear([{name[kind] for name in who} for who in by_value.values()])]
        kind = clear[0] if clear else kinds[-1]
        parts = [f"{value} [{', '.join(dict.fromkeys(n[kind] for n in who))}]" for value, who in by_value.items()]
        if set(by_value) <= {AS_SET, ALL, UNTOLD}:
            continue
        lines.append(f"{fact}: {'; '.join(parts) if len(by_value) > 1 else next(iter(by_value))}")
    return lines


def _clear(sets: Sequence[set[str]]) -> bool:
    """Whether no name stands for two values."""
    return sum(len(names) for names in sets) == len(set().union(*sets))


def _facts(g: Group) -> dict[str, str]:
    told = [run.summary.get("protocol", {}) for run in g.runs]
    get = told[0].get
    method = str(g.config.get("method"))
    changed = [note.removeprefix(f"{method}: ") for note in get("notes") or () if note.startswith(method)]
    rest = f" ({get('without_rows')} have no rows there)" if get("without_rows") else ""
    return {
        "model": str(get("model", "not written")),
        "measured on": f"{get('split', '?')} rows of {get('evaluated', '?')} of {get('clients', '?')} clients{rest}",
        "after round": str(get("round", "?")),
        "clients never sampled": _range([p.get("never_sampled", 0) for p in told]),
        "clients that deploy the global model": _alike(told),
        "seeds": ", ".join(str(run.seed) for run in g.runs),
        "local training": "; ".join(changed) or AS_SET,
    }


def _range(counts: Sequence[int]) -> str:
    """A number, or the lowest and the highest."""
    return " to ".join(str(n) for n in sorted({min(counts), max(counts)}))


def _alike(told: Sequence[dict[str, Any]]) -> str:
    """How many clients have no model of their own; where one model is for all there is nothing to count."""
    if told[0].get("model") == ClientRule.deploys:
        return ALL
    counts = [p["global_model"] for p in told if "global_model" in p]
    return _range(counts) if len(counts) == len(told) else UNTOLD


def _with_daggers(cells: Sequence[Cell], found: Sequence[Estimate | None]) -> list[Cell]:
    """A mark at spreads over clients, where other rows have theirs over seeds."""
    if not any(e is not None and e.over == "seeds" for e in found):
        return list(cells)
    return [
        replace(cell, mark=DAGGER) if e is not None and e.over == "clients" else cell
        for cell, e in zip(cells, found, strict=True)
    ]


def _any_best(rows: Iterable[Sequence[Cell]]) -> bool:
    return any(cell.best for row in rows for cell in row)


def _metrics(groups: Sequence[Group], asked: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(name for g in groups for run in g.runs for name in run.summary["metrics"]))
    extra = [name for name in SAMPLES if any(run.value(name, "mean") is not None for g in groups for run in g.runs)]
    for name in asked:
        if name not in (*known, *extra):
            raise unknown("metric of these runs", name, (*known, *extra))
    return list(asked) or [name for name in (headline(known), *known) if name in known][:1]


def _identity(config: dict[str, Any]) -> str:
    """What runs of one group share; 1 and 1.0 are the same, except as a cohort (one client, all clients)."""
    keys = {key: value for key, value in config.items() if key not in SIDE_ISSUES}
    plain = {k: float(v) if type(v) is int and k != "cohort" else v for k, v in keys.items()}
    return json.dumps(plain, sort_keys=True, default=str)


def _problem(g: Group) -> str:
    return json.dumps(
        {k: v for k, v in g.config.items() if k.split(".")[0] in PROBLEM and k != "data.root"}, sort_keys=True
    )


def _is_run(folder: Path) -> bool:
    return (folder / "config.toml").exists() or (folder / "summary.json").exists()


def _written(run: Run) -> float:
    path = run.folder / "summary.json"
    return path.stat().st_mtime if path.exists() else 0.0


def word(value: Any) -> str:
    """A run key's value as it is printed."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(word(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def render(table: Table, form: str) -> str:
    """A table as text in markdown, latex or csv; csv holds no notes (print them elsewhere)."""
    one_of("table", "format", form, FORMATS[1:])
    return {"markdown": _markdown, "latex": _latex, "csv": _csv}[form](table)


def rich_table(table: Table, stacked: bool = False, plain: bool = False) -> RichTable:
    """A table for the terminal. Numbers that stand aside get their own column, or (`stacked`) the line below.

    Where bold cannot be seen (`plain`), the best are marked as in markdown.
    """
    drawn = RichTable(box=box.SIMPLE_HEAD, title=table.title or None, title_justify="left", pad_edge=False)
    for place, head in enumerate(table.heads):
        if not (stacked and head.aside):
            widest = max((len(str(row[place])) for row in table.rows), default=1)
            name = head.aside or textwrap.fill(head.name, max(widest, 6), break_long_words=False)
            drawn.add_column(name, justify="right" if head.numbers else "left", no_wrap=True)
    for row in table.rows:
        cells: list[Text] = []
        for head, cell in zip(table.heads, row, strict=True):
            shown = f"**{cell}**" if cell.best and plain else str(cell)
            text = Text(shown, "bold" if cell.best else "dim" if head.aside else "")
            if stacked and head.aside:
                cells[-1] = Text("\n").join([cells[-1], text])
                cells[0] = Text(f"{row[0]}\n") + Text(f"  {head.aside}", "dim")
            else:
                cells.append(text)
        drawn.add_row(*cells)
    return drawn


def _markdown(table: Table) -> str:
    def line(parts: Iterable[str]) -> str:
        return "| " + " | ".join(part.replace("|", "\\|").replace("\n", " ") for part in parts) + " |"

    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [line(head.name for head in table.heads), line("--:" if head.numbers else ":--" for head in table.heads)]
    lines += [line(f"**{cell}**" if cell.best else str(cell) for cell in row) for row in table.rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]).rstrip() + "\n"


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
}
_LATEX |= {DAGGER: "$^\\dagger$", "<": "$<$", ">": "$>$"}


def _latex(table: Table) -> str:
    def escape(text: str) -> str:
        return "".join(_LATEX.get(char, char) for char in text)

    def line(parts: Iterable[str]) -> str:
        return "  " + " & ".join(parts) + " \\\\"

    spec = "".join("r" if head.numbers else "l" for head in table.heads)
    lines = [f"% {table.title}"] if table.title else []
    lines += ["% needs \\usepackage{booktabs}", f"\\begin{{tabular}}{{{spec}}}", "  \\toprule"]
    lines += [line(escape(head.name) for head in table.heads), "  \\midrule"]
    for row in table.rows:
        lines.append(line(f"\\textbf{{{escape(str(cell))}}}" if cell.best else escape(str(cell)) for cell in row))
    return "\n".join([*lines, "  \\bottomrule", "\\end{tabular}", *(f"% {note}" for note in table.notes)]) + "\n"


def _csv(table: Table) -> str:
    """Numbers as they are, not rounded; a column of numbers is followed by its spread."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [name for head in table.heads for name in ([head.name, f"{head.name} std"] if head.numbers else [head.name])]
    )
    for row in table.rows:
        line: list[str] = []
        for head, cell in zip(table.heads, row, strict=True):
            if head.numbers:
                line += ["" if x is None else f"{x:.10g}" for x in (cell.number, cell.spread)]
            else:
                line.append(str(cell))
        writer.writerow(line)
    return out.getvalue()
