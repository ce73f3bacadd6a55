"""Recorded gradients: the bits of autograd, for modules that qualify, and autograd for all others."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedchord.core import captured
from fedchord.core.objective import Objective
from fedchord.core.task import Task
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute
from fedchord.models import ResNet, SmallConvNet, StackedLSTM, TwoCNN, TwoNN

MODELS = {
    "twonn": (lambda: TwoNN(12, 9, 4), (12,)),
    "twocnn": (lambda: TwoCNN(1, 8, 4, hidden=16), (1, 8, 8)),
    "smallconv": (lambda: SmallConvNet(1, 16, 4, width=8), (1, 16, 16)),
    "resnet": (lambda: ResNet(1, 4, width=8), (1, 8, 8)),
    "tanh": (lambda: nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 4)), (12,)),
    "relu in place": (lambda: nn.Sequential(nn.Linear(12, 5), nn.ELU(inplace=True), nn.Linear(5, 4)), (12,)),
}


@pytest.fixture
def soon(monkeypatch):
    """Record at the second step on a shape."""
    monkeypatch.setattr(captured, "AFTER", 2)


def batches(shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[dict[str, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    return [
        {"x": torch.randn(n, *shape, generator=draw), "y": torch.randint(0, 4, (n,), generator=draw)} for n in sizes
    ]


def walked(task: Task, shape: tuple[int, ...], sizes: tuple[int, ...] = (6, 6, 6, 5, 6, 5, 5)) -> torch.Tensor:
    """Where some steps of gradient descent lead."""
    state = task.init(3)
    theta, buffers = state["theta"], state["buffers"]
    for batch in batches(shape, sizes):
        slope, buffers = task.grad(theta, buffers, batch, 0)
        theta -= 0.1 * slope
    return theta


def records(task: Task) -> list[bool]:
    """For each shape that was decided on, whether there is a record."""
    return [] if task._captured is None else [found is not None for found in task._captured._found.values()]


def broken(traced, given):
    raise RuntimeError("no such form")


@pytest.mark.parametrize("form", ["_interpreted", "_called"])
@pytest.mark.parametrize("name", MODELS)
def test_the_record_gives_the_bits_of_autograd(soon, monkeypatch, name, form):
    make, shape = MODELS[name]
    other = {"_interpreted": "_called", "_called": "_interpreted"}[form]
    monkeypatch.setattr(captured, other, broken)
    torch.manual_seed(0)
    module = make()
    recording, plain = Task(module, dense=False), Task(module, dense=False)
    plain._captured = None
    assert torch.equal(walked(recording, shape), walked(plain, shape))
    possible = form == "_called" or name not in ("twocnn", "smallconv", "resnet")  # slopes of convolutions take a mask
    assert records(recording) == [possible, possible]  # batches of 6, and of 5


def test_a_loop_over_time_keeps_its_bits(soon):
    module = StackedLSTM(vocabulary=7, classes=4, embedding=3, hidden=5)
    words = [{"x": batch["x"].abs().mul(3).long() % 7, "y": batch["y"]} for batch in batches((6,), (5, 5, 5, 5))]
    ends = []
    for recording in (True, False):
        task = Task(module)
        task._captured = task._captured if recording else None
        theta, buffers = task.init(0).values()
        for batch in words:
            theta -= task.grad(theta, buffers, batch, 0)[0]
        ends.append(theta)
    assert torch.equal(*ends)


def branching() -> nn.Module:
    """A module that passes for one of the library's and branches on values."""

    class Branching(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y if y.sum() > 0 else -y

    Branching.__module__ = "fedchord.models.branching"
    return Branching(12, 4)


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 4))
    module[1].register_forward_hook(lambda part, given, made: made + 1)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12), nn.Linear(12, 4))
    module[2].weight = module[0].weight
    return module


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(12, 5), nn.Tanh(), nn.Linear(5, 4))
    module[0].weight.requires_grad_(False)
    return module


class Own(nn.Linear):
    """Somebody's own layer."""


@pytest.mark.parametrize(
    "make",
    [
        hooked,
        tied,
        frozen,
        lambda: Own(12, 4),
        lambda: nn.Sequential(nn.Linear(12, 4), nn.Dropout(0.5)),
        lambda: nn.Sequential(nn.Linear(12, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)),
    ],
)
def test_other_modules_are_left_to_autograd(soon, make):
    task = Task(make(), dense=False)
    walked(task, (12,))
    assert task._captured is None and records(task) == []


def test_a_branch_on_values_is_left_to_autograd(soon):
    torch.manual_seed(0)
    module = branching()
    recording, plain = Task(module, dense=False), Task(module, dense=False)
    plain._captured = None
    assert torch.equal(walked(recording, (12,)), walked(plain, (12,)))
    assert records(recording) == [False, False]


def test_an_objective_or_a_call_of_ones_own_is_left_to_autograd():
    module = TwoNN(12, 9, 4)
    own = Objective("own", lambda outputs, batch: (outputs.sum(1), None), lambda o, b: (o, b["y"]), ("top1",))
    assert Task(module, own)._captured is None
    assert Task(module, apply=lambda module, batch: module(batch["x"]))._captured is None


def wrong(form):
    """A form whose slopes are a little longer."""

    def made(traced, given):
        record = form(traced, given)
        return lambda *flat: [slope * (1 + 1e-6) for slope in record(*flat)]

    return made


def test_where_the_interpreter_has_other_bits_the_calls_serve(soon, monkeypatch):
    torch.manual_seed(0)
    module = TwoNN(12, 9, 4)
    monkeypatch.setattr(captured, "_interpreted", wrong(captured._interpreted))
    recording, plain = Task(module, dense=False), Task(module, dense=False)
    plain._captured = None
    assert torch.equal(walked(recording, (12,)), walked(plain, (12,)))
    assert records(recording) == [True, True]


def test_a_record_with_other_bits_is_not_used(soon, monkeypatch):
    torch.manual_seed(0)
    module = TwoNN(12, 9, 4)
    for form in ("_interpreted", "_called"):
        monkeypatch.setattr(captured, form, wrong(getattr(captured, form)))
    recording, plain = Task(module, dense=False), Task(module, dense=False)
    plain._captured = None
    assert torch.equal(walked(recording, (12,)), walked(plain, (12,)))
    assert records(recording) == [False, False]


def test_long_lists_are_left_to_autograd(soon, monkeypatch):
    monkeypatch.setattr(captured, "MOST_OPERATIONS", 5)
    task = Task(TwoNN(12, 9, 4), dense=False)
    walked(task, (12,))
    assert records(task) == [False, False]


@pytest.mark.parametrize("method", ["fedavg", "superfed-mm", "scaffold"])
def test_a_run_is_the_same_with_and_without(monkeypatch, method):
    run = ("data=digits", "clients=4", "cohort=2", "rounds=3", "model=twocnn", f"method={method}", "executor=serial")
    found = []
    for after in (2, 10**9):
        monkeypatch.setattr(captured, "AFTER", after)
        found.append(execute(RunConfig.from_pairs([*run, "momentum=0.9"]))["metrics"])
    assert found[0] == found[1]
