"""Witness energies against pooled data, full autograd through both means, and scipy's picture transforms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor, nn

from fedchord import catalog, rng
from fedchord.check import FedchordError
from fedchord.clients.witness import FEATURES, Witness
from fedchord.core.local import local_round
from fedchord.core.rules import Algorithm, RoundInfo, ServerRule, Update, Visit
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data import Dirichlet, Federation, Iid, federate, from_arrays, load
from fedchord.engine.simulate import simulate
from fedchord.mixing.static import BySize, Uniform
from fedchord.models import SmallConvNet, TwoNN
from fedchord.servers.langevin import STILL, Langevin

STEADY = {"turn": 0.0, "zoom": 0.0, "shift": 0.0}


@dataclass(frozen=True)
class Mixed(ServerRule):
    """Broadcasts the mixed gradient in place of the set, to be looked at."""

    takes: ClassVar[Mapping[str, str]] = {"num": "mix", "den": "mix"}

    def step(self, broadcast, update: Update, state, info: RoundInfo):
        den = update.mix["den"]
        return {"x": update.mix["num"] / den.reshape(*den.shape, *[1] * (broadcast["x"].ndim - 2))}, state


@cache
def rows(kind: str):
    """Digits, colour pictures or rows of numbers, with classes that differ and ranges of their own."""
    if kind == "digits":
        return load("digits")
    draw, shape = np.random.default_rng(3), {"colour": (3, 9, 12), "table": (7,)}[kind]
    y = draw.integers(0, 4, 600)
    x = draw.normal(y.reshape(-1, *[1] * len(shape)), 1.0, (600, *shape)) * 2 - 3
    return from_arrays(x.astype(np.float32), y)


def network(kind: str) -> nn.Module:
    if kind == "table":
        return TwoNN(7, 12, 4)
    return SmallConvNet(1, 8, 10, width=4) if kind == "digits" else SmallConvNet(3, (9, 12), 4, width=4)


def split(kind: str, alpha: float, clients: int = 6) -> Federation:
    return federate(rows(kind), Dirichlet(alpha, minimum=1), clients, seed=2)


def task_of(kind: str, federation: Federation) -> Task:
    return Task(lambda: network(kind), inputs=federation.inputs)


def mixed(rule: Witness, kind: str, federation: Federation, seed: int = 5) -> tuple[Tensor, Tensor]:
    """The set of the first round, and the mixed gradient that the engine finds for it."""
    algorithm, task = Algorithm(rule, BySize(), Mixed()), task_of(kind, federation)
    (result,) = simulate(algorithm, task, federation, rounds=1, seed=seed, executor="serial")
    return rule.opening(task, rng.key(seed, "model"))["x"], result.state.broadcast["x"]


def by_hand(rule: Witness, kind: str, federation: Federation, x: Tensor, seed: int = 5) -> Tensor:
    """n/2 times the gradient of ||mu_v - nu_v||^2 in float64, through nu too, over all training rows of all clients."""
    task, inputs, total = task_of(kind, federation), federation.inputs, torch.zeros(x.shape, dtype=torch.float64)
    batch = federation.batch(federation.train.rows)
    for k in range(rule.networks):
        key = rng.fold(rng.fold(rng.key(seed, "server", 0), 1), k)
        model = task.fresh(key)
        module = network(kind)
        module.load_state_dict(task.state_dict(model["theta"], model["buffers"]))
        low, high = (torch.as_tensor(end).double() for end in (inputs.low, inputs.high))
        made = (low + (high - low) * x.double()).flatten(0, 1)
        learnt(module, made.float(), torch.arange(len(x)).repeat_interleave(x.shape[1]), rule.learn)
        module.double().eval()
        body = module.body if hasattr(module, "body") else nn.Sequential(*list(module)[:-1])
        lift = directions(rule.match, body(made).detach(), rng.fold(key, 2))

        def phi(u: Tensor, body: nn.Module = body, lift: Tensor = lift) -> Tensor:
            psi = body(u)
            more = {"squares": [psi**2], "covariance": [(psi @ lift) ** 2]}
            if rule.match == "kernel":
                return torch.view_as_real(torch.exp(1j * (psi @ lift))).flatten(1)
            return torch.cat([psi, *more.get(rule.match, [])], 1)

        u = x.double().requires_grad_()
        loss = 0.0
        for v in range(len(x)):
            real, made = phi(batch["x"][batch["y"] == v].double()), phi(low + (high - low) * u[v])
            loss = loss + ((real.mean(0) - made.mean(0)) ** 2).sum() * x.shape[1] / 2
        total += torch.autograd.grad(loss, u)[0] / rule.networks
    return total


def learnt(module: nn.Module, x: Tensor, y: Tensor, steps: int) -> None:
    """Gradient descent on the set by torch's own optimiser."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()


