import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedchord.check import FedchordError
from fedchord.core.task import Task
from fedchord.evaluation.landscape import Plane, Surface, surface


def test_the_plane_is_orthonormal_and_goes_through_the_models():
    generator = torch.Generator().manual_seed(0)
    first, second, third = torch.randn(3, 50, generator=generator)
    plane = Plane.through(first, second, third)
    assert float(plane.right @ plane.right) == pytest.approx(1, abs=1e-5)
    assert float(plane.up @ plane.up) == pytest.approx(1, abs=1e-5)
    assert float(plane.right @ plane.up) == pytest.approx(0, abs=1e-5)
    for model in (first, second, third):
        assert torch.allclose(plane.at(*plane.place(model)), model, atol=1e-4)
    assert plane.place(first) == pytest.approx((0, 0), abs=1e-5)
    assert plane.place(second) == pytest.approx((float((second - first).norm()), 0), abs=1e-4)


def test_the_surface_is_the_loss_of_the_models_on_the_plane():
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    task = Task(module)
    start = task.init(0)
    plane = Plane.through(start["theta"], task.fresh(1)["theta"], task.fresh(2)["theta"])
    batch = {"x": torch.randn(20, 3), "y": torch.randint(0, 2, (20,))}
    result = surface(task, plane, start["buffers"], batch, [-1.0, 0.0, 2.0], [0.0, 0.5])
    assert result.loss.shape == (2, 3)
    for row, up in enumerate((0.0, 0.5)):
        for column, right in enumerate((-1.0, 0.0, 2.0)):
            torch.nn.utils.vector_to_parameters(plane.at(right, up), module.parameters())
            expected = F.cross_entropy(module(batch["x"]), batch["y"])
            assert torch.allclose(result.loss[row, column], expected.detach(), atol=1e-5)


def test_flatness_of_a_bowl_by_hand():
    """For loss 3 + c (x^2 + y^2) the five points within distance 1 of the origin rise by 0, c, c, c, c: the mean is
    0.8 c."""
    axis = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    bowl = axis.unsqueeze(0) ** 2 + axis.unsqueeze(1) ** 2
    assert Surface(axis, axis, 3 + 2 * bowl).flatness(1.0) == pytest.approx(1.6)
    assert Surface(axis, axis, 3 + 5 * bowl).flatness(1.0) == pytest.approx(4.0)


def test_degenerate_planes_are_refused():
    a, b = torch.zeros(3), torch.tensor([1.0, 0.0, 0.0])
    with pytest.raises(FedchordError, match="landscape: the first two models are the same"):
        Plane.through(a, a, b)
    with pytest.raises(FedchordError, match="landscape: the three models lie on a line"):
        Plane.through(a, b, 2 * b)
