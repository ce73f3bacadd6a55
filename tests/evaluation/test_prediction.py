"""Predictions for new rows against plain modules and scikit-learn: known clients, new ones, tuned ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from fedchord import FedchordError, Task, Training, federate, method, run
from fedchord.core.objective import BINARY, squared
from fedchord.core.rules import Phase
from fedchord.core.stream import ClientStream
from fedchord.data import Iid, Natural, from_arrays, from_table
from fedchord.evaluation.fitted import Fitted
from fedchord.models import TwoNN

DRAW = np.random.default_rng(0)
TRAINING = Training(epochs=2, batch=8, lr=0.1)


def columns(rows: int, seed: int) -> dict[str, Any]:
    """Patients on odd scales, with gaps, and a ward that matters."""
    draw = np.random.default_rng(seed)
    age, dose, ward = draw.normal(60, 10, rows), draw.normal(5e4, 9e3, rows), draw.choice(["A", "B"], rows)
    risk = (age - 60) / 10 + (dose - 5e4) / 9e3 + 2 * (ward == "B") - 1
    dose[draw.random(rows) < 0.1] = np.nan
    return {
        "age": age,
        "dose": dose,
        "ward": ward,
        "site": draw.choice(["n", "s", "w"], rows),
        "ill": np.where(risk > 0, "yes", "no"),
    }


def trained(name: str, rounds: int = 3) -> Fitted:
    federation = federate(from_table(columns(150, 1), "ill", "site"), Natural(), seed=1)
    task = Task(lambda: TwoNN(inputs=4, hidden=8, classes=1), BINARY)
    done = run(method(name), task, federation, rounds=rounds, seed=1, training=TRAINING, executor="serial")
    done.finish()
    assert done.fitted is not None
    return done.fitted


def by_hand(fitted: Fitted, model: dict[str, torch.Tensor], scaled: np.ndarray[Any, Any]) -> torch.Tensor:
    """Probabilities of the two classes by a plain module."""
    module = TwoNN(inputs=4, hidden=8, classes=1)
    module.load_state_dict(fitted.work.task.state_dict(model["theta"], model["buffers"]))
    with torch.no_grad():
        ill = torch.sigmoid(module(torch.from_numpy(scaled).float()))
    return torch.cat([1 - ill, ill], 1)


def encoded(table: dict[str, Any], fit: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The features by scikit-learn: numbers filled and scaled by the rows of `fit`, the ward as two marks."""
    pipeline = make_pipeline(SimpleImputer(strategy="mean"), StandardScaler())
    pipeline.fit(np.stack([fit["age"], fit["dose"]], 1))
    numbers = pipeline.transform(np.stack([table["age"], table["dose"]], 1))
    return np.column_stack([numbers, table["ward"] == "A", table["ward"] == "B"])


def training_rows(fitted: Fitted, client: int | None) -> dict[str, Any]:
    """The raw training rows of a client, or of all."""
    federation = fitted.work.federation
    rows = federation.train.rows if client is None else federation.train[client]
    return {name: column[rows.numpy()] for name, column in columns(150, 1).items()}


@pytest.mark.parametrize("name", ["fedavg", "superfed-mm", "fedper", "fedavg-ft", "ditto", "local"])
def test_a_known_client_uses_its_own_model_and_scale(name: str) -> None:
    fitted, new = trained(name), columns(30, 2)
    for client, who in enumerate(("n", "s", "w")):
        found = fitted.predict(new, who)
        scaled = encoded(new, training_rows(fitted, client))
        expected = by_hand(fitted, fitted.deployed(client), scaled)
        assert torch.allclose(found.values, expected, atol=1e-5)
        assert found.classes == ("no", "yes")
        assert found.labels == ["yes" if ill > 0.5 else "no" for ill in expected[:, 1].tolist()]
        assert found.model == f"the model of client {who}"
        assert found.scaled_by == f"the training rows of client {who}"
        assert torch.equal(found.values, fitted.predict(new, client).values)


def test_a_new_client_uses_the_global_model_and_its_own_rows_or_the_pooled_ones() -> None:
    fitted, new = trained("fedavg"), columns(40, 3)
    found = fitted.predict(new)
    assert torch.allclose(found.values, by_hand(fitted, fitted.state.broadcast, encoded(new, new)), atol=1e-5)
    assert (found.model, found.scaled_by) == ("the global model", "its own 40 rows")
    few = {name: column[:19] for name, column in new.items()}
    pooled = by_hand(fitted, fitted.state.broadcast, encoded(few, training_rows(fitted, None)))
    found = fitted.predict(few)
    assert torch.allclose(found.values, pooled, atol=1e-5) and found.scaled_by.startswith("pooled statistics")


