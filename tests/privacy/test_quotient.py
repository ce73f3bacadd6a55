"""Synthetic sets under privacy of clients: weights stay with the clients, and a round is a step along a noised sum."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.remote import FEDERATION

from fedchord import Task, catalog, rng, simulate
from fedchord.check import FedchordError
from fedchord.core.round import Plan, open_run, round_info
from fedchord.core.rules import Algorithm, Update
from fedchord.core.training import Training
from fedchord.engine.work import Work
from fedchord.models import TwoNN
from fedchord.privacy import draws
from fedchord.privacy.quotient import undivided
from fedchord.privacy.terms import Privacy
from fedchord.servers.step import Step

SETS = {"fedevg-witness": {"iterations": 0}, "fedevg": {"swish": False, "spectral": False, "repel": 0, "repel_end": 0}}


def task() -> Task:
    return Task(lambda: TwoNN(inputs=64, hidden=20, classes=3), inputs=FEDERATION.inputs)


def algorithm_of(method: str) -> Algorithm:
    return catalog.build(method, SETS[method] | {"spc": 4}, mixing="uniform")


@pytest.mark.parametrize("method", SETS)
@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_a_round_moves_samples_along_the_clipped_and_noised_sum_of_numerators(method, noise):
    """By hand, from uploads of the plain rule: the weights of samples (den) are in nothing that is released."""
    plain, used, clip, plan = algorithm_of(method), task(), 0.02, Plan(5, 3, seed=4)
    work = Work.of(plain, used, FEDERATION, Training(), 4, "cpu")
    begun = open_run(plain, used, 4, plan)
    privacy = Privacy(noise=noise, clip=clip)
    first = next(
        simulate(
            plain, task(), FEDERATION, rounds=5, cohort=3, seed=4, training=Training(), executor="serial",
            privacy=privacy,
        )
    )  # fmt: skip
    info = round_info(plan, work.training, 4, 0, 3)
    total, cut = torch.zeros_like(begun.broadcast["x"], dtype=torch.float64), 0
    for client in first.cohort:
        num = work.run(client, begun.broadcast, None, info)[0].mix["num"].double()
        total += num * min(1.0, clip / float(num.norm()))
        cut += float(num.norm()) > clip
    assert cut == 3  # else nothing is seen of the clip
    g = (total + noise * clip * draws.keyed(info.key, "mix/num", tuple(total.shape))) / 3
    length = g.square().mean((2, 3, 4), keepdim=True).sqrt()
    step = torch.where(length > 0, g / length, 0.0)  # `adapt`, in the first round; nobody has rows of some class
    moved = begun.broadcast["x"].double() - 0.1 * step
    moved += plain.server.delta * rng.normal(info.key, tuple(moved.shape)).double()  # Langevin's own
    assert torch.allclose(first.state.broadcast["x"].double(), moved.clamp(0, 1), atol=1e-5)
    assert first.bytes_up == 3 * 4 * total.numel()  # float32 numerators and nothing else


@pytest.mark.parametrize("method", SETS)
def test_noise_in_a_denominator_would_throw_samples_about(method):
    """The negative control: with weights as small as their noise a quotient is arbitrarily long, a sum is not."""
    plain = replace(algorithm_of(method), server=replace(catalog.build(method).server, adapt=0.0, momentum=0.0))
    whole = undivided(plain)
    begun = open_run(plain, task(), 4, Plan(5, 3))
    info = round_info(Plan(5, 3), Training(), 4, 0, 3)
    num = 1e-3 * torch.randn(begun.broadcast["x"].shape, generator=torch.Generator().manual_seed(1))
    den = 1e-9 * torch.ones(3, 4)
    far, _ = plain.server.step(begun.broadcast, update(num=num, den=den), {}, info)
    near, _ = whole.server.step(begun.broadcast, update(num=num), {}, info)
    inside = (begun.broadcast["x"] > 0.1) & (begun.broadcast["x"] < 0.9)
    assert float((far["x"] - begun.broadcast["x"])[inside].abs().median()) > 0.1
    assert float((near["x"] - begun.broadcast["x"])[inside].abs().max()) < 0.06


def update(**parts: torch.Tensor) -> Update:
    return Update(parts)


def test_rules_without_quotients_stay_and_one_alone_is_refused():
    for name in ("fedavg", "scaffold", "fedcvae"):
        assert undivided(catalog.build(name)) == catalog.build(name)
    assert dict(undivided(algorithm_of("fedevg")).client.sends) == {"num": "mix"}
    with pytest.raises(FedchordError, match="Step takes theta and cannot be used with Witness, which sends num"):
        replace(undivided(algorithm_of("fedevg-witness")), server=Step())