def directions(match: str, psi: Tensor, key: int) -> Tensor:
    """Normal numbers over the width of the features, or over their spread around the mean."""
    drawn = rng.normal(key, (psi.shape[1], 512)).double()
    return drawn / (psi.var(0, correction=0).sum().sqrt() if match == "kernel" else psi.shape[1] ** 0.5)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


# -- the gradient --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [100.0, 0.01])
@pytest.mark.parametrize("kind", ["digits", "colour", "table"])
def test_the_mixed_gradient_is_that_of_the_pooled_data_whatever_the_split(kind, alpha):
    """With weights by size, everyone present and every row read; beside it the gradient of one client with all rows."""
    rule, federation = Witness(spc=3, iterations=0, batch=50, **STEADY), split(kind, alpha)
    held = [federation.columns["y"][federation.train[c]].unique() for c in range(6)]
    missing = sorted(federation.classes - len(classes) for classes in held)[3]
    assert missing <= 1 if alpha > 1 else missing >= 2
    together = replace(federation, train=type(federation.train).of([federation.train.rows]), client_names=("all",))
    x, found = mixed(rule, kind, federation)
    same, pooled = mixed(rule, kind, together)
    assert torch.equal(x, same)
    assert error(found, pooled.double()) < 2e-6
    assert error(found, by_hand(rule, kind, federation, x)) < 5e-6


OTHERS = [{"networks": 3}, {"match": "squares"}, {"match": "covariance"}, {"match": "kernel"}, {"learn": 3}, {"spc": 1}]


@pytest.mark.parametrize("change", OTHERS)
def test_other_features_match_autograd_too(change):
    rule, federation = Witness(**({"spc": 3, "iterations": 0, **STEADY} | change)), split("digits", 0.1)
    x, found = mixed(rule, "digits", federation)
    assert error(found, by_hand(rule, "digits", federation, x)) < 5e-6
    assert error(found, by_hand(Witness(spc=rule.spc), "digits", federation, x)) > 1e-3 or change == {"spc": 1}


def test_equal_weights_and_absent_clients_give_another_gradient():
    """The identity needs what it says: it fails where clients count alike, or some are away."""
    rule, federation = Witness(spc=3, iterations=0, **STEADY), split("digits", 1.0)
    federation = replace(
        federation,
        train=type(federation.train).of([federation.train[0][:9], *map(federation.train.__getitem__, range(1, 6))]),
    )
    x, found = mixed(rule, "digits", federation)
    expected = by_hand(rule, "digits", federation, x)
    assert error(found, expected) < 5e-6
    for mixing, cohort in ((Uniform(), 6), (BySize(), 5)):
        algorithm = Algorithm(rule, mixing, Mixed())
        settings = {"rounds": 1, "cohort": cohort, "seed": 5, "executor": "serial"}
        (result,) = simulate(algorithm, task_of("digits", federation), federation, **settings)
        assert error(result.state.broadcast["x"], expected) > 1e-3