def test_words_that_training_never_met_are_zeros_and_counted() -> None:
    fitted, new = trained("fedavg"), columns(30, 4)
    new["ward"] = np.where(np.arange(30) < 3, "C", new["ward"])
    found = fitted.predict(new, "n")
    assert found.unseen == {"ward": 3}
    scaled = encoded(new, training_rows(fitted, 0))
    assert scaled[:3, 2:].sum() == 0
    assert torch.allclose(found.values, by_hand(fitted, fitted.deployed(0), scaled), atol=1e-5)


def test_a_tuned_newcomer_is_a_plain_loop_from_the_global_model() -> None:
    fitted, new, own = trained("fedavg"), columns(25, 5), columns(30, 6)
    labels = torch.from_numpy((own["ill"] == "yes").astype(np.int64))
    found = fitted.predict(new, tune=(own, labels), epochs=2)
    assert found.model == "the global model after 2 epochs on 30 labelled rows"
    assert found.scaled_by == "its own 30 rows"
    module = TwoNN(inputs=4, hidden=8, classes=1)
    state = fitted.state.broadcast
    module.load_state_dict(fitted.work.task.state_dict(state["theta"], state["buffers"]))
    x = torch.from_numpy(encoded(own, own)).float()
    alone = federate(from_arrays(x, labels.numpy(), classes=2), Iid(), 1, test=0.0)
    from fedchord import rng  # the order of the batches is the only thing shared

    stream = ClientStream(alone, 0, TRAINING.batch, rng.key(1, "batches", 0, fitted.state.round))
    optimiser = torch.optim.SGD(module.parameters(), lr=TRAINING.lr)
    for batch in stream.batches(0, Phase(epochs=2)):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(module(batch["x"])[:, 0], batch["y"].float()).backward()
        optimiser.step()
    with torch.no_grad():
        expected = torch.sigmoid(module(torch.from_numpy(encoded(new, own)).float()))[:, 0]
    assert torch.allclose(found.values[:, 1], expected, atol=1e-5)


def test_numbers_come_back_in_their_units() -> None:
    draw = np.random.default_rng(7)
    x = draw.normal(size=(90, 2))
    y = 500 + 20 * x[:, 0]
    federation = federate(from_arrays(x, y, [0, 1, 2] * 30, scale="client"), Natural(), seed=1)
    assert federation.target is not None
    task = Task(lambda: nn.Linear(2, 1), squared(*federation.target))
    done = run(method("fedavg"), task, federation, rounds=15, seed=1, training=TRAINING, executor="serial")
    done.finish()
    assert done.fitted is not None
    found = done.fitted.predict(x[:30], 0)
    assert found.values.shape == (30, 1) and found.classes == ()
    assert r2_score(y[:30], found.values[:, 0].numpy()) > 0.9
    with pytest.raises(FedchordError, match="numbers have no labels; see `values`"):
        _ = found.labels


def test_what_is_refused() -> None:
    fitted, new = trained("fedper"), columns(10, 8)
    for arguments, message in (
        ({}, "there is no whole global model, only the shared part of the global model with an untrained rest; name"),
        ({"client": "x"}, "unknown client 'x'"),
        ({"client": 3}, "client must be a number from 0 to 2, got 3"),
        ({"client": "n", "tune": (new, [0] * 10)}, "a client of the run has its model; tune is for a new one"),
        ({"tune": (new, [0] * 9)}, "10 rows to tune on have 9 labels"),
        ({"tune": (new, [2] * 10)}, "labels to tune on must be class numbers from 0 to 1"),
        ({"tune": (new, [0] * 10), "epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
    ):
        with pytest.raises(FedchordError) as error:
            fitted.predict(new, **arguments)  # type: ignore[arg-type]
        assert message in str(error.value)
    for rows, message in (
        ({"age": [1.0]}, "has no column 'dose'"),
        (np.zeros((3, 5)), r"rows must have shape (n, 4), got (3, 5)"),
        (np.array([["a"] * 4]), "rows must hold numbers"),
    ):
        with pytest.raises(FedchordError) as error:
            fitted.predict(rows, "n")
        assert message in str(error.value)
    assert fitted.predict(new, tune=(new, [0, 1] * 5), epochs=1).model.startswith("the shared part of the global model")
