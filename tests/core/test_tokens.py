"""Text: loss and accuracy are per token that counts, in training, in F_i and in the evaluation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedchord import Task, Training, method, rng, simulate
from fedchord.core.local import data_loss
from fedchord.core.objective import TOKENS, mean_loss
from fedchord.core.stream import ClientStream
from fedchord.data import DataSet, Natural, federate
from fedchord.engine.memory import ClientMemory
from fedchord.evaluation.evaluate import evaluate

CLASSES, LENGTH = 7, 5


class Words(nn.Module):
    """(n, length) -> (n, length, classes)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(CLASSES, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(x)))


def text(sizes: list[int]) -> DataSet:
    dice = np.random.default_rng(3)
    rows = sum(sizes)
    x, y = (torch.from_numpy(dice.integers(0, CLASSES, (rows, LENGTH))) for _ in range(2))
    mask = torch.from_numpy(dice.random((rows, LENGTH)) < 0.5)
    mask[:, 0] = True
    groups = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return DataSet("text", {"x": x.to(torch.int32), "y": y, "mask": mask}, CLASSES, groups=groups)


def by_hand(logits: np.ndarray, y: np.ndarray, mask: np.ndarray) -> tuple[float, float, int]:
    """Summed loss, right answers and number of the tokens that count, one by one."""
    loss, right, count = 0.0, 0.0, 0
    for row in range(len(y)):
        for place in range(LENGTH):
            if mask[row, place]:
                scores = [float(s) for s in logits[row, place]]
                top = max(scores)
                loss += top + math.log(sum(math.exp(s - top) for s in scores)) - scores[y[row, place]]
                right += scores.index(top) == y[row, place]
                count += 1
    return loss, right, count


def hand(task: Task, state: dict[str, Tensor], columns: dict[str, Tensor], rows: Tensor) -> tuple[float, float, int]:
    logits = task.outputs(state["theta"], state["buffers"], {"x": columns["x"][rows].long()})
    return by_hand(logits.numpy(), columns["y"][rows].numpy(), columns["mask"][rows].numpy())


def test_the_mean_is_over_tokens_and_not_over_rows():
    columns = text([9]).columns
    task = Task(Words, TOKENS)
    state = task.init(1)
    batch = {**columns, "x": columns["x"].long()}
    outputs = task.outputs(state["theta"], state["buffers"], batch)
    loss, _, count = hand(task, state, columns, torch.arange(9))
    assert float(mean_loss(TOKENS, outputs, batch)) == pytest.approx(loss / count, rel=1e-5)
    totals, units = TOKENS.losses(outputs, batch)
    assert float((totals / units).mean()) != pytest.approx(loss / count, rel=1e-3)  # a mean of means is another number
    assert units.tolist() == columns["mask"].sum(1).tolist()


def test_what_does_not_count_has_no_gradient_and_changes_nothing():
    columns = text([9]).columns
    task = Task(Words, TOKENS)
    state = task.init(1)
    batch = {**columns, "x": columns["x"].long()}
    other = {**batch, "y": torch.where(columns["mask"], columns["y"], (columns["y"] + 1) % CLASSES)}
    slopes = [task.grad(state["theta"], state["buffers"], b, rng.key(0, "x"))[0] for b in (batch, other)]
    assert torch.equal(*slopes)
    counted = {**batch, "mask": torch.ones_like(columns["mask"])}
    assert not torch.allclose(task.grad(state["theta"], state["buffers"], counted, rng.key(0, "x"))[0], slopes[0])


@pytest.mark.parametrize("rows", [None, 4, 128])
def test_f_i_is_per_token(rows):
    made = federate(text([30, 5]), Natural(), test=0.2)
    task = Task(Words, replace(TOKENS, rows=rows))
    state = task.init(1)
    for client in (0, 1):
        stream = ClientStream(made, client, 10, rng.key(0, "b"))
        loss, _, count = hand(task, state, made.columns, made.train[client])
        assert float(data_loss(task, state, stream)) == pytest.approx(loss / count, rel=1e-5)


@pytest.mark.parametrize("rows", [3, 128])
def test_evaluation_counts_tokens(rows):
    made = federate(text([30, 12, 9]), Natural(), test=0.4)
    task, algorithm = Task(Words, replace(TOKENS, rows=rows)), method("fedavg")
    training = Training(batch=5, lr=0.5)
    *_, last = simulate(algorithm, task, made, rounds=2, cohort=2, training=training, executor="serial")
    found = evaluate(algorithm, task, made, last.state, ClientMemory())
    broadcast = last.state.broadcast
    sums = [hand(task, broadcast, made.columns, made.test[client]) for client in range(3)]
    for client, (loss, right, count) in enumerate(sums):
        assert float(found.per_client["loss"][client]) == pytest.approx(loss / count, rel=1e-5)
        assert float(found.per_client["top1"][client]) == pytest.approx(right / count)
    total = sum(count for *_, count in sums)
    assert found.metrics["top1"]["pooled"] == pytest.approx(sum(right for _, right, _ in sums) / total)
    assert found.metrics["loss"]["pooled"] == pytest.approx(sum(loss for loss, *_ in sums) / total, rel=1e-5)
    assert found.mean("top1") == pytest.approx(np.mean([right / count for _, right, count in sums]))