def test_batches_weigh_what_was_read():
    """Two batches of 8 rows: the weight of a class is its share of the 16, its mean that of its rows among them."""
    federation, rule = split("digits", 1.0), Witness(spc=2, iterations=2, batch=8, **STEADY)
    task, info = task_of("digits", federation), RoundInfo(0, 1, 6, 6, 0.1, 1, key=9)
    shared = rule.opening(task, 4)
    stream = ClientStream(federation, 1, 8, 7)
    seen = list(stream.batches(0, rule.phases(None)[0]))
    y = torch.cat([batch["y"] for batch in seen])
    assert len(y) == 16
    upload, kept, _ = local_round(rule, task, rule.local(Training()), shared, {}, stream, info, 1, 3)
    assert kept == {}
    share = torch.bincount(y, minlength=10) / 16
    assert torch.allclose(upload.mix["den"], share[:, None].expand(10, 2)) and (share == 0).any()
    assert not upload.mix["num"][share == 0].any() and upload.mix["num"][share > 0].abs().amax((1, 2, 3, 4)).min() > 0


def test_the_round_gives_all_clients_one_network_and_each_round_another():
    federation, rule = split("digits", 1.0), Witness(networks=2)
    task, shared = task_of("digits", federation), {"x": torch.zeros(10, 10, 1, 8, 8)}
    starts = [
        rule.start(Visit(task, shared, {}, RoundInfo(r, 9, 6, 6, 0.1, 1, key=key), client, 5))["theta"]
        for r, key, client in ((0, 1, 0), (0, 1, 4), (1, 2, 0))
    ]
    assert torch.equal(starts[0], starts[1]) and not torch.equal(starts[0], starts[2])
    assert not torch.equal(starts[0][0], starts[0][1])


def test_random_directions_tell_as_a_gaussian_kernel_does():
    """||mu - nu||^2 over the number of directions is near the distance of two means under exp(-||a - b||^2 / 2 s^2)."""
    one, other = torch.randn(60, 12).double(), 0.4 + 1.3 * torch.randn(50, 12).double()
    width = 2.0
    lift = rng.normal(5, (12, 200_000)).double() / width
    means = [FEATURES["kernel"](rows, lift).mean(0) for rows in (one, other)]
    found = float((means[0] - means[1]).square().sum()) / 200_000
    near = [torch.exp(-(torch.cdist(a, b) ** 2) / (2 * width**2)).mean() for a, b in pairs(one, other)]
    assert found == pytest.approx(float(near[0] + near[1] - 2 * near[2]), rel=0.02)


def pairs(one: Tensor, other: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(one, one), (other, other), (one, other)]


@pytest.mark.parametrize("sides", [(9, 9), (8, 14)])
def test_pictures_are_varied_as_scipy_varies_them(sides):
    rule, x = Witness(turn=30.0, zoom=0.3, shift=0.2), torch.rand(2, 3, *sides)
    turn, zoom, right, down = (2 * rng.uniform(11, 4) - 1).double().tolist()
    angle, size = math.radians(30 * turn), 1 + 0.3 * zoom
    back = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]) / size
    middle = (np.array(sides) - 1) / 2
    moved = np.array([down * 0.2 * sides[0], right * 0.2 * sides[1]])
    offset = middle - back @ middle + moved
    found = rule._varied(x, 11)
    for n in range(2):
        for c in range(3):
            picture = x[n, c].double().numpy()
            expected = ndimage.affine_transform(picture, back, offset, order=1, mode="nearest")
            assert np.abs(found[n, c].numpy() - expected).max() < 1e-5
    assert torch.equal(Witness(**STEADY)._varied(x, 11), x)
    flat = torch.rand(4, 7)
    assert rule._varied(flat, 11) is flat


