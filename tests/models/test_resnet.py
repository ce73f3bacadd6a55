"""ResNet, MobileNet, the small ConvNet and their parts, beside networks written out by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedchord.check import FedchordError
from fedchord.models import MobileNet, ResNet, SmallConvNet
from fedchord.models.parts import SpectralLinear, groups, norm2d, stay
from fedchord.tensors import Layout

State = dict[str, Tensor]


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def shuffled(model: nn.Module) -> State:
    """Norm weights away from 1 and 0, so that they matter; the model's parameters by name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def grouped(x: Tensor, state: State, name: str, count: int) -> Tensor:
    """Group normalisation by its formula: (x - mean) / sqrt(var + 1e-5) per group, times weight, plus bias."""
    n, channels = x.shape[:2]
    parts = x.reshape(n, count, -1)
    centred = parts - parts.mean(-1, keepdim=True)
    parts = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    scale, shift = (state[f"{name}.{part}"].reshape(1, channels, 1, 1) for part in ("weight", "bias"))
    return parts.reshape(x.shape) * scale + shift


def convolved(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """A convolution with padding for its kernel, as patches times weights."""
    n, _, height, width = x.shape
    kernel = weight.shape[-1]
    patches = F.unfold(x, kernel, padding=kernel // 2, stride=stride)
    return (weight.flatten(1) @ patches).reshape(n, len(weight), -(-height // stride), -(-width // stride))


def blocked(x: Tensor, state: State, name: str, stride: int, counts: dict[int, int], act: nn.Module) -> Tensor:
    outputs = len(state[f"{name}.conv1.weight"])
    y = act(grouped(convolved(x, state[f"{name}.conv1.weight"], stride), state, f"{name}.norm1", counts[outputs]))
    y = grouped(convolved(y, state[f"{name}.conv2.weight"], 1), state, f"{name}.norm2", counts[outputs])
    if f"{name}.shortcut.conv.weight" in state:
        x = convolved(x, state[f"{name}.shortcut.conv.weight"], stride)
        x = grouped(x, state, f"{name}.shortcut.norm", counts[outputs])
    return act(x + y)


@pytest.mark.parametrize(
    ("depth", "activation", "act"), [(9, "relu", nn.ReLU()), (10, "silu", nn.SiLU()), (18, "relu", nn.ReLU())]
)
def test_resnet_by_hand(depth: int, activation: str, act: nn.Module) -> None:
    model = ResNet(2, 3, depth, width=8, activation=activation)
    state = shuffled(model)
    counts = {8: 2, 16: 4, 32: 8, 64: 16}  # four channels in a group
    x = torch.randn(3, 2, 12, 10)
    got = model(x)
    x = act(grouped(convolved(x, state["stem.conv.weight"], 2 if depth == 9 else 1), state, "stem.norm", 2))
    if depth == 9:
        padded = F.pad(x, (1, 1, 1, 1), value=-torch.inf)
        x = padded.unfold(2, 3, 2).unfold(3, 3, 2).amax((-2, -1))
    strides = (1, 1, 2, 2) if depth == 9 else (1, 2, 2, 2)
    for stage, stride in enumerate(strides, 1):
        x = blocked(x, state, f"body.stage{stage}_1", stride, counts, act)
        if depth == 18:
            x = blocked(x, state, f"body.stage{stage}_2", 1, counts, act)
    x = x.flatten(2).mean(2)
    if depth == 9:
        x = (x @ state["hidden.linear.weight"].t() + state["hidden.linear.bias"]).clamp_min(0)
    expected = x @ state["head.weight"].t() + state["head.bias"]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


def test_smallconv_by_hand() -> None:
    model = SmallConvNet(2, (9, 16), 3, width=4)
    state = shuffled(model)
    x = torch.randn(3, 2, 9, 16)
    got = model(x)
    for stage, count in ((1, 1), (2, 2), (3, 4)):
        x = convolved(x, state[f"body.conv{stage}.weight"], 1)
        x = grouped(x, state, f"body.norm{stage}", count).clamp_min(0)
        x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1))
    expected = x.flatten(1) @ state["head.weight"].t() + state["head.bias"]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


def test_mobilenet_by_hand() -> None:
    """The short plan with GroupNorm; a convolution per channel is that channel's own."""
    model = MobileNet(1, 3, plan="short", width=0.25, norm="group")
    state = shuffled(model)
    x = torch.randn(2, 1, 16, 12)
    got = model(x)
    x = grouped(convolved(x, state["stem.conv.weight"], 2), state, "stem.norm", 2).clamp_min(0)
    counts = {8: 2, 16: 4, 32: 8, 64: 16, 128: 16}
    for index, stride in enumerate((1, 2, 2, 1), 1):
        name = f"body.block{index}"
        kernels = state[f"{name}.depthwise.weight"]
        x = torch.cat([convolved(x[:, c : c + 1], kernels[c : c + 1], stride) for c in range(len(kernels))], 1)
        x = grouped(x, state, f"{name}.norm1", counts[len(kernels)]).clamp_min(0)
        x = torch.einsum("oi,nihw->nohw", state[f"{name}.pointwise.weight"][:, :, 0, 0], x)
        x = grouped(x, state, f"{name}.norm2", counts[x.shape[1]]).clamp_min(0)
    x = x.flatten(2).mean(2)
    x = (x @ state["hidden.linear.weight"].t() + state["hidden.linear.bias"]).clamp_min(0)
    expected = x @ state["head.weight"].t() + state["head.bias"]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)


def test_published_mobilenet_has_batch_statistics_and_stride_32() -> None:
    model = MobileNet(3, 5)
    assert sum("running_mean" in name for name, _ in model.named_buffers()) == 1 + 2 * 13
    assert model.body(model.stem(torch.zeros(1, 3, 64, 96))).shape == (1, 1_024, 2, 3)
    assert not list(MobileNet(3, 5, norm="group").buffers())


@pytest.mark.parametrize(
    ("channels", "count"), [(2, 1), (4, 1), (8, 2), (9, 1), (12, 3), (16, 4), (24, 6), (64, 16), (96, 16), (512, 16)]
)
def test_groups(channels: int, count: int) -> None:
    assert groups(channels) == count
    assert isinstance(norm2d("X", "group", channels), nn.GroupNorm)


@pytest.mark.parametrize("sides", [(3, 7), (7, 3), (1, 4), (4, 4)])
def test_spectral_head_against_singular_values(sides: tuple[int, int]) -> None:
    layer = SpectralLinear(*sides).double()
    x = torch.randn(5, sides[0], dtype=torch.float64)
    largest = torch.linalg.svdvals(layer.weight.detach())[0]
    torch.testing.assert_close(layer(x), x @ (layer.weight / largest).t() + layer.bias)
    assert torch.autograd.gradcheck(
        lambda weight: torch.func.functional_call(layer, {"weight": weight}, (x,)),
        layer.weight.detach().requires_grad_(),
    )


def test_spectral_head_of_models() -> None:
    model = ResNet(1, 3, width=4, activation="silu", spectral=True)
    assert Layout.of_parameters(model).modules[-1] == "head"
    assert not list(model.buffers())
    x = torch.rand(2, 1, 8, 8)
    scores = model(x)
    with torch.no_grad():
        model.head.weight.mul_(7)
    torch.testing.assert_close(model(x), scores)
    plain = SmallConvNet(1, 8, 3)
    assert type(plain.head) is nn.Linear
    assert type(SmallConvNet(1, 8, 3, spectral=True).head) is SpectralLinear


def test_options_of_resnet() -> None:
    x = torch.rand(2, 3, 16, 16)
    assert ResNet(3, 4, width=4, pool=2)(x).shape == (2, 4)
    assert ResNet(3, 4, width=4, pool=2).head.in_features == 4 * 32
    batch = ResNet(3, 4, width=4, norm="batch")
    assert len(list(batch.buffers())) == 3 * 12
    assert ResNet(3, 4, depth=18, width=4, stem="imagenet").stem(x).shape == (2, 4, 4, 4)


def test_weights_that_stay() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    stay(model)
    for part in model:
        part.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: ResNet(3, 10, depth=34), "ResNet: depth must be one of 9, 10, 18, got 34"),
        (lambda: ResNet(3, 10, width=0), "ResNet: width must be a whole number of at least 1, got 0"),
        (lambda: ResNet(3, 10, norm="layer"), "ResNet: norm must be one of group, batch, got 'layer'"),
        (lambda: ResNet(3, 10, activation="gelu"), "ResNet: activation must be one of relu, silu, got 'gelu'"),
        (lambda: ResNet(3, 10, stem="big"), "ResNet: stem must be one of plain, pooled, imagenet, got 'big'"),
        (lambda: MobileNet(3, 10, plan="v2"), "MobileNet: plan must be one of full, short, got 'v2'"),
        (lambda: MobileNet(3, 10, width=0.0), "MobileNet: width must be above 0, got 0.0"),
        (lambda: SmallConvNet(1, 7, 10), "SmallConvNet: needs images of at least 8x8, got 7x7"),
    ],
)
def test_what_does_not_fit_is_told(make: object, line: str) -> None:
    assert callable(make)
    with pytest.raises(FedchordError) as error:
        make()
    assert str(error.value) == line
