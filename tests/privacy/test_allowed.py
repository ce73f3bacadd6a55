"""What methods release, and the lists made of it."""

from __future__ import annotations

import pytest
from torch import nn

from fedchord import Task, catalog
from fedchord.privacy.allowed import hides, refused, refused_model, released, summed

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
