"""Parameters of every model, added up from layer shapes or known from publications, and the shapes of its outputs."""

from __future__ import annotations

import pytest
import torch

from fedchord.models import M5, MODELS, EfficientNetB0, MobileNet, ResNet, SmallConvNet, StackedLSTM, build


def conv(inputs: int, outputs: int, kernel: int) -> int:
    """Weights of a square convolution without bias."""
    return inputs * outputs * kernel * kernel


def norms(*channels: int) -> int:
    return 2 * sum(channels)


def linear(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def basic(inputs: int, outputs: int, shortcut: bool) -> int:
    """A basic block: two 3x3 convolutions with norms, and a 1x1 convolution with norm where there is a shortcut."""
    beside = conv(inputs, outputs, 1) + norms(outputs) if shortcut else 0
    return conv(inputs, outputs, 3) + conv(outputs, outputs, 3) + norms(outputs, outputs) + beside


def trunk(w: int) -> int:
    """Four stages of one block each."""
    return sum(
        [basic(w, w, False), basic(w, 2 * w, True), basic(2 * w, 4 * w, True), basic(4 * w, 8 * w, True)],
    )


def gates(width: int, embedding: int) -> int:
    """An LSTM layer: four gates with two bias vectors each."""
    return 4 * (width * embedding + width * width + 2 * width)


def separable(inputs: int, outputs: int) -> int:
    return 9 * inputs + norms(inputs) + inputs * outputs + norms(outputs)


SHORT = separable(32, 64) + separable(64, 128) + separable(128, 256) + separable(256, 512)

CASES = [
    ("smallconv", (1, 28, 28), 10, conv(1, 16, 3) + conv(16, 32, 3) + conv(32, 64, 3) + norms(16, 32, 64) + 5_770),
    ("resnet9", (3, 32, 32), 100, conv(3, 64, 3) + norms(64) + trunk(64) + linear(512, 256) + linear(256, 100)),
    ("resnet10", (3, 32, 32), 10, conv(3, 64, 3) + norms(64) + trunk(64) + linear(512, 10)),
    ("resnet10", (1, 64, 64), 11, conv(1, 64, 3) + norms(64) + trunk(64) + linear(512, 11)),
    ("resnet18", (3, 32, 32), 10, 11_173_962),  # the usual CIFAR-10 ResNet-18
    ("mobilenet", (3, 64, 64), 1_000, 4_231_976),  # Howard et al. (2017): 4.2 million
    ("mobilenet", (3, 64, 64), 200, 4_231_976 - 800 * 1_025),
    ("mobilenet-short", (3, 64, 64), 200, conv(3, 32, 3) + norms(32) + SHORT + linear(512, 256) + linear(256, 200)),
    (
        "vgg9",
        (1, 28, 28),
        62,
        sum(conv(i, o, 3) + o for i, o in [(1, 16), (16, 32), (32, 64), (64, 128), (128, 256), (256, 512)])
        + linear(512, 256)
        + linear(256, 62),
    ),
    ("leafconv", (3, 84, 84), 1, 3 * 32 * 9 + 3 * (32 * 32 * 9) + 4 * 64 + 801),
    ("efficientnet-b0", (3, 200, 200), 8, (5_288_548 - 1_281_000) + linear(1_280 * 49, 8)),  # Tan and Le's 5.3 million
    ("efficientnet-b0", (1, 64, 64), 8, (5_288_548 - 1_281_000) - 2 * 32 * 9 + linear(1_280 * 49, 8)),
    ("m5", (16_000,), 35, (80 + 1) * 64 + 193 * 64 + 193 * 128 + 385 * 256 + norms(64, 64, 128, 256) + linear(256, 35)),
    ("lstm-characters", (80,), 80, 80 * 8 + gates(256, 8) + gates(256, 256) + linear(256, 80)),
    ("lstm-characters", (80,), 90, 820_522 + 2 * 4 * 256),  # 820,522 where each layer has one bias vector (Keras)
    ("lstm-words", (10,), 10_000, 10_000 * 256 + 2 * gates(256, 256) + linear(256, 10_000)),
    ("lstm-words-200", (10,), 10_000, 10_000 * 200 + gates(256, 200) + gates(256, 256) + linear(256, 10_000)),
]


@pytest.mark.parametrize(("name", "shape", "classes", "parameters"), CASES)
def test_counts(name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    with torch.device("meta"):
        model = build(name, shape, classes)
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_numbers_in_the_docstrings() -> None:
    told = {
        SmallConvNet: ["29,178"],
        ResNet: ["5,055,140", "4,903,242", "11,173,962", "11,689,512"],
        MobileNet: ["4,231,976", "364,936"],
        EfficientNetB0: ["4,007,548", "4,509,316"],
        M5: ["150,819"],
        StackedLSTM: ["819,920", "6,182,672", "5,565,328"],
    }
    for model, numbers in told.items():
        assert all(number in (model.__doc__ or "") for number in numbers), model
    found = {f"{parameters:,}" for *_, parameters in CASES}
    assert found >= {"29,178", "5,055,140", "4,903,242", "364,936", "1,719,742", "29,569", "4,509,316", "150,819"}
    assert found >= {"819,920", "6,182,672", "5,565,328"}


def test_resnet10_is_about_five_million() -> None:
    """The thesis: about 5 x 10^6; with the map of 4x4 flattened into the head 4.98 million and shortcut norms."""
    with torch.device("meta"):
        mean, flat = ResNet(3, 10), ResNet(3, 10, pool=4)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (mean, flat)]
    assert sizes[1] - sizes[0] == 15 * 512 * 10
    assert all(4.9e6 <= size <= 5.0e6 for size in sizes)


def test_resnet18_with_the_published_stem() -> None:
    with torch.device("meta"):
        model = ResNet(3, 1_000, depth=18, stem="imagenet", norm="batch")
    assert sum(p.numel() for p in model.parameters()) == 11_689_512


@pytest.mark.parametrize("width", [4, 16, 64])
def test_width_scales_resnet(width: int) -> None:
    with torch.device("meta"):
        model = ResNet(1, 7, depth=10, width=width)
    assert sum(p.numel() for p in model.parameters()) == conv(1, width, 3) + norms(width) + trunk(width) + linear(
        8 * width, 7
    )


@pytest.mark.parametrize("name", MODELS)
def test_outputs_at_the_shown_shape(name: str) -> None:
    """On the meta device: the shapes of the thesis' inputs go through, without their cost."""
    entry = MODELS[name]
    with torch.device("meta"):
        model = build(name, entry.shape, entry.classes).eval()
        tokens = name.startswith("lstm")
        x = torch.zeros(2, *entry.shape, dtype=torch.int64 if tokens else torch.float32)
        steps = (10,) if "words" in name else ()
        assert model(x).shape == (2, *steps, entry.classes)
