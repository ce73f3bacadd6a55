import math
from dataclasses import dataclass, replace
from importlib import import_module
from typing import ClassVar

import pytest
import torch
from helpers.federations import make_federation
from sklearn.metrics import accuracy_score, log_loss
from torch import nn

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.core.per_client import PerClient
from fedchord.core.round import Plan, open_run
from fedchord.core.rules import Algorithm, ClientRule, Deployed
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation, Ragged
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult, simulate
from fedchord.engine.work import Work
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step

FEDERATION = make_federation([13, 20, 7, 31, 10], test=9)


def trained(name: str) -> RoundResult:
    algorithm, task = catalog.build(name), Task(lambda: TwoNN(6, 5, 3))
    *_, last = simulate(
        algorithm, task, FEDERATION, rounds=5, cohort=2, seed=1, training=Training(lr=0.2, batch=4), executor="serial"
    )
    return last


def opened(federation: Federation) -> Fitted:
    """FedAvg before its first round."""
    work = Work.of(catalog.build("fedavg"), Task(lambda: TwoNN(6, 5, 3)), federation)
    return Fitted(work, open_run(work.algorithm, work.task, federation.num_clients, Plan()), ClientMemory())


@pytest.mark.parametrize("name", ["fedavg", "local"])
@pytest.mark.parametrize("rows", [4096, 10])
def test_against_sklearn_client_by_client(name, rows, monkeypatch):
    monkeypatch.setattr(import_module("fedchord.evaluation.evaluate"), "ROWS", rows)
    last = trained(name)
    result = evaluate(Fitted.of(last))
    accuracies, losses, labels, answers = [], [], [], []
    for client in range(5):
        own = last.memory.get(client)
        theta = own["theta"] if name == "local" and own else last.state.broadcast["theta"]
        module = TwoNN(6, 5, 3)
        torch.nn.utils.vector_to_parameters(theta, module.parameters())
        x, y = (FEDERATION.columns[c][FEDERATION.test[client]] for c in ("x", "y"))
        scores = module(x).detach()
        accuracies.append(accuracy_score(y, scores.argmax(1)))
        losses.append(log_loss(y, scores.double().softmax(1), labels=[0, 1, 2]))
        labels.append(y)
        answers.append(scores.argmax(1))
    assert result.per_client["top1"].tolist() == pytest.approx(accuracies)
    assert result.per_client["loss"].tolist() == pytest.approx(losses, abs=1e-5)
    assert result.mean("top1") == pytest.approx(sum(accuracies) / 5)
    mean = sum(accuracies) / 5
    assert result.metrics["top1"]["std"] == pytest.approx(math.sqrt(sum((a - mean) ** 2 for a in accuracies) / 5))
    assert result.metrics["top1"]["pooled"] == pytest.approx(accuracy_score(torch.cat(labels), torch.cat(answers)))


def test_pooled_is_over_rows_not_over_clients():
    sizes = [torch.arange(2), torch.arange(2, 12)]
    federation = make_federation([4, 4], test=9)
    object.__setattr__(federation, "test", Ragged.of(sizes))
    result = evaluate(opened(federation))
    a, b = result.per_client["top1"].tolist()
    assert result.metrics["top1"]["pooled"] == pytest.approx((2 * a + 10 * b) / 12)
    assert result.mean("top1") == pytest.approx((a + b) / 2)


def test_the_protocol_is_written_down():
    last = trained("fedavg")
    protocol = evaluate(Fitted.of(last)).protocol
    assert protocol["split"] == "test" and protocol["clients"] == 5 and protocol["round"] == 5
    assert protocol["never_sampled"] == int((last.state.visits.tensor() == 0).sum())
    assert protocol["deploys"] == {"words": "the global model", "kind": "global"}
    assert "plain mean over evaluated clients" in protocol["mean"]


def test_clients_without_test_rows_are_counted_not_evaluated():
    federation = make_federation([4, 4, 4])
    object.__setattr__(
        federation, "test", Ragged.of([torch.arange(3), torch.zeros(0, dtype=torch.int64), torch.arange(3, 5)])
    )
    result = evaluate(opened(federation))
    assert result.clients == (0, 2) and result.protocol["without_rows"] == 1
    with pytest.raises(FedchordError, match="no client has validation rows"):
        evaluate(opened(federation), split="validation")


def test_unknown_metric_names_the_nearest():
    last = trained("fedavg")
    with pytest.raises(FedchordError, match="did you mean 'auroc'"):
        evaluate(Fitted.of(last), metrics=("aurok",))


@dataclass(frozen=True)
class OwnStatistics(ClientRule):
    """A shared theta with buffers of the client's own (as FedBN would have it)."""

    deploys: ClassVar[Deployed] = Deployed("the global model with the client's own statistics")

    def deploy(self, task, shared, own):
        return {"theta": shared["theta"], "buffers": own["buffers"] if own else shared["buffers"]}


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(x))


def test_clients_that_share_theta_but_not_buffers_are_not_thrown_together():
    algorithm, task = Algorithm(OwnStatistics(), BySize(), Step()), Task(Normed)
    state = replace(open_run(algorithm, task, 5, Plan()), visits=PerClient.filled(5, 1, torch.int32))
    memory = ClientMemory()
    for client in range(5):
        memory.put(client, {"buffers": state.broadcast["buffers"] + client}, 0)
    together = evaluate(Fitted(Work.of(algorithm, task, FEDERATION), state, memory)).per_client["loss"]
    for client in range(5):
        batch = FEDERATION.batch(FEDERATION.test[client])
        scores = task.outputs(state.broadcast["theta"], state.broadcast["buffers"] + client, batch)
        alone = torch.nn.functional.cross_entropy(scores, batch["y"])
        assert float(together[client]) == pytest.approx(float(alone), abs=1e-5)


def test_unknown_split_is_one_line():
    last = trained("fedavg")
    with pytest.raises(FedchordError, match="evaluate: split must be one of train, validation, test, got 'dev'"):
        evaluate(Fitted.of(last), split="dev")
