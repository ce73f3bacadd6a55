"""Text: loss and accuracy are per token that counts, in training, in F_i and in the evaluation."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedchord import Fitted, Task, Training, evaluate, method, rng, simulate
from fedchord.core.local import data_loss
from fedchord.core.objective import TOKENS, mean_loss
from fedchord.core.rules import Phase
from fedchord.core.stream import ClientStream
from fedchord.data import DataSet, Natural, federate
from fedchord.engine.vectorised import traced

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
    found = evaluate(Fitted.of(last))
    broadcast = last.state.broadcast
    sums = [hand(task, broadcast, made.columns, made.test[client]) for client in range(3)]
    for client, (loss, right, count) in enumerate(sums):
        assert float(found.per_client["loss"][client]) == pytest.approx(loss / count, rel=1e-5)
        assert float(found.per_client["top1"][client]) == pytest.approx(right / count)
    total = sum(count for *_, count in sums)
    assert found.metrics["top1"]["pooled"] == pytest.approx(sum(right for _, right, _ in sums) / total)
    assert found.metrics["loss"]["pooled"] == pytest.approx(sum(loss for loss, *_ in sums) / total, rel=1e-5)
    assert found.mean("top1") == pytest.approx(np.mean([right / count for _, right, count in sums]))


# -- where nothing counts ------------------------------------------------------------------------------------------


def test_a_batch_without_a_counted_token_has_no_loss_and_no_gradient():
    columns = text([9]).columns
    task = Task(Words, TOKENS)
    state, key = task.init(1), rng.key(0, "x")
    batch = {**columns, "x": columns["x"].long(), "mask": torch.zeros_like(columns["mask"])}
    nothing = torch.zeros_like(state["theta"])
    value, _ = task.loss(state["theta"], state["buffers"], batch, key)
    assert float(value) == 0
    assert torch.equal(task.grad(state["theta"], state["buffers"], batch, key)[0], nothing)
    for live in (torch.ones(9), torch.tensor([1.0] * 4 + [0.0] * 5), torch.zeros(9)):
        padded = batch | {"live": live}
        assert float(task.loss(state["theta"], state["buffers"], padded, key)[0]) == 0
        assert torch.equal(traced(task).grad(state["theta"], state["buffers"], padded, key)[0], nothing)


SILENT = 1
"""A client whose every row has no counted token; 7 of the 10 rows of client 2 have none."""


def partly_silent() -> DataSet:
    made = text([12, 9, 10])
    mask = made.columns["mask"]
    mask[made.groups == SILENT] = False
    mask[(made.groups == 2).nonzero().flatten()[:7]] = False
    return made


def trained_by_hand(module: nn.Module, batches: list[dict[str, Tensor]], lr: float) -> tuple[nn.Module, int]:
    """A trained copy, by backward over the counted tokens alone; how many batches have none."""
    local, without = copy.deepcopy(module), 0
    for batch in batches:
        if not batch["mask"].any():
            without += 1
            continue
        local.zero_grad()
        outputs = local(batch["x"].long())
        nn.functional.cross_entropy(outputs[batch["mask"]], batch["y"][batch["mask"]]).backward()
        with torch.no_grad():
            for parameter in local.parameters():
                parameter.sub_(lr * parameter.grad)
    return local, without


@pytest.mark.parametrize("executor", ["serial", "vectorised"])
def test_a_client_without_a_counted_token_learns_nothing_and_spoils_nothing(executor):
    made, task = federate(partly_silent(), Natural(), test=0.3), Task(Words, TOKENS)
    training = Training(epochs=2, batch=2, lr=0.5)
    results = list(simulate(method("fedavg"), task, made, rounds=3, seed=4, training=training, executor=executor))
    first = task.init(rng.key(4, "model"))
    module = Words()
    module.load_state_dict(task.state_dict(first["theta"], first["buffers"]))
    sizes = [len(made.train[client]) for client in range(3)]
    partly = 0
    for t, result in enumerate(results):
        locals_, without = [], []
        for client in range(3):
            stream = ClientStream(made, client, 2, rng.key(4, "batches", client, t))
            batches = list(stream.batches(0, Phase(epochs=2)))
            local, count = trained_by_hand(module, batches, 0.5)
            locals_.append(local)
            without.append(count / len(batches))
        assert without[0] == 0 and without[SILENT] == 1 and without[2] < 1
        partly += without[2] > 0
        with torch.no_grad():
            for whole, *parts in zip(*(m.parameters() for m in (module, *locals_)), strict=True):
                whole.copy_(sum(size / sum(sizes) * part for size, part in zip(sizes, parts, strict=True)))
        theta = result.state.broadcast["theta"]
        assert torch.isfinite(theta).all()
        assert torch.allclose(theta, nn.utils.parameters_to_vector(module.parameters()).detach(), atol=5e-6), t
    assert partly  # a client may have batches with and without


@pytest.mark.parametrize("executor", ["serial", "vectorised"])
def test_its_training_loss_is_zero(executor):
    made, task = federate(partly_silent(), Natural(), test=0.3), Task(Words, TOKENS)
    settings = {"rounds": 2, "training": Training(batch=2), "executor": executor}
    for result in simulate(method("q-fedavg"), task, made, **settings):
        assert result.losses.tolist()[SILENT] == 0 and result.losses[[0, 2]].min() > 0
        assert torch.isfinite(result.state.broadcast["theta"]).all()


@pytest.mark.parametrize("rows", [3, 128])
def test_a_client_without_a_counted_token_does_not_spoil_the_pooled_value(rows):
    made = federate(partly_silent(), Natural(), test=0.4)
    task = Task(Words, replace(TOKENS, rows=rows))
    *_, last = simulate(method("fedavg"), task, made, rounds=2, training=Training(batch=5), executor="serial")
    found = evaluate(Fitted.of(last))
    sums = [hand(task, last.state.broadcast, made.columns, made.test[client]) for client in range(3)]
    loss, right, count = (sum(column) for column in zip(*sums, strict=True))
    assert sums[SILENT] == (0, 0, 0) and count > 0
    assert found.metrics["top1"]["pooled"] == pytest.approx(right / count)
    assert found.metrics["loss"]["pooled"] == pytest.approx(loss / count, rel=1e-5)
    assert math.isnan(found.per_client["loss"][SILENT])  # nothing to measure, and it is counted
    assert (found.metrics["loss"]["clients"], found.metrics["loss"]["undefined"]) == (2, 1)
    known = [total / units for total, _, units in sums if units]
    assert found.mean("loss") == pytest.approx(sum(known) / 2, rel=1e-5)
