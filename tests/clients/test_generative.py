"""FedCVAE and FedCGAN beside plain torch: nn.Modules, backward, torch.optim.Adam, torch.distributions, scipy."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from fedchord import catalog, rng
from fedchord.check import FedchordError
from fedchord.clients.generative import FedCgan, FedCvae, balanced, cross_entropy, divergence, squared_error
from fedchord.core.local import local_round
from fedchord.core.rules import ClientRule, Phase, RoundInfo, Visit
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data import Inputs
from fedchord.data.federation import Federation, Ragged
from fedchord.engine.simulate import simulate
from fedchord.experiments.config import RunConfig
from fedchord.models import Cgan, Cvae, TwoNN

CLASSES, SHAPE, LATENT, SEED = 3, (1, 6, 5), 4, 5
TRAINING = Training(epochs=2, weight_decay=0.01, eps=1e-4)  # a larger eps: Adam would magnify rounding


def images(sizes: list[int], shape: tuple[int, int, int] = SHAPE, seed: int = 0, low: float = 0.0) -> Federation:
    """Clients of random images between `low` and 1; a row of each is a test row."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes) + len(sizes)
    x = low + (1 - low) * torch.rand(total, *shape, generator=generator)
    y = torch.randint(CLASSES, (total,), generator=generator)
    order, rows, tests = torch.arange(total), [], []
    for size in sizes:
        rows.append(order[:size])
        tests.append(order[size : size + 1])
        order = order[size + 1 :]
    nothing = Ragged.of([torch.zeros(0, dtype=torch.int64)] * len(sizes))
    names = tuple(f"client {i}" for i in range(len(sizes)))
    return Federation("images", {"x": x, "y": y}, CLASSES, Ragged.of(rows), nothing, Ragged.of(tests), names)


FEDERATION = images([11, 6])


def cvae() -> Cvae:
    return Cvae(SHAPE, CLASSES, 4, LATENT)


def cgan() -> Cgan:
    return Cgan(SHAPE, CLASSES, 4, LATENT)


