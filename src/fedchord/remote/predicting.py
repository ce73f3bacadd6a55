"""Predictions at a party, by its own model: the last broadcast that reached it, with its private memory."""

from __future__ import annotations

from pathlib import Path

from fedchord.check import fail
from fedchord.evaluation.prediction import predict
from fedchord.experiments.opened import Report
from fedchord.experiments.predict import Answered
from fedchord.experiments.rows_file import Asked, read_rows
from fedchord.remote.attending import open_node
from fedchord.remote.rows import config_of
from fedchord.remote.settings import Party


def predict_at(party: Party, file: Path, report: Report = lambda line: None) -> tuple[Asked, list[Answered]]:
    """Predictions for the rows of a file, by the model that the party would use; nothing leaves this machine."""
    node = open_node(party)
    if node.plan.algorithm.outcome != "model":
        raise fail("predict", f"{node.plan.config.method} ends with samples at the server, not with a model here")
    fitted = node.fitted()
    asked = read_rows(config_of(party.data, node.plan.settings), fitted.work.federation, file)
    if asked.problem:
        report(f"labels are not used: {asked.problem}")
    made = predict(fitted, asked.rows, party.name)
    scaled = f"; scaled by {made.scaled_by}" if made.scaled_by else ""
    report(f"{len(asked.rows)} rows: {made.model} after round {fitted.state.round}{scaled}")
    for column, count in asked.rows.unseen.items():
        report(f"{count} of column {column!r} hold a word that nobody's training rows had; they count as none")
    return asked, [Answered(range(len(asked.rows)), made, party.name)]
