"""Models: published parameter counts, shapes, names, gradients, and errors in one line."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from helpers.networks import RECURRENT, TINY, inputs
from torch import nn

from fedchord.check import FedchordError
from fedchord.models import MODELS, LogisticRegression, TwoCNN, TwoNN, build
from fedchord.tensors import Layout


def tiny(name: str) -> nn.Module:
    return build(name, *TINY[name])


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Building draws from torch's global generator: every test starts it anew and gives it back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


CASES = [
    ("logreg", (15,), 1, 16),
    ("logreg", (1, 28, 28), 10, 7_850),
    ("logreg", (8, 8), 10, 650),
    ("twonn", (1, 28, 28), 10, 199_210),
    ("twonn", (28, 28), 10, 199_210),
    ("twonn", (1, 8, 8), 10, 64 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10),
    ("twocnn", (1, 28, 28), 10, 1_663_370),
    ("twocnn", (3, 32, 32), 10, 2_156_490),
    ("twocnn", (1, 8, 8), 10, 832 + 51_264 + 256 * 512 + 512 + 5_130),
    ("twocnn", (3, 4, 7), 2, 2_432 + 51_264 + 64 * 512 + 512 + 1_026),
]


@pytest.mark.parametrize(("name", "shape", "classes", "parameters"), CASES)
def test_counts_shapes_and_gradients(name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    model = build(name, shape, classes)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert not list(model.buffers())
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    scores = model(x)
    assert scores.shape == (3, classes)
    scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_each_sample_stands_alone(name: str) -> None:
    model = tiny(name).eval()
    x = inputs(name, 5)
    torch.testing.assert_close(model(x)[2:3], model(x[2:3]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_building_depends_on_the_global_generator_only(name: str) -> None:
    first = tiny(name)
    torch.manual_seed(0)
    again = tiny(name)
    other = tiny(name)
    same = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_names_of_parts() -> None:
    assert [n for n, _ in LogisticRegression(4, 2).named_children()] == ["flatten", "head"]
    assert [n for n, _ in TwoNN().named_children()] == ["flatten", "hidden1", "act1", "hidden2", "act2", "head"]
    modules = Layout.of_parameters(TwoCNN(1, 8, 10)).modules
    assert modules == ("body.conv1", "body.conv2", "body.hidden", "head")


@pytest.mark.parametrize("model", [LogisticRegression(4, 2), TwoNN(4, 3, 2)])
def test_linear_models_are_plain_stacks(model: nn.Sequential) -> None:
    assert isinstance(model, nn.Sequential)
    assert {type(layer) for layer in model} <= {nn.Flatten, nn.Linear, nn.ReLU}
    assert type(model).forward is nn.Sequential.forward
    assert all(layer.bias is not None for layer in model if isinstance(layer, nn.Linear))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_head_that_layout_can_select(name: str) -> None:
    layout = Layout.of_parameters(tiny(name))
    head = layout.select(["head"])
    assert head[-1] == layout.size - 1
    assert layout.modules[-1] == "head"


def test_twonn_by_hand() -> None:
    model = TwoNN(6, 5, 4)
    w1, b1, w2, b2, w3, b3 = (p.detach() for p in model.parameters())
    x = torch.randn(7, 2, 3, generator=torch.Generator().manual_seed(0))
    hidden = (x.reshape(7, 6) @ w1.t() + b1).clamp_min(0)
    expected = (hidden @ w2.t() + b2).clamp_min(0) @ w3.t() + b3
    torch.testing.assert_close(model(x), expected)


def test_twocnn_by_hand() -> None:
    model = TwoCNN(2, 8, 3, hidden=5)
    w1, b1, w2, b2, w3, b3, w4, b4 = (p.detach() for p in model.parameters())
    x = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(0))

    def stage(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """A convolution as unfolded patches times weights, then ReLU and 2x2 maxima."""
        n, _, side, _ = x.shape
        patches = nn.functional.unfold(x, 5, padding=2)
        y = (w.flatten(1) @ patches + b[:, None]).reshape(n, len(w), side, side).clamp_min(0)
        return y.reshape(n, len(w), side // 2, 2, side // 2, 2).amax((3, 5))

    features = stage(stage(x, w1, b1), w2, b2).flatten(1)
    expected = (features @ w3.t() + b3).clamp_min(0) @ w4.t() + b4
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in RECURRENT])
def test_models_copy_and_run_under_vmap(name: str) -> None:
    model = tiny(name).eval()
    x = inputs(name, 2, 3)
    torch.testing.assert_close(copy.deepcopy(model)(x[0]), model(x[0]))
    parameters = {n: torch.stack([p.detach(), 1.1 * p.detach()]) for n, p in model.named_parameters()}
    got = torch.func.vmap(lambda p, x: torch.func.functional_call(model, p, (x,)))(parameters, x)
    torch.testing.assert_close(got[0], model(x[0]), atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    torch.testing.assert_close(got[1], model(x[1]), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "message"),
    [
        ("two-cnn", (1, 8, 8), 10, "unknown model 'two-cnn'; did you mean 'twocnn'?"),
        ("twocnn", (28, 28), 10, r"TwoCNN: needs images of shape \(channels, height, width\), got \(28, 28\)"),
        ("twocnn", (1, 3, 8), 10, "TwoCNN: needs images of at least 4x4, got 3x8"),
        ("twonn", (), 10, r"twonn: shape must be sides of at least 1, got \(\)"),
        ("logreg", (1, 0), 10, r"logreg: shape must be sides of at least 1, got \(1, 0\)"),
        ("logreg", (4,), 0, "logreg: classes must be a whole number of at least 1, got 0"),
    ],
)
def test_what_does_not_fit_is_told(name: str, shape: tuple[int, ...], classes: int, message: str) -> None:
    with pytest.raises(FedchordError, match=message):
        build(name, shape, classes)


def test_constructors_check_their_arguments() -> None:
    with pytest.raises(FedchordError, match="TwoNN: hidden must be a whole number of at least 1, got 0"):
        TwoNN(hidden=0)
    with pytest.raises(FedchordError, match=r"TwoCNN: hidden must be a whole number of at least 1, got 1.5"):
        TwoCNN(1, 8, 10, hidden=1.5)  # type: ignore[arg-type]
    with pytest.raises(FedchordError, match="LogisticRegression: inputs must be"):
        LogisticRegression(0, 2)
