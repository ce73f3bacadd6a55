"""Pictures with their channels last in memory: the same gradients to rounding, the same bits in every executor."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedchord import Task, Training, method, simulate
from fedchord.core import fused
from fedchord.data import Federation, Ragged
from fedchord.models import MobileNet, SmallConvNet, TwoCNN

MODELS = {
    "twocnn": lambda: TwoCNN(3, 8, 4, hidden=16),
    "smallconv": lambda: SmallConvNet(3, 16, 4, width=8),
    "one channel": lambda: SmallConvNet(1, 16, 4, width=8),
    "mobilenet": lambda: MobileNet(3, 4, plan="short", width=0.25, norm="group"),
}


def rows(count: int, side: int = 16) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(count, 3, side, side, generator=draw)
    return {"x": x, "y": torch.randint(0, 4, (count,), generator=draw)}


def in_double(module: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The gradient by autograd in float64, with the channels first."""
    module = copy.deepcopy(module).double()
    loss = F.cross_entropy(module(batch["x"].double()), batch["y"])
    return torch.cat([slope.flatten() for slope in torch.autograd.grad(loss, list(module.parameters()))])


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_autograd(name):
    torch.manual_seed(0)
    module, batch = MODELS[name](), rows(6, 8 if name == "twocnn" else 16)
    batch["x"] = batch["x"][:, :1] if name == "one channel" else batch["x"]
    task = Task(module)
    theta, buffers = task.init(0).values()
    right = in_double(module, batch)
    found = task.grad(theta, buffers, batch, 0)[0].double()
    assert (found - right).norm() < 1e-5 * right.norm()
    seen: list[bool] = []
    first = next(part for part in task._module.modules() if isinstance(part, nn.Conv2d))
    first.register_forward_hook(lambda part, given, made: seen.append(made.stride(1) == 1 and made.shape[1] > 1))
    task.grad(theta, buffers, batch, 0)
    task.outputs(theta, buffers, batch)
    task.grad_x(torch.sum, theta, buffers, batch["x"])
    assert seen == [True, True, True]


def test_under_vmap_the_channels_stay_where_they_are():
    task, batch = Task(MODELS["twocnn"]), rows(6, 8)
    theta, buffers = task.init(0).values()
    seen: list[bool] = []

    def loss(point: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(fused.under_vmap())
        return F.cross_entropy(task.forward(point, buffers, {"x": x[None]}, training=True), y[None])

    slopes = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(theta, batch["x"], batch["y"])
    assert torch.allclose(slopes.mean(0), task.grad(theta, buffers, batch, 0)[0], rtol=1e-4, atol=1e-6)
    torch.func.grad(loss)(theta, batch["x"][0], batch["y"][0])
    assert seen == [True, False]


class Turned(nn.Module):
    """Somebody's own module that puts the channels last itself: so its slopes come with strides of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 5, 3), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x.contiguous(memory_format=torch.channels_last)).mean((2, 3)))


def federation() -> Federation:
    columns, own = rows(24, 8), torch.arange(24).split(8)
    none = Ragged.of([torch.zeros(0, dtype=torch.int64)] * 3)
    return Federation("random", columns, 4, Ragged.of(own), none, Ragged.of([r[:1] for r in own]), ("a", "b", "c"))


def walked(model: nn.Module, executor: str) -> torch.Tensor:
    """Where two rounds lead: one step of all rows of a client each."""
    training = Training(1, 0, 0.1, momentum=0.9, weight_decay=0.01)
    *_, last = simulate(
        method("fedavg"), Task(model), federation(), rounds=2, cohort=3, training=training, executor=executor
    )
    return last.state.broadcast["theta"]


def test_slopes_with_strides_of_their_own_are_followed_rightly():
    torch.manual_seed(0)
    module = Turned()
    found = walked(module, "serial")
    for _ in range(2):  # a round of FedAvg of one step each is a step on the mean of the gradients
        before = torch.cat([p.detach().flatten() for p in module.parameters()]).double()
        slope = torch.stack([in_double(module, federation().batch(torch.arange(8) + 8 * i)) for i in range(3)]).mean(0)
        nn.utils.vector_to_parameters((before - 0.1 * (slope + 0.01 * before)).float(), module.parameters())
    right = nn.utils.parameters_to_vector(module.parameters())
    assert torch.allclose(found, right.detach(), rtol=1e-4, atol=1e-6)


def test_executors_agree_to_the_bit():
    torch.manual_seed(0)
    module = MODELS["twocnn"]()
    serial = walked(module, "serial")
    assert torch.equal(serial, walked(module, "processes"))
    assert torch.allclose(serial, walked(module, "vectorised"), rtol=1e-4, atol=1e-6)