def test_real_and_synthetic_pictures_are_varied_alike():
    """A set that is the data has nothing to learn, whatever the draw: mu = nu."""
    x, y = torch.rand(20, 1, 8, 8).repeat(2, 1, 1, 1), torch.arange(2).repeat_interleave(20)
    data = from_arrays(x.numpy(), y.numpy())
    federation = federate(data, Iid(), 1, test=0.5, seed=1)
    rule = Witness(spc=10, iterations=0, turn=40.0)
    task = Task(lambda: SmallConvNet(1, 8, 2, width=4), inputs=federation.inputs)
    train = federation.batch(federation.train.rows)
    copies = torch.stack([federation.inputs.to_unit(train["x"][train["y"] == v])[:10] for v in range(2)])
    assert copies.shape[:2] == (2, 10)
    info = RoundInfo(0, 1, 1, 1, 0.1, 1, key=9)
    upload, _, _ = local_round(
        rule, task, rule.local(Training()), {"x": copies}, {}, ClientStream(federation, 0, 64, 1), info, 0, 3
    )
    noise = {"x": torch.rand(copies.shape)}
    other, _, _ = local_round(
        rule, task, rule.local(Training()), noise, {}, ClientStream(federation, 0, 64, 1), info, 0, 3
    )
    assert float(upload.mix["num"].norm()) < 1e-4 * float(other.mix["num"].norm())
    assert float(upload.log.means["discrepancy"]) < 1e-8 < float(other.log.means["discrepancy"])


# -- a set of each client's own ------------------------------------------------------------------------------------


def test_apart_clients_condense_alone():
    """The gradient of a client's samples is that of a federation where it is alone; of other samples it sends zero."""
    federation, rule = split("digits", 0.5, clients=3), Witness(spc=6, iterations=0, apart=True, **STEADY)
    task, info = task_of("digits", federation), RoundInfo(0, 1, 3, 3, 0.1, 1, key=rng.key(5, "server", 0))
    shared = rule.opening(task, rng.key(5, "model"))
    for client in range(3):
        stream = ClientStream(federation, client, 64, 7)
        upload, _, _ = local_round(rule, task, rule.local(Training()), shared, {}, stream, info, client, 3)
        num, den = upload.mix["num"], upload.mix["den"]
        counts = torch.bincount(federation.columns["y"][federation.train[client]], minlength=10)
        own = torch.arange(6) % 3 == client
        assert torch.allclose(den[:, own], (counts / counts.sum())[:, None].expand(10, 2)) and not den[:, ~own].any()
        assert not num[:, ~own].any()
        held = counts > 0
        alone = replace(federation, train=type(federation.train).of([federation.train[client]]), client_names=("one",))
        expected = by_hand(Witness(spc=2, iterations=0, **STEADY), "digits", alone, shared["x"][:, own])
        found = num[:, own] / den[:, own].reshape(10, 2, 1, 1, 1)
        assert error(found[held], expected[held]) < 5e-6


@pytest.mark.parametrize("heed", [0.0, 0.7])
def test_apart_clients_can_heed_each_other(heed):
    """Autograd on ||mu_iv - nu_iv||^2 + h ||nu_v - nu_iv||^2, nu_v fixed, over the samples that are no longer where
    they began; where all are there the second part is nothing."""
    federation = split("digits", 0.5, clients=3)
    rule = Witness(spc=6, iterations=0, apart=True, heed=heed, **STEADY)
    task, info = task_of("digits", federation), RoundInfo(0, 1, 3, 3, 0.1, 1, key=rng.key(5, "server", 0))
    shared = rule.opening(task, rng.key(5, "model"))
    x = shared["x"].clone()
    x[:5, 1:4] = 1 - x[:5, 1:4]  # of five classes samples 1 to 3 have moved, one of each client
    model = task.fresh(rng.fold(rng.fold(info.key, 1), 0))
    module = network("digits")
    module.load_state_dict(task.state_dict(model["theta"], model["buffers"]))
    body = module.body.double().eval()
    inputs = federation.inputs
    for client in range(3):
        stream = ClientStream(federation, client, 64, 7)
        upload, _, _ = local_round(rule, task, rule.local(Training()), shared | {"x": x}, {}, stream, info, client, 3)
        batch = federation.batch(federation.train[client])
        u = x[:, client::3].double().requires_grad_()
        loss = 0.0
        for v in batch["y"].unique().tolist():
            low, width = inputs.low, inputs.high - inputs.low
            mu, nu = body(batch["x"][batch["y"] == v].double()).mean(0), body(low + width * u[v]).mean(0)
            loss = loss + ((mu - nu) ** 2).sum() * 2 / 2
            if v < 5:
                everyones = body(low + width * x[v, 1:4].double()).mean(0).detach()
                loss = loss + heed * ((everyones - nu) ** 2).sum() * 2 / 2
        expected = torch.autograd.grad(loss, u)[0]
        held = upload.mix["den"][:, client] > 0
        found = upload.mix["num"][held, client::3] / upload.mix["den"][held, client::3].reshape(-1, 2, 1, 1, 1)
        assert error(found, expected[held]) < 5e-6


