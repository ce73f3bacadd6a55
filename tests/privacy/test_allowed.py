"""What methods release, and the lists made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedchord import Task, Training, catalog
from fedchord.check import FedchordError
from fedchord.core.inputs import Inputs
from fedchord.core.round import Plan
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.models import TwoNN
from fedchord.privacy.allowed import hides, refused, refused_model, released, summed
from fedchord.privacy.shield import shield
from fedchord.privacy.terms import Privacy

UNIFORM = catalog.MIXINGS["uniform"]()


def test_what_is_released_follows_from_the_rules():
    assert released(catalog.build("scaffold")) == ("theta (mix)", "control (mean)")
    assert released(catalog.build("fedavg")) == ("theta (mix)", "the number of rows")
    assert released(catalog.build("term")) == ("theta (mix)", "the loss")
    assert released(catalog.build("aaggff-p")) == ("theta (mix)", "a noisy report of the loss")
    assert released(catalog.build("fedmgda")) == ("theta (mix)", "gram of updates")
    assert released(catalog.build("local")) == ()


@pytest.mark.parametrize("name", list(catalog.METHODS))
def test_a_server_of_sums_alone_can_run_what_needs_losses_at_most(name):
    algorithm = catalog.build(name)
    needs = set(algorithm.mixing.needs)
    expected = "one phase" if not needs else "two phases" if needs == {"loss"} else "no"
    expected = expected if algorithm.client.sends else "nothing is sent"
    assert summed(algorithm).partition(":")[0] == expected
    assert (refused(algorithm, "clients") == "") is (bool(algorithm.client.sends) and algorithm.mixing.equal)


def test_keys_that_make_a_method_private_are_told():
    assert hides(catalog.build("fedavg"), "clients", UNIFORM) == "mixing=uniform"
    assert hides(catalog.build("scaffold"), "clients", UNIFORM) == "yes"
    assert hides(catalog.build("fedevg-witness"), "rows", UNIFORM) == "method.iterations=0"
    assert hides(catalog.build("propfair-loss"), "rows", UNIFORM) == "no"


def test_buffers_are_refused():
    assert "GroupNorm" in refused_model(Task(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))))
    assert refused_model(Task(nn.Sequential(nn.Linear(3, 2), nn.GroupNorm(1, 2)))) == ""


@pytest.mark.parametrize("privacy", [Privacy(noise=1.0, delta=0.01), Privacy(level="rows", noise=1.0, delta=0.01)])
def test_a_range_that_one_row_can_move_is_refused_and_one_that_was_declared_is_not(privacy):
    usual = table(torch.rand(40, 3))
    moved = table(torch.cat([torch.full((1, 3), 9.0), usual.columns["x"][1:]]))
    assert not torch.equal(torch.as_tensor(usual.inputs.high), torch.as_tensor(moved.inputs.high))
    known = replace(usual, declared=Inputs((3,), 2, 0.0, 10.0))
    algorithm = catalog.build("fedevg-witness", {"iterations": 0}, mixing="uniform")

    def tried(federation, inputs):
        task = Task(lambda: TwoNN(inputs=3, hidden=4, classes=2), inputs=inputs)
        return shield(algorithm, privacy, task, federation, Plan(2, 1.0), Training())

    with pytest.raises(FedchordError, match="between the smallest and the largest values of all training rows"):
        tried(usual, usual.inputs)
    assert tried(known, known.inputs).task.inputs.high == 10.0
    plain = Task(lambda: TwoNN(inputs=3, hidden=4, classes=2))  # who makes no samples is told no range
    assert shield(catalog.build("fedavg", mixing="uniform"), privacy, plain, usual, Plan(2, 1.0), Training())


def table(x):
    """Two clients of sixteen training rows and four test rows."""
    train, test, none = torch.arange(32).split(16), torch.arange(32, 40).split(4), (torch.arange(0),) * 2
    columns = {"x": x, "y": torch.arange(40) % 2}
    return Federation("table", columns, 2, Ragged.of(train), Ragged.of(none), Ragged.of(test), ("a", "b"))
