"""Kernels of torch without a public name: their stand-ins beside torch.optim and autograd, and a run without them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fedchord import Task, Training, federate, load, method, simulate
from fedchord.core import fused
from fedchord.data import Iid
from fedchord.models import TwoNN

OFF = {"nesterov": False, "maximize": False, "is_first_step": False}
PRIVATE = ("_fused_sgd_", "_fused_adam_", "_log_softmax", "_log_softmax_backward_data")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A torch that has none of the private names (but for what its own inference mode is made of)."""
    for name in PRIVATE:
        monkeypatch.delattr(torch, name)
    importlib.reload(fused)
    fused.inference = torch.inference_mode
    yield
    monkeypatch.undo()
    importlib.reload(fused)
    assert fused.sgd is torch._fused_sgd_


def slopes(steps: int, size: int = 7) -> list[Tensor]:
    return list(torch.randn(steps, size, generator=torch.Generator().manual_seed(3)))


@pytest.mark.parametrize(("decay", "momentum"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.9), (0.1, 0.9)])
def test_sgd_is_that_of_torch_optim(bare: None, decay: float, momentum: float) -> None:
    theirs = torch.ones(7, requires_grad=True)
    optimiser = torch.optim.SGD([theirs], lr=0.3, momentum=momentum, weight_decay=decay)
    value, velocity = torch.ones(7), [torch.zeros(7)] if momentum else []
    for slope in slopes(4):
        theirs.grad = slope.clone()
        optimiser.step()
        fused.sgd([value], [slope], velocity, weight_decay=decay, momentum=momentum, lr=0.3, dampening=0.0, **OFF)
    torch.testing.assert_close(value, theirs.detach(), rtol=1e-6, atol=1e-6)


def test_a_share_of_a_step_is_that_of_the_kernel() -> None:
    """Dampening from the first step on, which torch.optim does not have: compared with the kernel itself."""
    values, velocities = [torch.ones(7), torch.ones(7)], [torch.zeros(7), torch.zeros(7)]
    for slope in slopes(4):
        for step, value, velocity in zip((fused.sgd, fused._sgd), values, velocities, strict=True):
            step([value], [slope], [velocity], weight_decay=0.1, momentum=0.9, lr=0.3, dampening=0.4, **OFF)
    torch.testing.assert_close(values[0], values[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_that_of_torch_optim(bare: None, decay: float) -> None:
    theirs = torch.ones(7, requires_grad=True)
    optimiser = torch.optim.Adam([theirs], lr=0.02, betas=(0.5, 0.99), weight_decay=decay)
    value, first, second, count = torch.ones(7), torch.zeros(7), torch.zeros(7), torch.zeros(())
    for slope in slopes(4):
        theirs.grad = slope.clone()
        optimiser.step()
        count += 1
        settings = {"lr": 0.02, "beta1": 0.5, "beta2": 0.99, "weight_decay": decay, "eps": 1e-8}
        fused.adam([value], [slope], [first], [second], [], [count], **settings, amsgrad=False, maximize=False)
    torch.testing.assert_close(value, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_log_softmax_by_autograd(bare: None) -> None:
    scores = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    toward = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    logs = scores - scores.exp().sum(1, keepdim=True).log()
    (slope,) = torch.autograd.grad((toward * logs).sum(), scores)
    found = fused.log_softmax(scores.detach(), 1, False)
    torch.testing.assert_close(found, logs.detach(), rtol=1e-6, atol=1e-6)
    back = fused.log_softmax_back(toward, found, 1, found.dtype)
    torch.testing.assert_close(back, slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_run_without_private_names(bare: None, optimiser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same model to rounding; and nothing but this file asks for the names."""

    def trained() -> Tensor:
        federation = federate(load("digits"), Iid(), num_clients=3, seed=1)
        task = Task(lambda: TwoNN(inputs=64, hidden=20, classes=10))
        training = Training(batch=20, lr=0.05, momentum=0.9 * (optimiser == "sgd"), optimiser=optimiser)
        *_, last = simulate(method("fedavg"), task, federation, rounds=2, training=training, executor="serial")
        return last.state.broadcast["theta"].clone()

    without = trained()
    monkeypatch.undo()
    importlib.reload(fused)
    torch.testing.assert_close(without, trained(), rtol=1e-3, atol=1e-4)
