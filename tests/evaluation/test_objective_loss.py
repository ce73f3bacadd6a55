"""The reported loss is the objective that was trained: weights of rows, regression, an objective of your own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedchord import Task, Training, federate, load, method
from fedchord.core.objective import CLASSIFICATION, Batch, Objective, absolute, squared, weighted
from fedchord.core.training import Training as CoreTraining
from fedchord.data import Federation, Iid, Pathological, from_arrays
from fedchord.engine.simulate import simulate
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.models import LogisticRegression

assert CoreTraining is Training


def fitted(task: Task, federation: Federation) -> Fitted:
    *_, last = simulate(method("fedavg"), task, federation, rounds=2, cohort=2, executor="serial")
    return Fitted.of(last)


def outputs(task: Task, fitted: Fitted, client: int) -> tuple[Tensor, Batch]:
    """What the plain module says of a client's test rows."""
    module = LogisticRegression(64, task.layout.entries[-1].shape[0])
    model = fitted.deployed(client)
    module.load_state_dict(task.state_dict(model["theta"], model["buffers"]))
    batch = fitted.work.federation.batch(fitted.work.federation.test[client])
    with torch.no_grad():
        return module(batch["x"]), batch


def test_rows_that_weigh() -> None:
    made = federate(load("digits"), Pathological(3), 4, seed=1, class_weights=True)
    task = Task(lambda: LogisticRegression(64, 10), weighted(CLASSIFICATION))
    done = fitted(task, made)
    found = evaluate(done, metrics=("top1", "loss"))
    sums = []
    for client in range(4):
        said, batch = outputs(task, done, client)
        losses = F.cross_entropy(said.double(), batch["y"], reduction="none")
        assert len(set(batch["weight"].tolist())) > 1  # else weights would change nothing
        sums.append((float((batch["weight"].double() * losses).sum()), float(batch["weight"].double().sum())))
        assert float(found.per_client["loss"][client]) == pytest.approx(sums[-1][0] / sums[-1][1], rel=1e-5)
        assert float(found.per_client["loss"][client]) != pytest.approx(float(losses.mean()), rel=1e-4)
    pooled = sum(total for total, _ in sums) / sum(weight for _, weight in sums)
    assert found.metrics["loss"]["pooled"] == pytest.approx(pooled, rel=1e-5)


@pytest.mark.parametrize("kind", ["squared", "absolute"])
def test_numbers_to_predict(kind: str) -> None:
    digits = load("digits")
    x, y = digits.columns["x"].flatten(1).float(), digits.columns["y"].float() * 100 + 7
    made = federate(from_arrays(x, y, regression=True), Iid(), 3, seed=1)
    assert made.target is not None
    mean, std = made.target
    train = y[made.train.rows].double()
    assert mean == pytest.approx(float(train.mean())) and std == pytest.approx(float(train.std(correction=0)))
    objective = {"squared": squared, "absolute": absolute}[kind](mean, std)
    task = Task(lambda: LogisticRegression(64, 1), objective)
    done = fitted(task, made)
    found = evaluate(done)
    assert tuple(found.metrics) == ("r2", "mae", "mse", "loss")
    for client in range(3):
        said, batch = outputs(task, done, client)
        z = (batch["y"].double() - mean) / std
        wrong = said[:, 0].double() - z
        loss = wrong.square().mean() if kind == "squared" else wrong.abs().mean()
        assert float(found.per_client["loss"][client]) == pytest.approx(float(loss), rel=1e-5)
        units = said[:, 0].double() * std + mean - batch["y"].double()
        assert float(found.per_client["mse"][client]) == pytest.approx(float(units.square().mean()), rel=1e-5)
        assert float(found.per_client["mae"][client]) == pytest.approx(float(units.abs().mean()), rel=1e-5)


def test_the_gradient_of_regression_is_autograd_of_the_formula() -> None:
    x, y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8.0) * 50
    for objective, cost in ((squared(10.0, 4.0), torch.square), (absolute(10.0, 4.0), torch.abs)):
        task = Task(lambda: nn.Linear(3, 1), objective)
        start = task.init(1)
        slope, _ = task.grad(start["theta"], start["buffers"], {"x": x, "y": y}, 0)
        module = nn.Linear(3, 1)
        module.load_state_dict(task.state_dict(start["theta"], start["buffers"]))
        cost(module(x)[:, 0] - (y - 10) / 4).mean().backward()
        expected = task.layout.flatten({name: part.grad for name, part in module.named_parameters()})
        assert torch.allclose(slope, expected, atol=1e-5)


def test_an_objective_of_your_own() -> None:
    def losses(said: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        return 3 * F.cross_entropy(said, batch["y"], reduction="none"), None

    own: Objective = replace(CLASSIFICATION, name="three times", losses=losses)
    made = federate(load("digits"), Iid(), 3)
    thrice, once = (Task(lambda: LogisticRegression(64, 10), objective) for objective in (own, CLASSIFICATION))
    done = fitted(thrice, made)
    plain = Fitted(replace(done.work, task=once), done.state, done.memory)
    assert evaluate(done).mean("loss") == pytest.approx(3 * evaluate(plain).mean("loss"), rel=1e-5)


def test_training_learns_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=generator)
    y = 1000 + 50 * (x @ torch.tensor([1.0, -2.0, 0.5, 0.0])) + torch.randn(300, generator=generator)
    made = federate(from_arrays(x, y, scale="client"), Iid(), 3, seed=1)
    assert made.target is not None
    task = Task(lambda: nn.Linear(4, 1), squared(*made.target))
    training = Training(epochs=3, lr=0.05)
    *_, last = simulate(method("fedavg"), task, made, rounds=10, cohort=3, training=training, executor="serial")
    found = evaluate(Fitted.of(last))
    assert found.mean("r2") > 0.99 and found.mean("mae") < 15
