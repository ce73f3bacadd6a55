"""docs/results.md says what results/ holds, and docs/which-method.md what the pages say that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.documents import DOCUMENTS, ROOT
from helpers.site import script

check = script("check_results")
PAGE = DOCUMENTS["docs/results.md"]
RESULTS = ROOT / "results"


def test_every_number_of_the_claims_is_kept():
    assert check.wrong(PAGE, RESULTS) == []


def test_the_claims_are_what_is_kept_now():
    assert script("results_page").anew(PAGE) == PAGE, "write them anew: make results"


def numbered() -> tuple[str, str]:
    """A line of the claims with two numbers."""
    line = next(line for line in PAGE.splitlines() if re.search(r": [^|]* \d+\.\d+, below [^|]* \d+\.\d+ \|", line))
    return line, re.findall(r"\d+\.\d+(?=,| \|)", line)[0]


@pytest.mark.parametrize("how", ["last digit", "of another method", "in prose", "unknown method"])
def test_a_number_that_is_not_kept_is_found(how):
    line, number = numbered()
    wrong = {
        "last digit": line.replace(number, number[:-1] + str((int(number[-1]) + 1) % 10), 1),
        "of another method": re.sub(r"(\d+\.\d+)(, below .+? )(\d+\.\d+)", r"\3\2\1", line, count=1),
        "in prose": f"{line}\n\nIt reaches {number} there.",
        "unknown method": re.sub(r": (\S+) (\d)", r": FedNobody \2", line, count=1),
    }[how]
    assert wrong != line
    found = check.wrong(PAGE.replace(line, wrong), RESULTS)
    assert found and all("is not in results/" in one for one in found)


def test_a_result_that_is_gone_is_found(tmp_path):
    assert len(check.wrong(PAGE, tmp_path)) >= 10


def test_means_over_seeds_are_made_of_equal_runs(tmp_path):
    """By hand: 0.5 and 0.6 of two seeds, and another length that must not be mixed in."""
    for seed, rounds, value in ((1, 10, 0.5), (2, 10, 0.6), (1, 20, 0.9)):
        text = '{"row": "A", "setting": "B", "config": {"seed": %d, "rounds": %d}, "metrics": {"top1": {"mean": %s}}}'
        path = tmp_path / "s" / f"{seed}-{rounds}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text % (seed, rounds, value))
    known = check.kept(tmp_path)["A", "B"]
    assert check.is_kept("55.00", known) and check.is_kept("90.00", known)
    assert not check.is_kept("66.67", known) and not check.is_kept("70.00", known)


# -- which method --------------------------------------------------------------------------------------------------


def unsourced(text: str) -> list[str]:
    """Numbers of the decision table that are on no page that their line links to; one that follows a method's name must
    stand in a row of that method."""
    found = []
    for line in text.splitlines():
        pages = [DOCUMENTS[f"docs/{name}"] for name in re.findall(r"\]\(([\w/-]+\.md)", line)]
        if line.startswith("|") and pages:
            for name, number in re.findall(r"(?:\b([A-Z][\w-]+) )?(?<![\w.])(\d+\.\d+)", re.sub(r"`[^`]*`", "", line)):
                rows = [row for page in pages for row in page.splitlines() if row.lstrip("|* ").startswith(name)]
                if not any(re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", row) for row in rows):
                    found.append(f"{name} {number}: {line[:60]}")
    return found


def test_every_number_of_the_decision_table_stands_on_its_page():
    text = DOCUMENTS["docs/which-method.md"]
    assert len(re.findall(r"\d+\.\d+", text)) > 30 and unsourced(text) == []
    assert len(unsourced(text.replace("FedAvg-FT 99.20", "FedAvg-FT 98.61"))) == 1  # another method's
    assert len(unsourced(text.replace("77.25", "77.26"))) == 1


def test_the_methods_of_the_decision_table_exist():
    from fedchord.catalog import METHODS

    rows = [line.split(" | ") for line in DOCUMENTS["docs/which-method.md"].splitlines() if line.startswith("| ")]
    named = [name for row in rows[2:] for cell in row[1:3] for name in re.findall(r"`([\w-]+)[` ]", cell)]
    assert len(named) > 15 and set(named) <= set(METHODS)
    assert Path(ROOT / "docs" / "which-method.md").exists()
