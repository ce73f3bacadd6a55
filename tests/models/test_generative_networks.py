"""The generative networks: sizes of maps, parameter counts added up from layer shapes, labels, scores, errors."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from fedchord.check import FedchordError
from fedchord.models import GENERATIVE, Cgan, Cvae, build, check_name
from fedchord.models.generative import Decoder, Encoder, halvings


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_maps_are_halved_to_at_most_eight() -> None:
    assert halvings(28, 28) == [(28, 28), (14, 14), (7, 7)]
    assert halvings(32, 32) == [(32, 32), (16, 16), (8, 8)]
    assert halvings(64, 64) == [(64, 64), (32, 32), (16, 16), (8, 8)]
    assert halvings(9, 20) == [(9, 20), (5, 10), (3, 5)]
    assert halvings(2, 3) == [(2, 3), (1, 2)]  # one halving at least


def encoder(c: int, side: int, outputs: int, w: int, label: int) -> int:
    """28 and 32 pixels: 4x4 kernels c -> w -> 2w, two norms, linear from 2w maps of side / 4; 64 pixels: 4w maps more,
    of side / 8."""
    convs = [16 * c * w, 16 * w * 2 * w] + ([16 * 2 * w * 4 * w] if side == 64 else [])
    norms = 2 * (w + 2 * w + (4 * w if side == 64 else 0))
    flat = 4 * w * 8 * 8 if side == 64 else 2 * w * (side // 4) ** 2
    return label * w + sum(convs) + norms + flat * outputs + outputs


def decoder(c: int, side: int, classes: int, latent: int, w: int) -> int:
    convs = ([16 * 4 * w * 2 * w] if side == 64 else []) + [16 * 2 * w * w, 16 * w * c + c]
    norms = 2 * ((4 * w + 2 * w + w) if side == 64 else (2 * w + w))
    flat = 4 * w * 8 * 8 if side == 64 else 2 * w * (side // 4) ** 2
    return (latent + classes) * flat + sum(convs) + norms


@pytest.mark.parametrize("side", [28, 32, 64])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("width", [8, 16])
def test_counts_and_shapes(side: int, channels: int, width: int) -> None:
    shape, classes, latent = (channels, side, side), 7, 5
    cvae, cgan = Cvae(shape, classes, width, latent), Cgan(shape, classes, width, latent)
    assert count(cvae.encoder) == encoder(channels, side, 2 * latent, width, classes)
    assert count(cgan.discriminator) == encoder(channels, side, 1 + classes, width, 0)
    assert count(cvae.decoder) == count(cgan.generator) == decoder(channels, side, classes, latent, width)
    assert not list(cvae.buffers()) and not list(cgan.buffers())
    x, y = torch.rand(2, *shape), torch.tensor([6, 0])
    assert cvae.encoder(x, y).shape == (2, 2 * latent)
    assert cvae.decoder(torch.randn(2, latent), y).shape == x.shape
    assert cgan.discriminator(x).shape == (2, 1 + classes)
    assert cvae(x).shape == cgan(x).shape == (2, classes)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("cvae", (1, 28, 28), 10, 108_225),
        ("cvae", (3, 32, 32), 10, 137_091),
        ("cvae", (1, 64, 64), 11, 324_753),
        ("cvae", (3, 64, 64), 7, 309_331),
        ("cvae:64", (1, 28, 28), 10, 629_409),
        ("cvae:64", (3, 32, 32), 10, 744_867),
        ("cvae:64", (1, 64, 64), 11, 2_281_953),
        ("cvae:64", (3, 64, 64), 7, 2_220_259),
        ("cgan", (1, 28, 28), 10, 100_204),
        ("cgan", (3, 32, 32), 10, 126_670),
        ("cgan", (1, 64, 64), 11, 308_173),
        ("cgan", (3, 64, 64), 7, 276_427),
        ("cgan:64", (1, 28, 28), 10, 597_388),
        ("cgan:64", (3, 32, 32), 10, 703_246),
        ("cgan:64", (1, 64, 64), 11, 2_215_693),
        ("cgan:64", (3, 64, 64), 7, 2_088_715),
    ],
)
def test_documented_counts(name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    """The numbers of docs/synthetic.md."""
    assert count(build(name, shape, classes)) == parameters


@pytest.mark.parametrize("size", [(5, 5), (9, 20), (2, 3), (1, 17), (31, 30)])
def test_odd_sizes_come_back(size: tuple[int, int]) -> None:
    made = Decoder((2, *size), 3, 4, 4)(torch.randn(2, 4), torch.tensor([0, 2]))
    assert made.shape == (2, 2, *size)
    assert Encoder((2, *size), 3, 6, 4, conditioned=True)(made, torch.tensor([0, 2])).shape == (2, 6)


def test_a_label_is_a_plane_beside_the_image() -> None:
    """The first map with planes of one-hot labels beside the image, away from the border, where padding is zero."""
    net = Encoder((1, 16, 16), 3, 2, 4, conditioned=True)
    maps: list[Tensor] = []
    net.body.register_forward_pre_hook(lambda module, inputs: maps.append(inputs[0]))
    x, y = torch.rand(5, 1, 16, 16), torch.tensor([0, 1, 2, 2, 0])
    net(x, y)
    assert net.label is not None
    planes = F.one_hot(y, 3).float()[:, :, None, None].expand(-1, -1, 16, 16)
    taps = net.label.weight[:, :, None, None].expand(-1, -1, 4, 4) / 16
    whole = F.conv2d(torch.cat([2 * x - 1, planes], 1), torch.cat([net.first.weight, taps], 1), stride=2, padding=1)
    torch.testing.assert_close(maps[0][:, :, 1:-1, 1:-1], whole[:, :, 1:-1, 1:-1])
    assert not torch.allclose(maps[0], whole)


def test_encoder_and_decoder_are_both_told_the_class() -> None:
    net = Cvae((1, 8, 8), 3, 4, 2)
    x, z = torch.rand(1, 1, 8, 8), torch.randn(1, 2)
    seen = [net.encoder(x, torch.tensor([y])) for y in range(3)]
    made = [net.decoder(z, torch.tensor([y])) for y in range(3)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert not torch.allclose(seen[a], seen[b]) and not torch.allclose(made[a], made[b])


def test_scores_of_the_auto_encoder() -> None:
    net, x = Cvae((1, 8, 8), 3, 4, 2), torch.rand(4, 1, 8, 8)
    for y in range(3):
        label = torch.full((4,), y)
        mean, spread = net.encoder(x, label).chunk(2, 1)
        away = kl_divergence(Normal(mean, spread.exp().sqrt()), Normal(0.0, 1.0)).sum(1)
        error = F.mse_loss(net.decoder(mean, label).sigmoid(), x, reduction="none").sum((1, 2, 3))
        torch.testing.assert_close(net(x)[:, y], -error - away)


def test_scores_of_the_discriminator() -> None:
    net, x = Cgan((1, 8, 8), 3, 4, 2), torch.rand(4, 1, 8, 8)
    outputs = net.discriminator(x)
    torch.testing.assert_close(net(x), outputs[:, 1:] + outputs[:, :1])


@pytest.mark.parametrize("name", GENERATIVE)
def test_every_parameter_is_used_and_a_sample_stands_alone(name: str) -> None:
    net = GENERATIVE[name]((1, 8, 8), 3, width=4, latent=2)
    parts = [net.encoder, net.decoder] if isinstance(net, Cvae) else [net.discriminator, net.generator]
    x, z, y = torch.rand(3, 1, 8, 8), torch.randn(3, 2), torch.tensor([0, 2, 1])
    (parts[0](x, y).square().sum() + parts[1](z, y).square().sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
    torch.testing.assert_close(parts[0](x, y)[1:2], parts[0](x[1:2], y[1:2]), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(parts[1](z, y)[1:2], parts[1](z[1:2], y[1:2]), atol=1e-5, rtol=1e-4)


def test_the_mean_of_networks_is_a_network() -> None:
    """No statistics are left behind: averaging all there is in the state averages the parameters."""
    a, b = Cgan((1, 8, 8), 3, 4, 2), Cgan((1, 8, 8), 3, 4, 2)
    mean = copy.deepcopy(a)
    mean.load_state_dict({n: (a.state_dict()[n] + b.state_dict()[n]) / 2 for n in a.state_dict()})
    assert set(a.state_dict()) == {n for n, _ in a.named_parameters()}
    assert torch.isfinite(mean.generator(torch.randn(2, 2), torch.tensor([0, 1]))).all()


def test_refusals() -> None:
    for make, line in [
        (lambda: build("cvae", (6,), 3), "Cvae: needs images of shape (channels, height, width), got (6,)"),
        (lambda: build("cgan:0", (1, 8, 8), 3), "Cgan: width must be a whole number of at least 1, got 0"),
        (lambda: Cvae((1, 8, 8), 3, latent=0), "Cvae: latent must be a whole number of at least 1, got 0"),
        (lambda: check_name("cvae:wide"), "cvae: a width must follow the colon, got 'wide'"),
        (lambda: check_name("cvae:"), "cvae: a width must follow the colon, got ''"),
    ]:
        with pytest.raises(FedchordError) as caught:
            make()
        assert str(caught.value) == line
    with pytest.raises(FedchordError, match="did you mean 'cvae'"):
        check_name("cvea")