def vector(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def drawn(make: Any, key: int) -> Any:
    with rng.seeded(key):
        return make()


def batches(client: int, size: int, key: int, epochs: int = 2) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The batches of a client's round, each with the key of its step."""
    stream = ClientStream(FEDERATION, client, size, rng.key(SEED, "batches", client, 0))
    for t, batch in enumerate(stream.batches(0, Phase(epochs=epochs))):
        here = rng.fold(rng.fold(key, 0), t)
        assert isinstance(here, int)
        yield here, batch["x"], batch["y"]


def upload(rule: ClientRule, make: Any, client: int = 0) -> Tensor:
    """What the library's client uploads in the first round."""
    task, training = Task(make), rule.local(TRAINING)
    info = RoundInfo(0, 1, 2, 2, training.lr, training.epochs, 1)
    stream = ClientStream(FEDERATION, client, training.batch, rng.key(SEED, "batches", client, 0))
    shared, key = task.init(3), rng.key(SEED, "local", client, 0)
    sent, kept, _ = local_round(rule, task, training, shared, {}, stream, info, client, key)
    assert kept == {}
    return sent.mix["theta"]


# -- formulas ----------------------------------------------------------------------------------------------------------


def test_divergence_against_torch_and_an_integral() -> None:
    mean, spread = torch.tensor([[0.3, -1.2], [0.0, 2.0]]), torch.tensor([[0.5, -1.0], [0.0, 1.5]])
    known = kl_divergence(Normal(mean, (spread / 2).exp()), Normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(divergence(mean, spread), known)
    assert divergence(torch.zeros(1, 3), torch.zeros(1, 3)).item() == 0
    q, p = scipy.stats.norm(-1.2, np.exp(-0.5)), scipy.stats.norm(0, 1)
    integral, _ = scipy.integrate.quad(lambda z: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), -8, 6)
    assert divergence(torch.tensor([[-1.2]]), torch.tensor([[-1.0]])).item() == pytest.approx(integral, rel=1e-5)


def test_reconstructions_against_scipy() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, x = 3 * torch.randn(2, 1, 3, 2, generator=generator), torch.rand(2, 1, 3, 2, generator=generator)
    p, t = scipy.special.expit(logits.double().numpy()), x.double().numpy()
    bits = -(scipy.special.xlogy(t, p) + scipy.special.xlogy(1 - t, 1 - p)).sum((1, 2, 3))
    np.testing.assert_allclose(cross_entropy(logits, x).numpy(), bits, rtol=1e-5)
    np.testing.assert_allclose(squared_error(logits, x).numpy(), ((p - t) ** 2).sum((1, 2, 3)), rtol=1e-5)


def test_balanced_labels() -> None:
    assert balanced(3, 2).tolist() == [0, 0, 1, 1, 2, 2]


def test_rows_of_normal_numbers() -> None:
    many = rng.normal_rows(7, 4000, 5)
    torch.testing.assert_close(rng.normal_rows(7, 13, 5), many[:13], rtol=0, atol=0)  # padding changes nothing
    assert scipy.stats.kstest(many.flatten().numpy(), "norm").pvalue > 0.01
    correlations = np.corrcoef(many.t().numpy()) - np.eye(5)
    assert np.abs(correlations).max() < 0.06
    keys = rng.as_tensor([7, 8])
    traced = torch.func.vmap(lambda key: rng.normal_rows(key, 3, 5))(keys)
    torch.testing.assert_close(traced, torch.stack([many[:3], rng.normal_rows(8, 3, 5)]))


# -- FedCVAE -----------------------------------------------------------------------------------------------------------


def plain_cvae(
    rule: FedCvae, client: int = 0, loss_of_pixels: str = "sum", key: int = 3, start: Cvae | None = None
) -> Tensor:
    """One round with backward and torch.optim.Adam; returns the change of all parameters."""
    model = start or drawn(cvae, key)
    before = vector(model)
    adam = torch.optim.Adam(model.parameters(), rule.local_lr, (rule.beta1, 0.999), eps=1e-4, weight_decay=0.01)
    for here, x, y in batches(client, rule.batch, rng.key(SEED, "local", client, 0)):
        mean, spread = model.encoder(x, y).chunk(2, 1)
        q = Normal(mean, spread.exp().sqrt())
        made = model.decoder(q.loc + q.scale * rng.normal_rows(here, len(y), LATENT), y).sigmoid()
        score = F.mse_loss if rule.reconstruction == "gaussian" else F.binary_cross_entropy
        errors = score(made, x, reduction="none").flatten(1)
        error = errors.sum(1) if loss_of_pixels == "sum" else errors.mean(1)
        adam.zero_grad()
        (error + rule.beta * kl_divergence(q, Normal(0.0, 1.0)).sum(1)).mean().backward()
        adam.step()
    return vector(model) - before


@pytest.mark.parametrize("reconstruction", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("beta", [1.0, 0.25])
def test_a_round_of_the_auto_encoder(reconstruction: str, beta: float) -> None:
    rule = FedCvae(reconstruction=reconstruction, beta=beta, iterations=0, batch=4, local_lr=0.003)
    sent = upload(rule, cvae)
    torch.testing.assert_close(sent, plain_cvae(rule), atol=2e-5, rtol=1e-3)
    other = replace(rule, beta=beta + 1)
    assert (sent - plain_cvae(other)).abs().max() > 1e-3  # the oracle can tell
    assert (sent - plain_cvae(rule, loss_of_pixels="mean")).abs().max() > 1e-3


def test_the_gradient_of_the_auto_encoder() -> None:
    rule, task = FedCvae(beta=0.5, reconstruction="bernoulli"), Task(cvae)
    start, key = task.init(3), 77
    visit = Visit(task, start, {}, RoundInfo(0, 1, 2, 2, 0.1, 1, 1), 0, 6)
    x, y = FEDERATION.columns["x"][:6], FEDERATION.columns["y"][:6]
    slope = rule.direction(start, visit, {"x": x, "y": y}, key)["theta"]
    model = drawn(cvae, 3)
    total = torch.zeros(())
    for i in range(6):  # one image at a time, every term written out
        mean, spread = model.encoder(x[i : i + 1], y[i : i + 1])[0].split(LATENT)
        z = mean + spread.exp() ** 0.5 * rng.normal_rows(key, 6, LATENT)[i]
        p = torch.sigmoid(model.decoder(z[None], y[i : i + 1]))[0]
        total = total - (x[i] * p.log() + (1 - x[i]) * (1 - p).log()).sum()
        total = total + 0.5 * 0.5 * (mean**2 + spread.exp() - 1 - spread).sum()
    grads = torch.autograd.grad(total / 6, list(model.parameters()))
    torch.testing.assert_close(slope, torch.cat([g.flatten() for g in grads]), atol=1e-5, rtol=1e-4)
    padded = {"x": torch.cat([x, x[:2]]), "y": torch.cat([y, y[:2]]), "live": torch.tensor([1.0] * 6 + [0.0] * 2)}
    torch.testing.assert_close(rule.direction(start, visit, padded, key)["theta"], slope, atol=1e-6, rtol=1e-4)


def test_samples_of_the_auto_encoder() -> None:
    rule, task = FedCvae(spc=4), Task(cvae, inputs=Inputs(SHAPE, CLASSES, -2.0, 4.0))
    shared = task.init(3)
    made = rule.synthesise(task, shared, 9)
    assert made["x"].shape == (12, *SHAPE) and made["x"].dtype == torch.float32 and not made["x"].requires_grad
    assert made["y"].tolist() == [0] * 4 + [1] * 4 + [2] * 4 and made["y"].dtype == torch.int64
    with torch.no_grad():
        pixels = drawn(cvae, 3).decoder(rng.normal_rows(9, 12, LATENT), made["y"]).sigmoid()
    torch.testing.assert_close(made["x"], -2 + 6 * pixels)
    assert made["x"].min() > -2 and made["x"].max() < 4
    assert torch.equal(made["x"], rule.synthesise(task, shared, 9)["x"])
    assert not torch.equal(made["x"], rule.synthesise(task, shared, 10)["x"])


# -- FedCGAN -----------------------------------------------------------------------------------------------------------


def plain_cgan(rule: FedCgan, client: int = 0, wrong: bool = False, key: int = 3) -> tuple[Tensor, Tensor]:
    """One round with two torch.optim.Adam; returns the change of the generator and of the discriminator.

    `wrong` judges the fakes under other labels than they were asked for.
    """
    model = drawn(cgan, key)
    before = vector(model.generator), vector(model.discriminator)
    settings: dict[str, Any] = {"lr": rule.local_lr, "betas": (rule.beta1, 0.999), "eps": 1e-4, "weight_decay": 0.01}
    makes = torch.optim.Adam(model.generator.parameters(), **settings)
    judges = torch.optim.Adam(model.discriminator.parameters(), **settings)

    def loss(x: Tensor, y: Tensor, target: float) -> Tensor:
        outputs = model.discriminator(x)
        goal = torch.full((len(y),), target)
        if rule.auxiliary:
            classes = F.cross_entropy(outputs[:, 1:], y)
            return F.binary_cross_entropy_with_logits(outputs[:, 0], goal) + rule.auxiliary * classes
        logits = torch.stack([outputs[i, 0] + outputs[i, 1 + int(label)] for i, label in enumerate(y)])
        return F.binary_cross_entropy_with_logits(logits, goal)

    for here, x, y in batches(client, rule.batch, rng.key(SEED, "local", client, 0)):
        z = rng.uniform(rng.fold(here, 0), len(y) * LATENT).reshape(-1, LATENT) * 2 - 1
        asked = y if rule.labels == "own" else (CLASSES * rng.uniform(rng.fold(here, 1), len(y))).floor().long()
        told = (asked + 1) % CLASSES if wrong else asked
        fakes = model.generator(z, asked).sigmoid()
        judges.zero_grad()
        (loss(x, y, 1.0) + loss(fakes.detach(), told, 0.0)).backward()
        judges.step()
        makes.zero_grad()
        loss(fakes, told, 1.0).backward()
        makes.step()
    return vector(model.generator) - before[0], vector(model.discriminator) - before[1]


@pytest.mark.parametrize("labels", ["own", "all"])
@pytest.mark.parametrize("auxiliary", [0.0, 0.7])
def test_a_round_of_the_pair(labels: str, auxiliary: float) -> None:
    rule = FedCgan(labels=labels, auxiliary=auxiliary, iterations=0, batch=4, local_lr=0.003)
    sent, cut = upload(rule, cgan), Task(cgan).layout.select(["discriminator"])
    generator, discriminator = plain_cgan(rule)
    assert generator.abs().max() > 1e-3 and discriminator.abs().max() > 1e-3
    torch.testing.assert_close(sent[cut], discriminator, atol=2e-5, rtol=1e-3)
    torch.testing.assert_close(sent[: -len(cut)], generator, atol=2e-5, rtol=1e-3)
    off = plain_cgan(rule, wrong=True)
    assert (sent - torch.cat(off)).abs().max() > 1e-3  # the oracle can tell


def test_labels_of_fakes() -> None:
    y = torch.tensor([2, 2, 0] * 400)
    z, asked = FedCgan(labels="own").order(cgan(), y, 4)
    assert asked is y and z.shape == (1200, LATENT) and float(z.min()) >= -1 and float(z.max()) < 1
    assert scipy.stats.kstest(z.flatten().numpy(), scipy.stats.uniform(-1, 2).cdf).pvalue > 0.01
    again, drawn_labels = FedCgan(labels="all").order(cgan(), y, 4)
    assert torch.equal(z, again)
    counts = torch.bincount(drawn_labels, minlength=CLASSES)
    assert len(counts) == CLASSES and scipy.stats.chisquare(counts.numpy()).pvalue > 0.01
    short = FedCgan(labels="all").order(cgan(), y[:5], 4)
    assert torch.equal(short[1], drawn_labels[:5]) and torch.equal(short[0], z[:5])  # padding changes nothing


def test_losses_by_hand() -> None:
    """Outputs (s, c0, c1) = (0.5, 1, -2): the logit of class 0 is 1.5, of class 1 it is -1.5."""
    outputs, y = torch.tensor([[0.5, 1.0, -2.0]] * 2), torch.tensor([0, 1])
    real = FedCgan().judgement(outputs, y, 1)
    assert real.tolist() == pytest.approx([np.log(1 + np.exp(-1.5)), np.log(1 + np.exp(1.5))], rel=1e-5)
    fake = FedCgan().judgement(outputs, y, 0)
    assert fake.tolist() == pytest.approx([np.log(1 + np.exp(1.5)), np.log(1 + np.exp(-1.5))], rel=1e-5)
    classes = [-np.log(np.e / (np.e + np.exp(-2))), -np.log(np.exp(-2) / (np.e + np.exp(-2)))]
    both = FedCgan(auxiliary=2.0).judgement(outputs, y, 1)
    assert both.tolist() == pytest.approx([np.log(1 + np.exp(-0.5)) + 2 * c for c in classes], rel=1e-5)


def test_samples_of_the_generator() -> None:
    rule, task = FedCgan(spc=2), Task(cgan)
    shared = task.init(3)
    made = rule.synthesise(task, shared, 9)
    assert made["x"].shape == (6, *SHAPE) and made["y"].tolist() == [0, 0, 1, 1, 2, 2]
    z = rng.uniform(rng.fold(9, 0), 6 * LATENT).reshape(6, LATENT) * 2 - 1
    with torch.no_grad():
        torch.testing.assert_close(made["x"], drawn(cgan, 3).generator(z, made["y"]).sigmoid())
    assert float(made["x"].min()) >= 0 and float(made["x"].max()) <= 1


# -- both --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [FedCvae(iterations=0, batch=4), FedCgan(iterations=0, batch=4)])
def test_both_networks_are_averaged_by_size(rule: Any) -> None:
    make = cvae if isinstance(rule, FedCvae) else cgan
    algorithm = catalog.build("fedcvae" if isinstance(rule, FedCvae) else "fedcgan", {"iterations": 0, "batch": 4})
    first = drawn(make, rng.key(SEED, "model"))
    if isinstance(rule, FedCvae):
        moved = [plain_cvae(rule, client, start=copy.deepcopy(first)) for client in (0, 1)]
    else:
        moved = [torch.cat(plain_cgan(rule, client, key=rng.key(SEED, "model"))) for client in (0, 1)]
    expected = vector(first) + (11 * moved[0] + 6 * moved[1]) / 17
    settings: dict[str, Any] = {"rounds": 2, "seed": SEED, "training": TRAINING, "executor": "serial"}
    running = simulate(algorithm, Task(make), FEDERATION, **settings)
    result = next(running)
    running.close()
    torch.testing.assert_close(result.state.broadcast["theta"], expected, atol=2e-5, rtol=1e-3)
    assert result.bytes_up == 2 * 4 * len(expected)


def bars(sizes: list[int]) -> Federation:
    """Bytes: class 0 is bright above, class 1 on the left, class 2 is dark; client i has classes i and i + 1."""
    federation = images(sizes, (1, 8, 8))
    x, y = (federation.columns["x"] * 60).to(torch.uint8), federation.columns["y"]
    for client in range(len(sizes)):
        rows = federation.train[client]
        y[rows] = (client + torch.arange(len(rows)) % 2) % CLASSES
    x[y == 0, :, :4, :] += 180
    x[y == 1, :, :, :4] += 180
    federation.columns["x"] = x
    return federation


@pytest.mark.parametrize("name", ["fedcvae", "fedcgan"])
def test_it_learns_and_processes_are_serial_bit_for_bit(name: str) -> None:
    """Samples of every class are nearest to their own pattern, although no client has all classes."""
    federation, network = bars([40, 40, 40]), Cvae if name == "fedcvae" else Cgan
    algorithm = catalog.build(name, {"iterations": 6, "local_lr": 0.01, "batch": 16, "spc": 5})
    task = Task(lambda: network((1, 8, 8), CLASSES, width=4, latent=3), inputs=federation.inputs)
    settings: dict[str, Any] = {"rounds": 1000, "seed": 1, "workers": 2}
    with closing(simulate(algorithm, task, federation, executor="processes", **settings)) as running:
        second = [next(running) for _ in range(2)][-1].state.broadcast["theta"].clone()
    with closing(simulate(algorithm, task, federation, executor="serial", **settings)) as running:
        results = [next(running) for _ in range(20)]
    assert torch.equal(results[1].state.broadcast["theta"], second)
    made = algorithm.client.synthesise(task, results[-1].state.broadcast, 2)
    x, y = made["x"], made["y"]
    real = federation.batch(torch.arange(len(federation.columns["y"])))
    means = torch.stack([real["x"][real["y"] == label].mean(0) for label in range(CLASSES)])
    nearest = torch.cdist(x.flatten(1), means.flatten(1)).argmin(1)
    assert (nearest == y).float().mean() > 0.9
    assert x.reshape(CLASSES, 5, -1).std(1).max() > 0.01  # samples of a class differ


def test_iterations_replace_epochs() -> None:
    info = RoundInfo(0, 1, 2, 2, 0.1, 3, 1)
    for rule, moves in ((FedCvae, ("theta",)), (FedCgan, ("generator", "discriminator"))):
        visit = Visit(Task(cvae), {}, {}, info, 0, 6)
        assert rule(iterations=0).phases(visit) == (Phase(moves, 3),)
        assert rule(iterations=7).phases(visit) == (Phase(moves, 3, steps=7),)


def test_refusals() -> None:
    for make, line in [
        (lambda: FedCvae(spc=0), "FedCvae: spc must be a whole number of at least 1, got 0"),
        (lambda: FedCvae(beta=-1), "FedCvae: beta must be at least 0, got -1"),
        (lambda: FedCvae(reconstruction="l1"), "FedCvae: reconstruction must be one of gaussian, bernoulli, got 'l1'"),
        (lambda: FedCgan(labels="any"), "FedCgan: labels must be one of own, all, got 'any'"),
        (lambda: FedCgan(local_lr=0), "FedCgan: local_lr must be above 0, got 0"),
        (lambda: FedCgan().opening(Task(cvae), 1), "FedCgan: the model must be cgan, got Cvae"),
        (lambda: FedCvae().opening(Task(TwoNN(6, 5, 3)), 1), "FedCvae: the model must be cvae, got TwoNN"),
        (lambda: RunConfig(method="fedcvae", model="twonn"), "run: fedcvae trains the network cvae, got model=twonn"),
        (lambda: RunConfig(model="cgan:8"), "run: model=cgan:8 is for fedcgan, got method=fedavg"),
        (
            lambda: catalog.build("fedcvae", mixing="aaggff-s"),
            "Algorithm: AAggFFSilo mixes models and cannot be used with FedCvae, which exchanges samples",
        ),
    ]:
        with pytest.raises(FedchordError) as caught:
            make()
        assert str(caught.value) == line


def test_the_network_of_a_run() -> None:
    assert RunConfig(method="fedcgan").choices()["model"] == "cgan"
    config = RunConfig(method="fedcvae", model="cvae:8", data="mnist")
    federation = images([5, 5], (1, 28, 28))
    task = config.task(federation)
    assert task.layout.size == sum(p.numel() for p in Cvae((1, 28, 28), CLASSES, 8).parameters())
    assert task.inputs is not None and task.inputs.shape == (1, 28, 28)
