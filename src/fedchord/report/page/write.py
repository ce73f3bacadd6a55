"""The whole page: chapters into the template, style and script within, one file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from fedchord.check import fail, require
from fedchord.experiments.reading import Run
from fedchord.files import blocked, write_text
from fedchord.report.page.chapter import Chapter, Writer, reference
from fedchord.report.page.numbers import Sheet
from fedchord.report.page.problems import Problem, usual_title

TEMPLATE = Path(__file__).parent / "template"
CHAPTERS = 12
"""So many problems are shown; a page of more could not be read."""


@dataclass(frozen=True)
class Report:
    """What a page is made of. `left_out` are lines about folders that could not be read."""

    problems: Sequence[Problem]
    command: str
    title: str = ""
    about: str = ""
    study: Sheet | None = None
    left_out: Sequence[str] = field(default=())
    against: str | None = None
    data: bool = True


def check_file(to: Path) -> None:
    """Refuse a file that cannot be a page, before anything is read."""
    require(to.suffix.lower() in (".html", ".htm"), "report", f"the file must end in .html, got {str(to)!r}")
    reason = f"{to} is a folder" if to.is_dir() else blocked(to)
    require(not reason, "report", f"{to} cannot be written ({reason})")


def write(report: Report, to: Path) -> list[str]:
    """Write the page, whole or not at all; returns what is missing in it."""
    check_file(to)
    text, chapters = page(report)
    write_text(to, text)
    return list(dict.fromkeys(line for chapter in chapters for line in chapter.told))


def page(report: Report) -> tuple[str, list[Chapter]]:
    """The page as text, and its chapters."""
    shown = list(report.problems)[:CHAPTERS]
    _check_reference(shown, report.against)
    chapters = [
        Writer(f"p{number}", problem, report.against, report.data).written() for number, problem in enumerate(shown, 1)
    ]
    around = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE),
        autoescape=True,  # every name on the page goes through it
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = ((TEMPLATE / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    more = len(report.problems) - len(shown)
    return around.get_template("page.html").render(
        report=report,
        chapters=chapters,
        title=report.title or _title(shown),
        facts=_facts(report.problems),
        left_out=[*report.left_out, *([f"{more} more problems; name fewer runs at a time"] if more else [])],
        style=style,
        script=script,
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    ), chapters


def _check_reference(problems: Sequence[Problem], against: str | None) -> None:
    """A reference that is asked for must be there somewhere."""
    if against is None or any(reference(problem, against) is not None for problem in problems):
        return
    known = ", ".join(dict.fromkeys(row.label for problem in problems for row in problem.rows))
    raise fail("report", f"there is no one row {against!r} to compare with (rows: {known})")


def _title(problems: Sequence[Problem]) -> str:
    names = list(dict.fromkeys(usual_title(problem.rows[0].group) for problem in problems))
    return names[0] if len(names) == 1 else f"{len(problems)} problems"


def _facts(problems: Sequence[Problem]) -> dict[str, Any]:
    """The numbers at the head of the page, and where the runs come from."""
    runs: list[Run] = [run for problem in problems for run in problem.runs]
    labels = dict.fromkeys(row.label for problem in problems for row in problem.rows)
    versions = [run.summary.get("versions") or {} for run in runs]
    told = dict.fromkeys(", ".join(f"{name} {text}" for name, text in one.items()) for one in versions if one)
    ends = sorted(str(run.summary["finished"])[:10] for run in runs if run.summary.get("finished"))
    return {
        "tiles": {
            "runs": str(len(runs)),
            "methods": str(len(labels)),
            **({"problems": str(len(problems))} if len(problems) > 1 else {}),
            "seeds": _range([len(row.group.runs) for problem in problems for row in problem.rows]),
            "clients": _range([run.protocol.get("clients") for run in runs]),
            "rounds": _range([run.summary.get("rounds") for run in runs]),
        },
        "versions": list(told),
        "finished": " to ".join(dict.fromkeys(ends[:1] + ends[-1:])),
    }


def _range(values: Sequence[Any]) -> str:
    known = sorted({int(value) for value in values if value is not None})
    return "-" if not known else f"{known[0]:,}" if len(known) == 1 else f"{known[0]:,} to {known[-1]:,}"
