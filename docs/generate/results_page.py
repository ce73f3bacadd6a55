"""Writes the claims of docs/results.md anew from what is kept in results/; everything else on the page stays.

    python docs/generate/results_page.py           # make results
    python docs/generate/results_page.py --check   # fails where the page is not what it would write

check_results.py looks every number up again, by another way.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from study_pages import ROOT, number, status

from fedchord.thesis import claims, studies
from fedchord.thesis.cells import FULL, MARKED, STATES, WHOLE, Cell
from fedchord.thesis.claims import FAILS, HOLDS, OPEN, Claim, Compared

PAGE = ROOT / "docs" / "results.md"
BEGIN, END = "<!-- claims: written by docs/generate/results_page.py -->", "<!-- end of claims -->"


def text() -> str:
    """The part of the page that is written here."""
    counts = Counter(one.state for one in status().states.values())
    told = ", ".join(f"{counts[word]} {word}" for word in STATES)
    lines = [BEGIN, "", f"Of the thesis' {sum(counts.values())} printed results: {told}.", ""]
    lines += ['<div class="wide" markdown>', ""]
    lines += ["| the thesis claims | so far | comparisons | what was found | table |", "|---|---|---|---|---|"]
    lines += [_row(claim) for claim in claims.claims()]
    return "\n".join([*lines, "", "</div>", "", END])


def _row(claim: Claim) -> str:
    found = claims.compared(claim, claims.measured(status().states))
    answer = claims.answer(claim, claims.measured(status().states))
    full = claims.answer(claim, claims.measured(status().states, full=True))
    study = studies.ALIASES.get(claim.table, claim.table)
    notes = f"studies/{study}.md"  # on the site both are the page of the study
    link = notes if (PAGE.parent / notes).exists() else f"../src/fedchord/thesis/studies/{study}.toml"
    word = f"**{answer.word}**" + (", in shorter runs" if answer.word == FAILS and not full.fails else "")
    return f"| {claim.text} | {word} | {answer} | {_found(claim, found)} | [{claim.table}]({link}) |"


def _found(claim: Claim, found: list[Compared]) -> str:
    """The comparison that speaks loudest: the largest shortfall, else the smallest lead."""
    known = [one for one in found if one.word != OPEN]
    if not known:
        states = status().of(claim.table).values()
        counts = Counter(one.state for one in states)
        return f"of {len(states)} cells {counts[FULL]} full, {counts['reduced']} reduced"
    worst = min(known, key=lambda one: one.lead)
    assert worst.best is not None and worst.rival is not None
    (mine, ours), (other, theirs) = worst.best, worst.rival
    join = "at least" if worst.word == HOLDS else "below" if worst.best[1] < worst.rival[1] else "above"
    first, second = (cell.setting if claim.first else _row_of(cell) for cell in (mine, other))
    place = f"{mine.row}, {mine.column}" if claim.first else f"{mine.setting}, {mine.column}"
    return f"{place}: {first} {number(mine, ours)}, {join} {second} {number(other, theirs)}{_data(mine, other)}"


def _data(*cells: Cell) -> str:
    """What the data of some cells are, where they are not the official ones."""
    words = {status().states[cell].verdict for cell in cells}
    return "".join(f", {word} data" for word in sorted(words) if word in MARKED or word not in WHOLE)


def _row_of(cell: Cell) -> str:
    """The row of a cell; in brackets that of the kept run, where a run of another study is the same."""
    kept = status().states[cell].results[0].row
    return cell.row if kept == cell.row else f"{cell.row} ({kept})"


def anew(page: str) -> str:
    """The page with its claims written anew."""
    before, rest = page.split(BEGIN)
    return before + text() + rest.split(END, 1)[1]


def main() -> int:
    """Write, or check."""
    old = PAGE.read_text(encoding="utf-8")
    new = anew(old)
    if "--check" in sys.argv[1:]:
        sys.stdout.write(
            "" if old == new else "docs/results.md is not what results/ says now; write it by make results\n"
        )
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