def test_heeding_others_needs_samples_of_ones_own():
    with pytest.raises(FedchordError, match="heed is for clients that condense apart"):
        Witness(heed=0.5)
    with pytest.raises(FedchordError, match="heed"):
        Witness(apart=True, heed=-1.0)


def test_apart_samples_of_absent_classes_are_replaced_by_others_of_the_class():
    """Two clients, each with half of the classes but for one that both have and one that nobody has."""
    federation = split("digits", 100.0, clients=2)
    y, held = federation.columns["y"], ({0, 1, 2, 3, 4}, {4, 5, 6, 7, 8})
    kept = [
        rows[torch.isin(y[rows], torch.tensor(sorted(held[c])))]
        for c, rows in enumerate(map(federation.train.__getitem__, (0, 1)))
    ]
    federation = replace(federation, train=type(federation.train).of(kept))
    algorithm, task = catalog.build("fedevg-witness", {"spc": 4, "apart": True}), task_of("digits", federation)
    first = algorithm.client.opening(task, rng.key(1, "model"))["x"]
    *_, last = simulate(algorithm, task, federation, rounds=3, seed=1, executor="serial")
    x, made = last.state.broadcast["x"], algorithm.client.synthesise(task, last.state.broadcast, 0)["x"]
    made = federation.inputs.to_unit(made).reshape(x.shape)
    for v in range(10):
        owners = [c for c in range(2) if v in held[c]]
        moved = [s for s in range(4) if s % 2 in owners]
        assert [s for s in range(4) if not torch.equal(x[v, s], first[v, s])] == moved
        expected = x[v][[moved[s % len(moved)] for s in range(4)]] if moved else x[v]
        assert torch.allclose(made[v], expected, atol=1e-6)
    told = "spc must be a multiple of 2, got 3"
    with pytest.raises(FedchordError, match=told):
        next(simulate(catalog.build("fedevg-witness", {"spc": 3, "apart": True}), task, federation, rounds=1))


# -- classes that nobody holds -------------------------------------------------------------------------------------


def test_a_class_that_nobody_holds_stays_still():
    """Eight classes are dealt to clients; samples of the other two keep their bits through noise and repulsion."""
    federation = split("digits", 0.5, clients=4)
    y = federation.columns["y"]
    kept = [rows[(y[rows] != 3) & (y[rows] != 8)] for rows in (federation.train[c] for c in range(4))]
    federation = replace(federation, train=type(federation.train).of(kept))
    algorithm = catalog.build("fedevg-witness", {"spc": 3, "delta": 0.05, "repel": 0.2, "batch": 16})
    task = task_of("digits", federation)
    first = algorithm.client.opening(task, rng.key(1, "model"))["x"]
    for result in simulate(algorithm, task, federation, rounds=4, cohort=2, seed=1, executor="serial"):
        x = result.state.broadcast["x"]
        assert torch.isfinite(x).all()
        assert torch.equal(x[3], first[3]) and torch.equal(x[8], first[8])
    moved = [v for v in range(10) if not torch.equal(x[v], first[v])]
    assert len(moved) >= 6 and not {3, 8} & set(moved)


