"""Claims of the thesis, comparison by comparison."""

from __future__ import annotations

import pytest

from fedchord.thesis import cells, claims
from fedchord.thesis.claims import FAILS, HOLDS, OPEN

CLAIMS = {claim.name: claim for claim in claims.claims()}


def test_the_best_of_both_sides_is_named():
    """Against a plain search in the printed numbers of one column."""
    found = claims.compared(CLAIMS["superfed-pathological"], claims.printed)
    assert len(found) == 6 and {one.word for one in found} == {HOLDS}
    for one in found:
        assert one.best is not None and one.rival is not None
        line = {cell.row: cell.printed for cell in cells.cells("2_table3") if cell.setting == one.best[0].setting}
        ours = max(line["SuPerFed-MM"], line["SuPerFed-LM"])
        theirs = max(value for row, value in line.items() if not row.startswith("SuPerFed"))
        assert (one.best[1], one.rival[1]) == (ours, theirs)
        assert one.lead == pytest.approx(ours - theirs) and one.lead >= 0


def test_lower_is_better_of_gini_coefficients():
    claim = CLAIMS["aaggff-silo-gini"]
    numbers = {"AAggFF-S": 12.0, "FedAvg": 11.0}
    found = claims.compared(claim, lambda cell: (numbers.get(cell.row, 13.0), ""))
    for one in found:
        assert one.best is not None and one.rival is not None
        assert one.word == FAILS and (one.best[1], one.rival[0].row) == (12.0, "FedAvg") and one.lead == -1


def test_what_was_not_measured_alike_is_open():
    claim = CLAIMS["superfed-pathological"]
    lengths = {"SuPerFed-MM": 100}
    found = claims.compared(claim, lambda cell: (cell.printed, lengths.get(cell.row, 500)))
    assert {one.word for one in found} == {OPEN} and all(one.best is None for one in found)
    assert str(claims.answer(claim, lambda cell: None)) == "6 open"
