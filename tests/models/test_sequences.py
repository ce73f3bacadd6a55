"""StackedLSTM, M5, VGG-9 and the ConvNet of LEAF, beside networks written out by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedchord.check import FedchordError
from fedchord.models import M5, VGG9, LeafConvNet, StackedLSTM, build


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def lstm_layer(x: Tensor, state: dict[str, Tensor], layer: int) -> Tensor:
    """An LSTM by its equations, one step at a time (gates in the order input, forget, cell, output)."""
    hidden = cell = torch.zeros(len(x), state[f"lstm.weight_hh_l{layer}"].shape[1])
    states = []
    for step in range(x.shape[1]):
        inner = x[:, step] @ state[f"lstm.weight_ih_l{layer}"].t() + state[f"lstm.bias_ih_l{layer}"]
        inner = inner + hidden @ state[f"lstm.weight_hh_l{layer}"].t() + state[f"lstm.bias_hh_l{layer}"]
        i, f, g, o = inner.chunk(4, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        states.append(hidden)
    return torch.stack(states, 1)


def test_lstm_by_hand() -> None:
    last, every = (StackedLSTM(11, 7, embedding=3, hidden=5, steps=steps) for steps in ("last", "all"))
    every.load_state_dict(last.state_dict())
    state = {name: parameter.detach() for name, parameter in last.named_parameters()}
    ids = torch.randint(11, (4, 6))
    x = state["embedding.weight"][ids]
    for layer in (0, 1):
        x = lstm_layer(x, state, layer)
    expected = x @ state["head.weight"].t() + state["head.bias"]
    torch.testing.assert_close(every(ids), expected)
    torch.testing.assert_close(last(ids), expected[:, -1])


def test_padding_on_the_right_changes_nothing_before_it() -> None:
    model = build("lstm-words", (6,), 12)
    ids = torch.randint(1, 12, (2, 6))
    padded = ids.clone()
    padded[:, 4:] = 0
    torch.testing.assert_close(model(ids)[:, :4], model(padded)[:, :4])
    assert not torch.allclose(model(ids)[:, 4:], model(padded)[:, 4:])


def test_m5_by_hand() -> None:
    model = M5(classes=3, width=4)
    state = model.state_dict()
    x = torch.randn(3, 1_500)
    got = model(x)
    y = x.unsqueeze(1)
    for stage in (1, 2, 3, 4):
        weight, bias = state[f"body.conv{stage}.weight"], state[f"body.conv{stage}.bias"]
        y = y.unfold(2, 80, 4) if stage == 1 else F.pad(y, (1, 1)).unfold(2, 3, 1)
        y = torch.einsum("nctk,ock->not", y, weight) + bias[:, None]
        mean, var = y.mean((0, 2), keepdim=True), y.var((0, 2), correction=0, keepdim=True)
        y = ((y - mean) / (var + 1e-5).sqrt()).clamp_min(0)
        y = y.unfold(2, 4, 4).amax(-1)
    expected = y.mean(2) @ state["head.weight"].t() + state["head.bias"]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    model.eval()
    torch.testing.assert_close(model(x), model(x.unsqueeze(1)))


def test_m5_lengths() -> None:
    """16,000 -> 3,981 -> 995 -> 248 -> 62 -> 15, as the docstring says; 1,100 samples are the fewest."""
    model = M5(width=2).eval()
    assert model.body(torch.zeros(1, 1, 16_000)).shape == (1, 8, 15)
    assert model.body[0](torch.zeros(1, 1, 16_000)).shape[-1] == 3_981
    assert model.body(torch.zeros(1, 1, 1_100)).shape == (1, 8, 1)
    with pytest.raises(RuntimeError):
        model.body(torch.zeros(1, 1, 1_099))
    assert not list(M5(norm="group").buffers())


def test_vgg9_by_hand() -> None:
    model = VGG9(1, (33, 16), 3, hidden=6)
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    x = torch.randn(2, 1, 33, 16)
    got = model(x)
    for index in range(1, 7):
        weight, bias = state[f"body.conv{index}.weight"], state[f"body.conv{index}.bias"]
        n, _, height, width = x.shape
        y = weight.flatten(1) @ F.unfold(x, 3, padding=1) + bias[:, None]
        x = y.reshape(n, len(weight), height, width).clamp_min(0)
        if index not in (3, 5):
            x = x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1))
    x = (x.flatten(1) @ state["body.hidden.weight"].t() + state["body.hidden.bias"]).clamp_min(0)
    torch.testing.assert_close(got, x @ state["head.weight"].t() + state["head.bias"], atol=1e-5, rtol=1e-4)


def test_vgg9_starts_with_signals_of_equal_size() -> None:
    """He et al. (2015): the standard deviation of the weights is sqrt(2 / inputs), the biases are 0; anew, too."""
    model = VGG9(1, 28, 10)
    for name in ("conv4", "conv5", "conv6", "hidden"):
        part = model.body.get_submodule(name)
        part.reset_parameters()
        assert float(part.weight.detach().std()) == pytest.approx((2 / part.weight[0].numel()) ** 0.5, rel=0.02)
        assert not part.bias.any()


def test_leaf_convnet_by_hand() -> None:
    model = LeafConvNet(3, 84)
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    x = torch.randn(2, 3, 84, 84)
    got = model(x)
    for stage, count in enumerate((32, 16, 8, 4), 1):
        n, _, height, width = x.shape
        y = (state[f"body.conv{stage}.weight"].flatten(1) @ F.unfold(x, 3, padding=1)).reshape(n, count, -1)
        y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        x = y.reshape(n, 32, height, width).unfold(2, 2, 2).unfold(3, 2, 2).amax((-2, -1)).clamp_min(0)
    assert x.shape == (2, 32, 5, 5)
    torch.testing.assert_close(got, x.flatten(1) @ state["head.weight"].t() + state["head.bias"], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "shape", "line"),
    [
        ("m5", (16_000, 2), "M5: needs waveforms of shape (samples,) or (1, samples), got (16000, 2)"),
        ("m5", (1_099,), "M5: needs waveforms of at least 1100 samples, got 1099"),
        ("lstm-words", (10, 2), "StackedLSTM: needs token ids of shape (length,), got (10, 2)"),
        ("vgg9", (1, 15, 28), "VGG9: needs images of at least 16x16, got 15x28"),
        ("vgg9", (28, 28), "VGG9: needs images of shape (channels, height, width), got (28, 28)"),
        ("leafconv", (3, 8, 84), "LeafConvNet: needs images of at least 16x16, got 8x84"),
        ("resnet10", (32, 32), "ResNet: needs images of shape (channels, height, width), got (32, 32)"),
    ],
)
def test_shapes_that_do_not_fit_are_told(name: str, shape: tuple[int, ...], line: str) -> None:
    with pytest.raises(FedchordError) as error:
        build(name, shape, 3)
    assert str(error.value) == line


def test_steps_are_last_or_all() -> None:
    with pytest.raises(FedchordError, match="StackedLSTM: steps must be one of last, all, got 'first'"):
        StackedLSTM(steps="first")
