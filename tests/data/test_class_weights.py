"""Class weights: the weights by hand, the loss against torch's, and F_i of a small client."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedchord import Task, method, simulate
from fedchord.check import FedchordError
from fedchord.core.local import data_loss
from fedchord.core.objective import BINARY, CLASSIFICATION, mean_loss, weighted
from fedchord.core.stream import ClientStream
from fedchord.core.training import Training
from fedchord.data import DataSet, Natural, federate
from fedchord.data.build import class_weight, majority
from fedchord.data.federation import Ragged
from fedchord.experiments.config import RunConfig
from fedchord.models import LogisticRegression

LABELS = torch.tensor([0, 0, 0, 1, 2, 2, 0, 1])
HELD = Ragged.of([torch.tensor([0, 1, 2, 3, 4]), torch.tensor([5, 6])])
TRAIN = Ragged.of([torch.tensor([0, 1, 2, 3]), torch.tensor([5])])


def test_weights_by_hand() -> None:
    # client 0 trains on 3 x 0 and 1 x 1: (4 + 3) / (3 + 1), / (1 + 1), / (0 + 1); client 1 on 1 x 2; row 7 is nobody's
    wanted = [7 / 4, 7 / 4, 7 / 4, 7 / 2, 7 / 1, 4 / 2, 4 / 1, 1.0]
    assert class_weight(LABELS, 3, HELD, TRAIN).tolist() == pytest.approx(wanted)


def toy(n: int = 60) -> DataSet:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator)
    y = torch.multinomial(torch.tensor([0.8, 0.15, 0.05]), n, replacement=True, generator=generator)
    return DataSet("toy", {"x": x, "y": y}, 3, groups=torch.arange(n) % 3)


def test_the_loss_is_torchs_weighted_mean() -> None:
    made = federate(toy(), Natural(), class_weights=True)
    task = Task(lambda: LogisticRegression(4, 3), weighted(CLASSIFICATION))
    assert task.dense is None
    model = task.init(1)
    for client in range(3):
        rows = made.train[client]
        batch = made.batch(rows)
        counts = torch.bincount(batch["y"], minlength=3)
        weights = (len(rows) + 3) / (counts + 1)
        outputs = task.outputs(model["theta"], model["buffers"], batch)
        wanted = torch.nn.CrossEntropyLoss(weight=weights)(outputs, batch["y"])
        torch.testing.assert_close(mean_loss(task.objective, outputs, batch), wanted)
        found = data_loss(task, model, ClientStream(made, client, 5, key=1))
        assert float(found) == pytest.approx(float(wanted), rel=1e-5)
        assert float(wanted) != pytest.approx(float(mean_loss(CLASSIFICATION, outputs, batch)), rel=1e-3)


def test_light_rows_and_padding() -> None:
    """Units may sum to less than one; padded rows weigh nothing."""
    batch = {"y": torch.tensor([0, 1, 1]), "weight": torch.tensor([0.1, 0.3, 5.0]), "live": torch.tensor([1.0, 1.0, 0])}
    outputs = torch.tensor([[2.0], [1.0], [9.0]])
    parts = torch.nn.functional.softplus(torch.tensor([2.0, -1.0]))
    wanted = (0.1 * parts[0] + 0.3 * parts[1]) / 0.4
    assert float(mean_loss(weighted(BINARY), outputs, batch)) == pytest.approx(float(wanted))
    nobody = batch | {"live": torch.zeros(3)}
    assert float(mean_loss(weighted(BINARY), outputs, nobody)) == 0.0
    light = replace(federate(toy(), Natural()), train=Ragged.of([torch.tensor([0]), torch.tensor([1])]))
    light = replace(light, columns=light.columns | {"weight": torch.full((60,), 0.2)})
    task = Task(lambda: LogisticRegression(4, 3), weighted(CLASSIFICATION))
    plain, model = Task(lambda: LogisticRegression(4, 3)), task.init(1)
    stream = ClientStream(light, 0, 1, key=1)
    assert float(data_loss(task, model, stream)) == pytest.approx(float(data_loss(plain, model, stream)), rel=1e-6)


def test_executors_agree() -> None:
    made = federate(toy(), Natural(), class_weights=True)
    task = Task(lambda: LogisticRegression(4, 3), weighted(CLASSIFICATION))
    ends = []
    for executor in ("serial", "vectorised"):
        *_, last = simulate(method("aaggff-s"), task, made, rounds=2, training=Training(batch=7), executor=executor)
        ends.append((last.state.broadcast["theta"], last.losses))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-4, rtol=1e-4)


def test_the_key_and_what_it_is_not_for() -> None:
    config = RunConfig.from_values({"data": "digits", "class_weights": True})
    made = config.federation()
    assert "weight" in made.columns and config.task(made).objective.name == "weighted cross-entropy"
    assert any("(n + L) / (n_c + 1)" in note for note in made.notes)
    plain, off = (RunConfig.from_values({"data": "digits"} | more) for more in ({}, {"class_weights": False}))
    assert plain.fingerprint() == off.fingerprint() != config.fingerprint()
    words = DataSet("text", {"x": torch.zeros(6, 4), "y": torch.zeros(6, 4, dtype=torch.int64)}, 3)
    with pytest.raises(FedchordError, match="federate: class weights need one class per row"):
        federate(replace(words, groups=torch.zeros(6, dtype=torch.int64)), Natural(), class_weights=True)


def test_majority_by_hand() -> None:
    assert majority({"y": LABELS}, 3, HELD).tolist() == pytest.approx([3 / 5, 1 / 2])
    y = torch.tensor([[1, 1, 2], [2, 2, 0]])
    mask = torch.tensor([[True, True, False], [True, True, False]])
    rows = Ragged.of([torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([], dtype=torch.int64)])
    found = majority({"y": y, "mask": mask}, 3, rows)
    assert found[:2].tolist() == [0.5, 1.0] and bool(found[2].isnan())
    assert majority({"y": y}, 3, rows)[0] == 0.5
