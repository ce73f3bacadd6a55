"""What a trained federation says of new rows: a known client's model, the global one, or one that was tuned for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from fedchord import check
from fedchord.check import fail, require
from fedchord.core.objective import Batch
from fedchord.core.per_client import PerClient
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.data.new_rows import Rows, prepared, rows_of
from fedchord.data.ragged import Ragged
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.newcomers import newcomer_model, plain_tuning
from fedchord.tensors import Tensors

ROWS = 4096
"""How many rows go through the model at a time."""


@final
@dataclass(frozen=True)
class Prediction:
    """Probabilities (n, classes), or predicted numbers (n, 1) where `classes` is empty; and how they came about."""

    values: Tensor
    classes: tuple[str, ...]
    model: str
    """Which model it was, in words."""
    scaled_by: str = ""
    """By what the rows were scaled, in words; "" where nothing is scaled."""
    unseen: dict[str, int] | None = None
    """How many cells of a category hold a word that training never met; it counts as none of the words."""

    @property
    def labels(self) -> list[str]:
        """The most likely class of each row, by name."""
        require(bool(self.classes), "predict", "numbers have no labels; see `values`")
        return [self.classes[place] for place in self.values.argmax(1).tolist()]

    def __len__(self) -> int:
        return len(self.values)


def predict(
    fitted: Fitted,
    rows: Any,
    client: int | str | None = None,
    tune: tuple[Any, Any] | None = None,
    epochs: int = 1,
    training: Training | None = None,
) -> Prediction:
    """What the model of a client (its number or name) says of rows; without a client, the global model.

    `rows` are raw: an array of the data's shape, or named columns for a table. They are prepared as the training rows
    were: a known client's by its own statistics, a new client's by its own rows or, where there are few, by the pooled
    ones. `tune` are labelled rows (rows, labels) of a new client, on which the global model is trained for `epochs`
    first, with the run's settings.
    """
    federation = fitted.work.federation
    require(federation.columns["y"].ndim == 1, "predict", f"{federation.name} has several labels per row")
    known = None if client is None else number_of(federation, client)
    require(known is None or tune is None, "predict", "a client of the run has its model; tune is for a new one")
    found, labelled = rows_of(federation, rows), None
    if known is not None:
        model, words = fitted.deployed(known), f"the model of client {federation.client_names[known]}"
    elif tune is not None:
        labelled = rows_of(federation, tune[0])
        y = torch.as_tensor(tune[1])
        model, words = _tuned(fitted, labelled, y, epochs, training or fitted.work.training)
    else:
        model, words = newcomer_model(fitted)
        whole = len(fitted.state.broadcast["theta"]) == fitted.work.task.layout.size
        shares = bool(fitted.work.algorithm.client.sends)
        advice = "name a client, or tune on labelled rows"
        require(shares and whole, "predict", f"there is no whole global model, only {words}; {advice}")
    batch, by = prepared(federation, found, known, labelled)
    values = outputs(fitted, model, batch)
    return Prediction(values, class_names(federation), words, by, dict(found.unseen))


def class_names(federation: Federation) -> tuple[str, ...]:
    """The names of the classes, or their numbers; none for regression."""
    if federation.regression:
        return ()
    return federation.class_names or tuple(str(label) for label in range(federation.classes))


def number_of(federation: Federation, client: int | str) -> int:
    """A client by its name, or by its number where a number is given."""
    names = federation.client_names
    if isinstance(client, str):
        if client not in names:
            raise check.unknown("client", client, names)
        return names.index(client)
    good = 0 <= client < len(names)
    require(good, "predict", f"client must be a number from 0 to {len(names) - 1}, got {client}")
    return client


def outputs(fitted: Fitted, model: Tensors, batch: Batch) -> Tensor:
    """Probabilities of the classes, or predicted numbers, of rows that are ready for the model."""
    task, parts = fitted.work.task, []
    blank = torch.zeros(len(batch["x"]), dtype=torch.float32 if fitted.work.federation.regression else torch.int64)
    for chosen in torch.arange(len(blank)).split(task.objective.rows or ROWS):
        part = {name: column[chosen] for name, column in (batch | {"y": blank}).items()}
        scores, _ = task.objective.predictions(task.outputs(model["theta"], model["buffers"], part), part)
        parts.append(scores)
    scores = torch.cat(parts) if parts else torch.zeros(0, max(1, fitted.work.federation.classes))
    return scores if fitted.work.federation.regression else probabilities(scores)


def probabilities(scores: Tensor) -> Tensor:
    """Scores (n, classes), or one logit a row (n, 1), as probabilities of the classes: softmax, in float64."""
    if scores.shape[1] == 1:
        scores = torch.cat([torch.zeros_like(scores), scores], 1)
    return scores.double().softmax(1).float()


def _tuned(fitted: Fitted, rows: Rows, y: Tensor, epochs: int, training: Training) -> tuple[Tensors, str]:
    """The model that a new client receives, after training on its labelled rows."""
    federation = fitted.work.federation
    check.whole("predict", "epochs", epochs, 1)
    require(len(y) == len(rows), "predict", f"{len(rows)} rows to tune on have {len(y)} labels")
    require(len(rows) > 0, "predict", "there are no rows to tune on")
    if not federation.regression:
        good = not y.is_floating_point() and bool(((y >= 0) & (y < federation.classes)).all())
        if not good:
            raise fail("predict", f"labels to tune on must be class numbers from 0 to {federation.classes - 1}")
    batch, _ = prepared(federation, rows, None, rows)
    own = Ragged.of([torch.arange(len(rows))])
    none = Ragged.of([torch.zeros(0, dtype=torch.int64)])
    kind = torch.float32 if federation.regression else torch.int64
    columns = {"x": batch["x"], "y": y.to(kind)}
    alone = replace(
        federation,
        columns=columns,
        train=own,
        validation=none,
        test=none,
        client_names=("new",),
        scaling=None,
        pictures=None,
    )
    model, words = newcomer_model(fitted)
    state = replace(fitted.state, broadcast=model, visits=PerClient.filled(1, 0, torch.int32))
    work = Work(plain_tuning(epochs), fitted.work.task, alone, training, fitted.work.seed)
    tuned = Fitted(work, state, ClientMemory()).deployed(0)
    return tuned, f"{words} after {epochs} epoch{'' if epochs == 1 else 's'} on {len(rows)} labelled rows"