def test_the_memory_of_a_class_waits_for_it():
    """Two classes; the second is away in the middle of three rounds and goes on as if that round had not been."""
    rule = Langevin(beta=0.1, beta_end=0.1, delta=0.0, repel=0.0, repel_end=0.0, adapt=0.9, momentum=0.5)
    g = torch.randn(3, 2, 4, 5, generator=torch.Generator().manual_seed(1))

    def walk(steps: list[tuple[int, float]]) -> Tensor:
        x, state = torch.full((2, 4, 5), 0.5), {}
        for t, there in steps:
            den = torch.tensor([1.0, there])[:, None].expand(2, 4)
            update = Update({"num": g[t] * den[..., None], "den": den})
            out, state = rule.step({"x": x}, update, state, RoundInfo(t, 3, 2, 2, 0.1, 1, key=t))
            x = out["x"]
        return x

    every, away, without = walk([(0, 1), (1, 1), (2, 1)]), walk([(0, 1), (1, 0), (2, 1)]), walk([(0, 1), (2, 1)])
    assert torch.equal(every[0], away[0])
    assert torch.equal(away[1], without[1]) and not torch.allclose(every[1], away[1])


# -- the whole method ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"iterations": 0, "batch": 30}, {"networks": 2, "match": "squares", "batch": 20}, {"apart": True, "spc": 3}],
)
def test_executors_agree_away_from_the_defaults(settings):
    federation, ends = split("digits", 0.5, clients=3), []
    for executor in ("serial", "processes", "vectorised"):
        algorithm = catalog.build("fedevg-witness", {"spc": 2} | settings)
        task = task_of("digits", federation)
        *_, last = simulate(algorithm, task, federation, rounds=2, seed=1, executor=executor, workers=2)
        ends.append(last.state.broadcast["x"])
    assert torch.equal(ends[0], ends[1])
    assert torch.allclose(ends[0], ends[2], atol=1e-4)


@pytest.mark.parametrize("alpha", [100.0, 0.01])
def test_the_set_is_useful_at_every_split(alpha):
    """The nearest class mean of the set classifies digits; noise, with which it began, does not."""
    federation = split("digits", alpha)
    task = Task(lambda: SmallConvNet(1, 8, 10, width=8), inputs=federation.inputs)
    algorithm = catalog.build("fedevg-witness", {"batch": 64})
    first = algorithm.client.synthesise(task, algorithm.client.opening(task, 1), 0)
    results = list(simulate(algorithm, task, federation, rounds=40, seed=1, executor="serial"))
    made = algorithm.client.synthesise(task, results[-1].state.broadcast, 0)
    assert made["x"].min() >= 0 and made["x"].max() <= 1

    def accuracy(batch: dict[str, Tensor]) -> float:
        means = torch.stack([batch["x"][batch["y"] == c].mean(0).flatten() for c in range(10)])
        test = federation.batch(federation.test.rows)
        return float((torch.cdist(test["x"].flatten(1), means).argmin(1) == test["y"]).double().mean())

    assert accuracy(made) > 0.7 > 0.3 > accuracy(first)


def test_the_server_of_the_method_adds_nothing():
    server = catalog.build("fedevg-witness").server
    assert isinstance(server, Langevin) and all(getattr(server, name) == 0 for name in STILL)


def test_mistakes_are_told():
    for wrong in ({"spc": 0}, {"match": "other"}, {"networks": 0}, {"batch": 0}, {"zoom": 1.0}, {"turn": -1}):
        with pytest.raises(FedchordError, match=next(iter(wrong))):
            Witness(**wrong)
    with pytest.raises(FedchordError, match=r"Witness: the task must tell what an example is"):
        Witness().opening(Task(lambda: network("digits")), 0)
    federation = split("digits", 1.0)
    headless = Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), inputs=federation.inputs)
    with pytest.raises(FedchordError, match="Sequential has no layer called head"):
        next(simulate(catalog.build("fedevg-witness"), headless, federation, rounds=1, executor="serial"))
