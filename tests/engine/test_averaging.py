"""Averaged iterates: the mean that is deployed, against all per-round models; interruptions; who has no such mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.federations import make_federation
from torch import nn

from fedchord import FedchordError, catalog
from fedchord.core.round import Plan
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import simulate
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.models import TwoNN

FEDERATION = make_federation([13, 20, 7, 31, 10], test=9)
SETTINGS = {"cohort": 2, "seed": 1, "training": Training(lr=0.2, batch=4), "executor": "serial"}


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def rounds(method: str, task: Task, **changes: object):
    return list(simulate(catalog.build(method), task, FEDERATION, **SETTINGS | {"rounds": 8} | changes))


@pytest.mark.parametrize(("share", "window"), [(0.25, 2), (0.5, 4), (1.0, 8), (0.01, 1), (0.4, 3)])
def test_the_mean_is_that_of_the_last_models(share, window):
    """Every model of the window, recomputed from a run that averages nothing; training itself is the same."""
    task = Task(lambda: TwoNN(6, 5, 3))
    plain, found = rounds("fedavg", task), rounds("fedavg", task, average=share)
    models = np.stack([result.state.broadcast["theta"].numpy().astype(np.float64) for result in plain])
    for one, other in zip(plain, found, strict=True):
        assert torch.equal(one.state.broadcast["theta"], other.state.broadcast["theta"])
    for result in found:
        first = max(8 - window, 0)
        expected = models[first : result.round].mean(0) if result.round > first else models[result.round - 1]
        deployed = Fitted.of(result).deployed(0)["theta"]
        np.testing.assert_allclose(deployed.numpy(), expected, rtol=0, atol=1e-7)
    assert window == 1 or not np.allclose(models[-1], models[-window:].mean(0), atol=1e-4)


def test_running_statistics_are_averaged_and_counters_are_not():
    task = Task(normed)
    plain, (*_, last) = rounds("fedavg", task), rounds("fedavg", task, average=0.5)
    views = [task.buffers.views(result.state.broadcast["buffers"]) for result in plain[-4:]]
    found = task.buffers.views(Fitted.of(last).deployed(0)["buffers"])
    for name in ("1.running_mean", "1.running_var"):
        torch.testing.assert_close(found[name], torch.stack([view[name] for view in views]).double().mean(0).float())
    assert torch.equal(found["1.num_batches_tracked"], views[-1]["1.num_batches_tracked"])


@pytest.mark.parametrize("method", ["fedavg", "fedadam", "scaffold", "superfed-mm", "fedper", "q-fedavg", "apfl"])
def test_an_interrupted_run_ends_with_the_same_bits(method, tmp_path):
    task = Task(lambda: TwoNN(6, 5, 3))
    *_, whole = rounds(method, task, average=0.5)
    for stopped in simulate(catalog.build(method), task, FEDERATION, **SETTINGS, rounds=8, average=0.5):
        if stopped.round == 6:
            break
    checkpoint.save(tmp_path, stopped.state, stopped.memory, "x")
    memory = ClientMemory()
    found = checkpoint.load(tmp_path, memory, "x")
    assert found is not None and float(found.state.sums["count"]) == 2
    *_, last = rounds(method, task, average=0.5, state=found.state, memory=memory)
    for client in range(5):
        one, other = Fitted.of(whole).deployed(client), Fitted.of(last).deployed(client)
        assert torch.equal(one["theta"], other["theta"])


def test_the_evaluation_and_the_training_before_use_see_the_mean():
    task = Task(lambda: TwoNN(6, 5, 3))
    *_, last = rounds("fedavg-ft", task, average=0.5)
    fitted = Fitted.of(last)
    mean = (last.state.sums["theta"] / 4).float()
    assert torch.equal(fitted.state.broadcast["theta"], mean)
    assert torch.equal(Fitted(fitted.work, fitted.state, fitted.memory).state.broadcast["theta"], mean)  # not twice
    start = fitted.work.tuning(0, True, fitted.state)[0].shared["theta"]
    assert torch.equal(start, mean)
    *_, plain = rounds("fedavg", task, average=0.5)
    assert evaluate(Fitted.of(plain)).protocol["global_model"] == 5


@pytest.mark.parametrize("method", ["local", "fedevg"])
def test_who_has_no_global_model_is_refused(method):
    with pytest.raises(FedchordError, match="average is a mean of global models"):
        rounds(method, Task(lambda: TwoNN(6, 5, 3)), average=0.5)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(FedchordError, match="average"):
        Plan(average=share)
