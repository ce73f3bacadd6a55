"""Predictions of a run for a file of rows: read as its training rows were, by a client's model or the global one."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from fedchord.check import FedchordError, RowsMissing, fail, unknown
from fedchord.data.federation import Federation
from fedchord.data.new_rows import Rows
from fedchord.evaluation.prediction import Prediction, predict
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.opened import Report, opened, with_rows
from fedchord.experiments.rows_file import Asked, label_of, labelled, read_rows
from fedchord.metrics import by_client


@final
@dataclass(frozen=True)
class Answered:
    """A prediction of some of the rows, by their places."""

    places: Sequence[int]
    found: Prediction
    client: str = ""


def predict_file(
    folder: str | Path,
    file: str | Path,
    client: str | None = None,
    tune: str | Path | None = None,
    epochs: int = 1,
    report: Report = lambda line: None,
) -> tuple[Asked, list[Answered]]:
    """Predictions for the rows of a file: by the model of a client, by each row's own client where the file has the
    run's client column, else by the global model, after training on the labelled rows of `tune` if they are given."""
    here = RunFolder(folder)
    config = here.read_settings()
    if config.algorithm().outcome != "model":
        advice = f"train a classifier on them with: fedchord synth train {here.path}"
        raise fail("predict", f"{config.method} ends with samples, not with a model; {advice}")
    fitted = opened(here, config, report)
    if fitted.state.round < config.rounds:
        report(f"the run has done {fitted.state.round} of {config.rounds} rounds")
    asked = read_rows(config, fitted.work.federation, Path(file))
    if asked.problem:
        report(f"labels are not used: {asked.problem}")
    known_rows = None
    if tune is not None:
        found = read_rows(config, fitted.work.federation, Path(tune))
        known_rows = (found.rows, labelled(found, str(tune), label_of(config)))
    wanted = _wanted(fitted.work.federation, asked, client, tune is not None)
    answered: list[Answered] = []
    for name, places in wanted.items():
        rows = Rows(asked.rows.x[places], asked.rows.unseen)
        known = name if name in fitted.work.federation.client_names else None
        try:
            made = predict(fitted, rows, known, known_rows, epochs)
        except RowsMissing:  # its rule trains before use, or BatchNorm's statistics are its own: its rows are needed
            fitted = with_rows(fitted, config)
            made = predict(fitted, rows, known, known_rows, epochs)
        answered.append(Answered(places, made, name))
        report(f"{_count(len(places))}{f' of {name}' if name else ''}: {made.model}{_scaled(made)}")
    for column, count in asked.rows.unseen.items():
        report(f"{_count(count)} of column {column!r} hold a word that training never met; they count as none")
    return asked, answered


def _wanted(federation: Federation, asked: Asked, client: str | None, tuned: bool) -> dict[str, list[int]]:
    """Which rows are asked of whose model, by name; "" is the global one."""
    everyone = list(range(len(asked.rows)))
    if client is not None and client not in federation.client_names:
        hint = "without --client the global model is asked"
        raise FedchordError(f"{unknown('client', client, federation.client_names)}; {hint}")
    if client is not None or asked.clients is None or tuned:
        return {client or "": everyone}
    found: dict[str, list[int]] = {}
    for place, name in enumerate(asked.clients):
        found.setdefault(name, []).append(place)
    return found


# -- what is shown -------------------------------------------------------------------------------------------------


def as_csv(asked: Asked, answered: Sequence[Answered]) -> str:
    """Predictions as a csv file, in the order of the rows: label and probabilities, or the number that is predicted."""
    classes = answered[0].found.classes
    named = asked.clients is not None
    head = [asked.head, *(["client"] if named else [])]
    head += ["label", *(f"p({name})" for name in classes)] if classes else ["prediction"]
    lines: list[list[str]] = [[] for _ in asked.names]
    for part in answered:
        values = part.found.values.tolist()
        labels = part.found.labels if classes else []
        for at, place in enumerate(part.places):
            numbers = [f"{value:.6g}" for value in values[at]]
            who = [asked.clients[place]] if asked.clients is not None else []
            lines[place] = [asked.names[place], *who, *([labels[at]] if classes else []), *numbers]
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([head, *lines])
    return stream.getvalue()


def measured(asked: Asked, answered: Sequence[Answered]) -> str:
    """How good the predictions are, where the rows have labels, in one line; "" where they have none."""
    if asked.y is None:
        return ""
    classes = answered[0].found.classes
    values = torch.empty(len(asked.names), answered[0].found.values.shape[1], dtype=torch.float64)
    for part in answered:
        values[torch.as_tensor(part.places)] = part.found.values.double()
    names = ("top1", "auroc") if classes else ("r2", "mae")
    scores = values.clamp_min(1e-300).log() if classes else values
    found = by_client(names, scores, asked.y, torch.tensor([0, len(asked.names)]))
    told = ", ".join(f"{name} {float(value[0]):.4f}" for name, value in found.items() if not value.isnan().any())
    return f"the rows have labels: {told}"


def _count(rows: int) -> str:
    return f"{rows} row{'' if rows == 1 else 's'}"


def _scaled(made: Prediction) -> str:
    return f"; scaled by {made.scaled_by}" if made.scaled_by else ""
