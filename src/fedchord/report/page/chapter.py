"""One problem as a chapter of the page: its tables, charts and sentences, ready for the template."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedchord.check import FedchordError
from fedchord.metrics import HIGHER_IS_BETTER
from fedchord.report import compare, notes, rows, words
from fedchord.report.cells import factor
from fedchord.report.compare import LEVEL, RESAMPLES, Difference
from fedchord.report.page import again, charts, numbers, pictures
from fedchord.report.page.look import HEIGHT, Marks, inline, looked
from fedchord.report.page.numbers import Sheet, Swept
from fedchord.report.page.problems import Problem, Row

REFERENCE = "fedavg"
"""What rows are compared with unless it is said."""
NOT_SHOWN = (rows.SIDE_ISSUES - {"eval_every"}) | {"method", "made", "code"}
NEAR = 0.02
"""Shares that differ by less (a part of the largest) are drawn alike: their differences would be all one sees."""
PANELS = 12
"""So many small charts of one kind are drawn."""


@dataclass(frozen=True)
class Chart:
    """A drawing and what is said below it."""

    svg: str
    caption: str
    title: str = ""


@dataclass(frozen=True)
class Slider:
    """A metric along lambda: its chart, what the slider needs, and the same in a table."""

    chart: Chart
    data: dict[str, Any]
    sheet: Sheet


@dataclass(frozen=True)
class Again:
    """How to make a row again."""

    label: str
    place: int
    commands: tuple[str, ...]
    settings: str


@dataclass
class Chapter:
    """What the template shows of one problem."""

    id: str
    problem: Problem
    lead: list[str] = field(default_factory=list)
    shared: dict[str, str] = field(default_factory=dict)
    different: dict[str, str] = field(default_factory=dict)
    protocol: list[str] = field(default_factory=list)
    results: Sheet | None = None
    others: Sheet | None = None
    curves: list[Chart] = field(default_factory=list)
    small_curves: list[Chart] = field(default_factory=list)
    tradeoff: Chart | None = None
    forest: Chart | None = None
    differences: Sheet | None = None
    strips: Chart | None = None
    clients: Sheet | None = None
    slider: Slider | None = None
    mixing: list[Chart] = field(default_factory=list)
    shares: str = ""
    split: Chart | None = None
    samples: pictures.Samples | None = None
    sent: Chart | None = None
    costs: Sheet | None = None
    again: list[Again] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """What is missing, and why."""


class Writer:
    """Fills a chapter; what cannot be shown is told in it and does not stop the rest."""

    def __init__(self, name: str, problem: Problem, against: str | None, data: bool) -> None:
        self.problem, self.against, self.data = problem, against, data
        self.chapter = Chapter(name, problem)
        self._drawn = 0

    def written(self) -> Chapter:
        """The chapter."""
        made, problem = self.chapter, self.problem
        with looked():
            made.shared, made.different, made.protocol = shared(problem), different(problem), protocol(problem)
            made.results = numbers.results(problem)
            made.others = numbers.others(problem)
            made.lead = [lead(problem, made.results)] if len(problem.rows) > 1 else []
            self._rounds()
            self._tradeoff()
            self._differences()
            self._clients()
            self._lambda()
            self._mixing()
            self._data()
            made.costs = numbers.costs(problem)
            made.again = [remade(row) for row in problem.rows]
        return made

    def _chart(self, figure: Any, about: str, caption: str, title: str = "", marks: Marks | None = None) -> Chart:
        self._drawn += 1
        return Chart(inline(figure, f"{self.chapter.id}-c{self._drawn}", about, marks), caption, title)

    def _tell(self, line: str) -> None:
        if line not in self.chapter.told:
            self.chapter.told.append(line)

    # -- over rounds -----------------------------------------------------------------------------------------------

    def _rounds(self) -> None:
        problem, made = self.problem, self.chapter
        seeds = max(len(row.group.runs) for row in problem.rows)
        for column, title in (("mean", "mean over clients"), ("worst10", "worst tenth of clients")):
            lines = charts.histories(problem, column, self._tell)
            about = f"{problem.metric}, {title}, over rounds"
            if lines and len(lines) <= charts.LINES:
                figure = charts.curves(lines, problem.metric, "round")
                made.curves.append(self._chart(figure, about, words.band(seeds), f"{problem.metric}, {title}"))
            elif column == "mean":
                for row, *_ in lines[: 2 * PANELS]:
                    figure = charts.curves(lines, problem.metric, "round", row)
                    made.small_curves.append(self._chart(figure, f"{about}: {row.label}", "", row.label))
            if not lines:
                self._tell("no row was measured in more than one round; for curves run with eval_every=1 (or 5, 10)")
        lines = charts.sent(problem, self._tell)
        if 1 < len(lines) <= charts.LINES:
            figure = charts.curves(lines, problem.metric, "megabytes, up and down")
            title = f"{problem.metric} for what was sent"
            made.sent = self._chart(figure, f"{title}", "The mean over clients, by the bytes until then.", title)

    # -- methods ---------------------------------------------------------------------------------------------------

    def _tradeoff(self) -> None:
        figure = charts.tradeoff(self.problem)
        if figure is not None:
            seeds = " Small dots are seeds." if self.problem.several_seeds else ""
            caption = f"On the dotted line all clients would fare alike.{seeds}"
            title = f"{self.problem.metric}: mean against worst tenth"
            self.chapter.tradeoff = self._chart(figure, title, caption, title)

    def _differences(self) -> None:
        problem, made = self.problem, self.chapter
        base = reference(problem, self.against)
        if base is None or len(problem.rows) < 2:
            if len(problem.rows) > 1:
                self._tell("no row is the reference for differences; name one with --against")
            return
        found: list[tuple[Difference, Row]] = []
        for row in problem.rows:
            if row is base:
                continue
            try:
                found.append((compare.difference(row.group, row.label, base.group, base.label, problem.metric), row))
            except FedchordError as error:
                self._tell(f"{row.label}: {error}")
        if not found:
            return
        table = compare.tabulate([d for d, _ in found], problem.metric, "deployed")
        made.differences = numbers.of_table(table, f"differences to {base.label}")
        title = f"Differences to {base.label}"
        told = f"Paired by client and seed; bars: {100 * LEVEL:g} % bootstrap over clients, {RESAMPLES:,} resamples."
        made.forest = self._chart(charts.forest(found, problem.metric), title, told, title)
        made.lead.append(decided(found, base.label, problem.metric in HIGHER_IS_BETTER))

    def _clients(self) -> None:
        problem = self.problem
        drawn = charts.strips(problem)
        if drawn is None:
            self._tell("these runs did not write down their clients one by one")
            return
        each = "client and seed" if problem.several_seeds else "client"
        caption = f"A dot per {each}; the bar is their mean."
        title = f"{problem.metric} of every client"
        self.chapter.strips = self._chart(drawn[0], title, caption, title, drawn[1])
        self.chapter.clients = numbers.clients(problem)

    # -- lambda and mixing -----------------------------------------------------------------------------------------

    def _lambda(self) -> None:
        found = numbers.swept(self.problem)
        if not found:
            return
        grid = found[0].lambdas
        found = [one for one in found if one.lambdas == grid]
        start = grid[len(grid) // 2]
        figure, axes = charts.along(found, start)
        title = f"{found[0].metric} along lambda, mean over clients"
        told = words.band(max(len(one.mean) for one in found))
        chart = self._chart(figure, title, told, title)
        (x0, y0), (x1, y1) = (axes.transData.transform((end, end)) for end in (0, 1))
        ends = {"x": [x0, x1], "y": [HEIGHT - y0, HEIGHT - y1]}
        self.chapter.slider = Slider(chart, slider(found, len(grid) // 2) | ends, numbers.lambdas(found))

    def _mixing(self) -> None:
        found = pictures.shares(self.problem, self._tell)
        if not found:
            return
        low, high = pictures.ends([table for _, table in found])
        self.chapter.shares = words.shares(low, high)
        low = low if low < (1 - NEAR) * high else 0.0
        if len(found) > PANELS:
            self._tell(f"shares of the first {PANELS} of {len(found)} different mixes are drawn")
        for alike, table in found[:PANELS]:
            names = ", ".join(row.label for row in alike)
            seed = f" (seed {alike[0].group.runs[0].seed})" if self.problem.several_seeds else ""
            drawn = pictures.mixing(table, low, high)
            self.chapter.mixing.append(self._chart(drawn, f"shares over rounds: {names}", "", f"{names}{seed}"))

    # -- what needs the data ---------------------------------------------------------------------------------------

    def _data(self) -> None:
        run = self.problem.rows[0].group.runs[0]
        federation = pictures.federation(run, self._tell) if self.data else None
        figure = pictures.split(run, federation, self._tell)
        if figure is not None:
            seed = f"Seed {run.seed}. " if self.problem.several_seeds else ""
            what = "Training, validation and test rows together."
            self.chapter.split = self._chart(figure, "who holds which rows", f"{seed}{what}", "Who holds what")
        self.chapter.samples = pictures.samples(self.problem, federation, self._tell)


# -- sentences and facts -------------------------------------------------------------------------------------------


def shared(problem: Problem) -> dict[str, str]:
    """The settings that all rows have in common."""
    differ = NOT_SHOWN.union(rows.differing(problem.groups))
    first = problem.rows[0].group
    return {key: value for key in first.config if key not in differ and (value := rows.value(first, key))}


def different(problem: Problem) -> dict[str, str]:
    """What is particular to each row, where there is such."""
    keys = rows.differing(problem.groups)
    told = {
        row.label: ", ".join(f"{key} {rows.value(row.group, key)}" for key in keys if key in row.group.config)
        for row in problem.rows
    }
    return {label: line for label, line in told.items() if line}


def protocol(problem: Problem) -> list[str]:
    """What was measured, on whom, and what is known about the data of the first run."""
    lines = notes.protocol(problem.groups, [(row.label,) for row in problem.rows])
    return lines + [words.sentence(note) for note in problem.runs[0].notes("data")]


def lead(problem: Problem, results: Sheet) -> str:
    """Who is best on average and for the worst clients."""
    heads = [name for name, _ in results.heads]
    named = []
    for at in (2, heads.index(numbers.COLUMNS["worst10"])):
        best = [row for row in results.rows if row[at].best] or list(results.rows[:1])
        unit = " %" if heads[2].endswith("%") else ""
        named.append(([row[0].text for row in best], f"{best[0][at].text}{unit}"))
    return words.leaders(problem.metric, named[0], named[1], problem.metric in HIGHER_IS_BETTER)


def reference(problem: Problem, against: str | None) -> Row | None:
    """The row that others are compared with: the named one, or FedAvg where there is just one."""
    wanted = (against or REFERENCE).lower()
    exact = [row for row in problem.rows if row.label.lower() == wanted]
    found = exact or [row for row in problem.rows if str(row.group.config.get("method", "")).lower() == wanted]
    return found[0] if len(found) == 1 else None


def decided(found: Sequence[tuple[Difference, Row]], against: str, higher: bool) -> str:
    """Which differences are larger than their intervals, in words."""
    names: dict[int, list[str]] = {1: [], -1: [], 0: []}
    for d, row in found:
        sign = 0 if math.isnan(d.low) or d.low <= 0 <= d.high else 1 if d.low > 0 else -1
        names[sign if higher else -sign].append(row.label)
    return words.decided(against, names[1], names[-1], names[0])


def slider(found: Sequence[Swept], start: int) -> dict[str, Any]:
    """The numbers behind the slider."""

    def plain(values: Any) -> list[float | None]:
        return [None if math.isnan(v) else round(float(v), 6) for v in values]

    series = [
        {"label": one.row.label, "mean": plain(one.mean.mean(0)), "worst": plain(one.worst.mean(0))} for one in found
    ]
    percent = factor(found[0].metric, "mean") == 100
    return {"lambdas": list(found[0].lambdas), "start": start, "percent": percent, "series": series}


def remade(row: Row) -> Again:
    """The commands of all seeds, and the settings of the first."""
    commands = tuple(again.command(run) for run in row.group.runs)
    return Again(row.label, row.place, commands, again.settings(row.group.runs[0]))
