"""FedEvg's client against plain torch loops, closed forms and exhaustive sums."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from helpers.federations import make_federation
from torch import Tensor, nn

from fedchord import catalog, rng, run
from fedchord.check import FedchordError
from fedchord.clients.energy import WATCHED, Energy, chosen
from fedchord.core.local import local_round
from fedchord.core.rules import Algorithm, Phase, RoundInfo, Visit
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data import Dirichlet, Inputs, Pathological, federate, load
from fedchord.data.federation import Block
from fedchord.engine.simulate import simulate
from fedchord.engine.vectorised import traced
from fedchord.mixing.static import BySize
from fedchord.models import SmallConvNet
from fedchord.models.parts import SpectralLinear
from fedchord.servers.langevin import Langevin

INFO = RoundInfo(round=2, rounds=9, num_clients=4, cohort=4, lr=0.01, epochs=1, key=77)
LABELS = torch.arange(10).repeat_interleave(3)


@cache
def digits(alpha: float = 1.0):
    return federate(load("digits"), Dirichlet(alpha), 4, seed=1)


def net() -> nn.Module:
    return SmallConvNet(1, 8, 10, width=4, activation="silu", spectral=True)


def task() -> Task:
    return Task(net, inputs=digits().inputs)


def visit_of(rule: Energy, shared: Tensor, own: dict, client: int = 0, task: Task | None = None):
    task = task or Task(net, inputs=digits().inputs)
    stream = ClientStream(digits(), client, rule.batch, 5)
    training = rule.local(Training(epochs=1))
    return local_round(rule, task, training, {"x": shared.unflatten(0, (10, -1))}, own, stream, INFO, client, 6)[:2]


# -- one visit -----------------------------------------------------------------------------------------------------


def by_hand(rule: Energy, module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """One visit with nn.Module, backward and torch.optim: what is sent, (num, den). The module is trained."""
    made = {"adam": lambda p: torch.optim.Adam(p, 0.01, (rule.beta1, 0.999), weight_decay=rule.weight_decay)}
    made["sgd"] = lambda p: torch.optim.SGD(p, 0.01, weight_decay=rule.weight_decay)
    optimiser = made[rule.optimiser](module.parameters())
    own, labels = x.clone(), LABELS

    def slope(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        u = u.clone().requires_grad_()
        f = torch.stack([module(row[None])[0, label] for row, label in zip(u, v, strict=True)])
        (g,) = torch.autograd.grad(f.sum(), u)
        return torch.maximum(torch.minimum(g, torch.tensor(rule.grad_clip)), torch.tensor(-rule.grad_clip)), f.detach()

    stream = ClientStream(digits(), 0, rule.batch, 5)
    phase = Phase(steps=rule.iterations) if rule.iterations else Phase(epochs=1)
    for t, batch in enumerate(stream.batches(0, phase)):
        key = rng.fold(rng.fold(6, 0), t)
        picked = rng.permutation(rng.fold(key, 0), 30)[: rule.chain]
        before, v = own[picked], labels[picked]
        u = before.clone()
        for r in range(rule.sgld):
            noise = rng.normal(rng.fold(key, r + 1), tuple(u.shape))
            u = (u + rule.gamma * slope(u, v)[0] + rule.sigma * noise).clip(0, 1)
        optimiser.zero_grad()
        real, chain = -module(batch["x"])[range(len(batch["y"])), batch["y"]], -module(u)[range(len(v)), v]
        loss = rule.pcd * (real.mean() - chain.mean()) + F.cross_entropy(module(batch["x"]), batch["y"])
        loss = loss + rule.lam * F.cross_entropy(module(before), v)
        loss = loss + rule.ridge * ((real**2).mean() + (chain**2).mean())
        loss.backward()
        optimiser.step()
        own[picked] = u
    g, f = slope(x, labels)
    weight = torch.tensor(
        [math.exp(math.copysign(1, value)) if rule.weights == "signed" else math.exp(value) for value in f]
    )
    return -g * weight[:, None, None, None], weight


RULES = {
    "defaults": Energy(spc=3, lr=0.01, chain=12, iterations=3, batch=16, beta1=0.5),
    "softmax": Energy(spc=3, lr=0.01, chain=12, iterations=3, batch=16, weights="softmax", sgld=3, gamma=0.3),
    "epochs": Energy(spc=3, lr=0.01, chain=40, iterations=0, batch=64, grad_clip=0.01, ridge=0.1, lam=1.0),
    "printed sign": Energy(spc=3, lr=0.01, chain=12, iterations=3, batch=16, pcd=-1.0, sigma=0.2, optimiser="sgd"),
}


@pytest.mark.parametrize("name", RULES)
def test_a_visit_is_the_plain_loop(name):
    rule, model = RULES[name], task()
    own = rule.init(model, {}, 3)
    module = net()
    module.load_state_dict(model.state_dict(own["theta"], own["buffers"]))
    x = rng.normal(4, (30, 1, 8, 8)).clamp(0, 1)
    first = copy.deepcopy(own["theta"])
    upload, kept = visit_of(rule, x, own, task=model)
    num, den = (part.unflatten(0, (10, 3)) for part in by_hand(rule, module, x))
    trained = nn.utils.parameters_to_vector(module.parameters()).detach()
    assert not torch.allclose(trained, first, atol=1e-3)
    assert torch.allclose(kept["theta"], trained, atol=2e-5)
    assert torch.allclose(upload.mix["den"], den, rtol=1e-4)
    assert torch.allclose(upload.mix["num"], num, atol=1e-4 * float(num.abs().max()))
    assert upload.mix["num"].abs().max() > 1e-4


def test_local_models_persist_or_are_drawn_anew_alike_for_all_clients():
    x = torch.rand(30, 1, 8, 8)
    keeps = Energy(spc=3)
    assert set(keeps.init(task(), {}, 1)) == {"theta", "buffers"}
    anew, model = Energy(spc=3, persistent=False), task()
    assert anew.init(model, {}, 1) == {}
    starts = [
        anew.start(Visit(model, {"x": x[None]}, {}, info, client, 10))["theta"]
        for info, client in ((INFO, 0), (INFO, 1), (RoundInfo(3, 9, 4, 4, 0.01, 1, key=78), 0))
    ]
    assert torch.equal(starts[0], starts[1]) and not torch.equal(starts[0], starts[2])
    upload, kept = visit_of(anew, x, anew.init(model, {}, 1), task=model)
    assert kept == {} and set(upload.log.means) == set(WATCHED) and upload.log.sums == {}


def test_iterations_or_epochs():
    assert Energy(iterations=7).phases(Visit(task(), {}, {}, INFO, 0, 10))[0].steps == 7
    phase = Energy(iterations=0).phases(Visit(task(), {}, {}, INFO, 0, 10))[0]
    assert phase.steps is None and phase.epochs == INFO.epochs


# -- energies and weights (P25 to P28) -----------------------------------------------------------------------------


def test_marginal_energy_is_the_free_energy_of_the_joint_ones():
    outputs = torch.randn(5, 4, dtype=torch.float64)
    joint = torch.stack([-chosen(outputs, torch.full((5,), y)) for y in range(4)], 1)
    by_hand = [-math.log(sum(math.exp(-e) for e in row)) for row in joint.tolist()]
    assert torch.allclose(-torch.logsumexp(outputs, 1), torch.tensor(by_hand, dtype=torch.float64))
    assert torch.allclose(torch.softmax(-joint, 1), torch.softmax(outputs, 1))


class Curve(nn.Module):
    """A smooth function of four numbers, three classes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(x)))


FLAT = Inputs((4,), 3, torch.tensor([-1.0, 0.0, 2.0, 5.0]).double(), torch.tensor([1.0, 3.0, 4.0, 6.0]).double())


def upload_of(rule: Energy, theta: Tensor, u: Tensor, task: Task):
    visit = Visit(task, {"x": u.unflatten(0, (3, 2))}, {}, INFO, 0, 10)
    trained = {"theta": theta, "buffers": torch.zeros(0), "energies": torch.zeros(2)}
    return {name: part.flatten(0, 1) for name, part in rule.finish(trained, visit)[0].mix.items()}


def mixture(weights: str, thetas: list[Tensor], sizes: list[float], u: Tensor, task: Task) -> Tensor:
    """What the server makes of the uploads: the direction of its step."""
    sent = [
        upload_of(Energy(spc=2, persistent=False, weights=weights, grad_clip=0), theta, u, task) for theta in thetas
    ]
    num = sum(size * mix["num"] for size, mix in zip(sizes, sent, strict=True))
    den = sum(size * mix["den"] for size, mix in zip(sizes, sent, strict=True))
    return num / den[:, None]


def drawn(count: int) -> tuple[list[Tensor], Task, Tensor]:
    model = Task(Curve, inputs=FLAT)
    thetas = [3 * model.fresh(key)["theta"].double() for key in range(count)]
    return thetas, traced(model), torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def energies(theta: Tensor, u: Tensor) -> Tensor:
    """E(x, y) of the six samples, written out."""
    weights = (theta[:24].reshape(6, 4), theta[24:30], theta[30:48].reshape(3, 6), theta[48:])
    x = FLAT.low + (FLAT.high - FLAT.low) * u
    outputs = torch.tanh(x @ weights[0].T + weights[1]) @ weights[2].T + weights[3]
    return -outputs[range(6), [0, 0, 1, 1, 2, 2]]


def test_softmax_weights_give_the_gradient_of_the_mixture():
    thetas, model, u = drawn(3)
    sizes = [0.5, 0.2, 0.3]
    point = u.clone().requires_grad_()
    mixed = -torch.log(sum(w * torch.exp(-energies(theta, point)) for w, theta in zip(sizes, thetas, strict=True)))
    (expected,) = torch.autograd.grad(mixed.sum(), point)
    found = mixture("softmax", thetas, sizes, u, model)
    assert (found - expected).abs().max() < 1e-9 < expected.abs().max()
    assert (mixture("signed", thetas, sizes, u, model) - expected).abs().max() > 1e-3  # E24: another direction

    def value(point: Tensor) -> Tensor:
        return -torch.log(sum(w * torch.exp(-energies(theta, point)) for w, theta in zip(sizes, thetas, strict=True)))

    for feature in range(4):
        step = torch.zeros(6, 4, dtype=torch.float64)
        step[:, feature] = 1e-5
        assert torch.allclose((value(u + step) - value(u - step)) / 2e-5, found[:, feature], atol=1e-8)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_softmax_weights_tell_clients_apart_at_large_energies_and_stay_finite(sign):
    """float32: f = 2 sum(u) + level; the slope of the energy is -2 for one client, +2 for the other."""
    model, rule = Task(lambda: nn.Linear(4, 3), inputs=Inputs((4,), 3)), Energy(spc=2, persistent=False)
    u = torch.zeros(6, 4)

    def sent(slope: float, level: float) -> dict[str, Tensor]:
        theta = torch.cat([torch.full((12,), slope), torch.full((3,), level)])
        return upload_of(replace(rule, weights="softmax"), theta, u, model)

    def mixed(parts: list[dict[str, Tensor]], sizes: tuple[float, float]) -> Tensor:
        num, den = (sum(w * part[name] for w, part in zip(sizes, parts, strict=True)) for name in ("num", "den"))
        return num / den[:, None]

    near, far = sorted((sign * 45.0, sign * 46.5))
    found = mixed([sent(2.0, near), sent(-2.0, far)], (0.6, 0.4))
    high, low = 0.4 * math.exp(far - near), 0.6
    assert torch.allclose(found, torch.full((6, 4), 2 * (high - low) / (high + low)), rtol=1e-5)
    beyond = [sent(2.0, sign * 1000), sent(2.0, sign * 90)]
    assert float((beyond[0]["den"].double().log() - sign * 80).abs().max()) < 1e-4
    assert torch.allclose(mixed(beyond, (0.001, 0.999)), torch.full((6, 4), -2.0), rtol=1e-5)
    assert all(torch.isfinite(1000 * part).all() for part in beyond[0].values())


@pytest.mark.parametrize("weights", ["signed", "softmax"])
def test_one_client_or_equal_clients_give_their_own_gradient(weights):
    thetas, model, u = drawn(1)
    point = u.clone().requires_grad_()
    (expected,) = torch.autograd.grad(energies(thetas[0], point).sum(), point)
    assert torch.allclose(mixture(weights, thetas, [0.4], u, model), expected)
    assert torch.allclose(mixture(weights, thetas * 3, [0.1, 0.7, 0.2], u, model), expected)


def test_signed_weights_and_their_convex_combination():
    thetas, model, u = drawn(5)
    sizes = [0.1, 0.2, 0.3, 0.25, 0.15]
    for theta in thetas:
        expected = [math.exp(1) if e < 0 else math.exp(-1) for e in energies(theta, u).tolist()]
        den = upload_of(Energy(spc=2, persistent=False), theta, u, model)["den"]
        assert den.tolist() == pytest.approx(expected)
    nothing = upload_of(Energy(spc=2, persistent=False), torch.zeros_like(thetas[0]), u, model)["den"]
    assert nothing.tolist() == [1.0] * 6
    found = mixture("signed", thetas, sizes, u, model)
    point = u.clone().requires_grad_()
    own = torch.stack([torch.autograd.grad(energies(theta, point).sum(), point)[0] for theta in thetas])
    assert (found.norm(dim=1) <= own.norm(dim=2).amax(0) + 1e-12).all()
    assert torch.allclose(found, mixture("signed", thetas, [7 * size for size in sizes], u, model))


def test_contrastive_loss_climbs_the_likelihood():
    """Three inputs, two classes, p(x, y) = c / sum c with whole c: the chain can hold the model's distribution exactly.

    The gradient of E(real) - E(chain) in f must be minus that of the mean log-likelihood (E4).
    """
    counts = torch.tensor([[1.0, 4.0], [2.0, 3.0], [5.0, 1.0]], dtype=torch.float64)
    table = counts.log().requires_grad_()
    cells = [(x, y) for x in range(3) for y in range(2)]
    chain = [cell for cell in cells for _ in range(int(counts[cell]))]
    real = [(0, 0), (0, 1), (1, 1), (2, 0)]
    likelihood = sum(table[cell] - torch.log(sum(torch.exp(table[other]) for other in cells)) for cell in real) / 4
    (expected,) = torch.autograd.grad(likelihood, table)

    def objective(pcd: float) -> Tensor:
        outputs = table[[x for x, _ in (*real, *chain, *chain)]]
        batch = {"y": torch.tensor([y for _, y in real])}
        rule, v = Energy(pcd=pcd, lam=0.0), torch.tensor([y for _, y in chain])
        return torch.autograd.grad(rule._objective(outputs, batch, v)[0], table)[0]

    assert torch.allclose(objective(1.0) - objective(0.0), -expected)
    assert torch.allclose(objective(-1.0) - objective(0.0), expected)


def test_chain_on_a_gaussian_energy_has_the_variance_of_the_discrete_walk():
    """u <- u - gamma (u - 1/2) / s^2 + sigma eps: rho = 1 - gamma / s^2, variance sigma^2 / (1 - rho^2)."""
    s, gamma = 0.05, 0.0005
    sigma = math.sqrt(2 * gamma)

    class Bowl(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return (-((x - 0.5) ** 2).sum(1, keepdim=True) / (2 * s**2) + 0 * self.head).expand(-1, 2)

    model = Task(Bowl, inputs=Inputs((50,), 2))
    rule = Energy(sgld=60, gamma=gamma, sigma=sigma, grad_clip=0)
    u = rule._langevin(model, model.init(0), torch.full((400, 50), 0.5), torch.zeros(400, dtype=torch.int64), 3)
    rho = 1 - gamma / s**2
    assert float(u.var()) == pytest.approx(sigma**2 / (1 - rho**2), rel=0.05)
    assert float(u.var()) == pytest.approx(s**2 / (1 - gamma / (2 * s**2)), rel=0.05)


# -- the sign ------------------------------------------------------------------------------------------------------


def utility(batch: dict[str, Tensor]) -> float:
    """Accuracy on all test rows of the nearest class mean of the synthetic set."""
    means = torch.stack([batch["x"][batch["y"] == c].mean(0).flatten() for c in range(10)])
    rows = digits().batch(digits().test.rows)
    return float((torch.cdist(rows["x"].flatten(1), means).argmin(1) == rows["y"]).double().mean())


@cache
def short_run(pcd: float) -> tuple[float, dict[str, float], list[str]]:
    """Twenty rounds on digits: the utility of the set, the energies, and what the monitor said."""
    said: list[str] = []
    algorithm = catalog.build("fedevg", {"pcd": pcd})
    model = Task(lambda: SmallConvNet(1, 8, 10, width=8, activation="silu", spectral=True), inputs=digits().inputs)
    running = iter(run(algorithm, model, digits(), rounds=21, seed=1, executor="serial", report=said.append))
    *_, result = itertools.islice(running, 20)
    running.close()
    return utility(algorithm.client.synthesise(model, result.state.broadcast, 0)), result.log, said


def test_real_data_have_low_energy_and_the_set_is_useful():
    useful, log, said = short_run(1.0)
    assert not said
    assert log["energy_real"] < log["energy_chain"] and log["energy_real"] < log["energy_noise"]
    assert useful > 0.6


def test_with_the_printed_sign_the_gap_is_wrong_and_the_set_useless():
    useful, log, said = short_run(-1.0)
    assert len(said) == 1 and "higher than noise" in said[0]
    assert log["energy_real"] > log["energy_chain"] and log["energy_real"] > log["energy_noise"]
    assert useful < 0.25


# -- the set, the counters, mistakes -------------------------------------------------------------------------------


def test_the_set_is_balanced_ordered_and_in_range():
    federation = make_federation([8, 9, 7])
    rule = Energy(spc=4)
    model = Task(lambda: nn.Linear(6, 3), inputs=federation.inputs)
    first = rule.opening(model, 3)
    assert set(first) == {"x"} and first["x"].shape == (3, 4, 6)
    rows = federation.columns["x"][federation.train.rows]
    made = rule.synthesise(model, {"x": first["x"] * 3 - 1}, 0)
    assert made["y"].tolist() == [0] * 4 + [1] * 4 + [2] * 4 and made["y"].dtype == torch.int64
    assert (made["x"] >= rows.amin(0)).all() and (made["x"] <= rows.amax(0)).all()
    assert torch.allclose(federation.inputs.from_unit(torch.ones(6)), rows.amax(0))
    assert torch.allclose(federation.inputs.from_unit(torch.zeros(6)), rows.amin(0), atol=1e-6)


def test_categories_are_settled_and_numbers_stay():
    inputs = Inputs((6,), 2, torch.zeros(6), torch.tensor([1.0, 1, 1, 4, 1, 10]), (Block(0, 3), Block(4, 5, none=True)))
    u = torch.tensor([[0.2, 0.4, 0.1, 0.5, 0.4, 0.25], [0.9, 0.95, 1.0, 0.1, 0.6, 1.0]])
    model = Task(lambda: nn.Linear(6, 2), inputs=inputs)
    made = Energy(spc=1).synthesise(model, {"x": u[:, None]}, 0)["x"]
    assert made.tolist() == [[0, 1, 0, 2, 0, 2.5], [0, 0, 1, pytest.approx(0.4), 1, 10]]
    pair = Inputs((2,), 2, 0.0, 1.0, (Block(0, 2, none=True),))
    assert pair.settle(torch.tensor([[0.3, 0.45], [0.6, 0.7]])).tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("width", [4, 8])
def test_bytes_are_those_of_the_set_whatever_the_model(width):
    algorithm = catalog.build("fedevg", {"spc": 3, "iterations": 1})
    model = Task(lambda: SmallConvNet(1, 8, 10, width), inputs=digits().inputs)
    result = next(simulate(algorithm, model, digits(), rounds=2, executor="serial"))
    samples, numbers = 30, 64
    assert result.bytes_down == 4 * 4 * samples * numbers
    assert result.bytes_up == 4 * 4 * (samples * numbers + samples)


def test_a_client_without_a_class_takes_part_silently(recwarn):
    federation = federate(load("digits"), Pathological(shards=2), 5, seed=1)
    assert any(len(federation.columns["y"][federation.train[c]].unique()) < 10 for c in range(5))
    model = Task(net, inputs=federation.inputs)
    said: list[str] = []
    algorithm = catalog.build("fedevg", {"iterations": 1})
    result = next(iter(run(algorithm, model, federation, rounds=2, executor="serial", report=said.append)))
    assert torch.isfinite(result.state.broadcast["x"]).all() and not said and not len(recwarn)


def test_energies_are_logged_and_runaways_reported_once():
    rule = Energy()
    fine = {"energy_real": -5.0, "energy_chain": 3.0, "energy_noise": 4.0}
    assert rule.alarm(fine) == ""
    assert "run away" in rule.alarm(fine | {"energy_chain": 1e5})
    assert "run away" in rule.alarm(fine | {"energy_real": math.nan})
    assert "higher than noise" in rule.alarm({"energy_real": 5.0, "energy_chain": -1.0, "energy_noise": 2.0})
    said: list[str] = []
    algorithm = catalog.build("fedevg", {"iterations": 6, "lr": 3000.0})
    linear = Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), inputs=digits().inputs)
    running = iter(run(algorithm, linear, digits(), rounds=5, executor="serial", report=said.append))
    logs = [next(running).log for _ in range(3)]
    running.close()
    assert all(set(WATCHED) <= set(log) for log in logs)
    assert len(said) == 1 and said[0].startswith("round ") and "run away" in said[0]


def test_divergence_stops_the_run_and_names_the_round():
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.flatten(1)) * 1e38

    model = Task(Broken, inputs=digits().inputs)
    algorithm = catalog.build("fedevg", {"iterations": 2, "lr": 10.0, "grad_clip": 0.0})
    done = 0
    with pytest.raises(FedchordError, match=r"round \d+: only 0 of 4 updates can be used.*try a lower lr") as caught:
        for result in simulate(algorithm, model, digits(), rounds=30, executor="serial"):
            done = result.round
            assert torch.isfinite(result.state.broadcast["x"]).all()
    assert f"round {done + 1}:" in str(caught.value)


@pytest.mark.parametrize("sides", [(3, 5), (5, 3)])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_a_spectral_head_whose_weights_are_not_finite_gives_nan(sides, value):
    layer = SpectralLinear(*sides)
    x, weights = torch.ones(2, sides[0]), torch.stack([layer.weight.detach()] * 2)
    weights[1, 0, 0] = value  # 1e30 is finite, its square is not
    calls = torch.vmap(lambda weight: torch.func.functional_call(layer, {"weight": weight}, (x,)))
    good, bad = calls(weights)
    assert torch.allclose(good, layer(x)) and bad[:, 0].isnan().all() and not bad.isfinite().all()
    slope = torch.func.grad(lambda w: torch.func.functional_call(layer, {"weight": w}, (x,)).sum())(weights[1])
    assert not slope.isfinite().all()


def test_mistakes_are_told():
    for wrong in ({"spc": 0}, {"pcd": 2}, {"weights": "other"}, {"chain": 0}, {"lr": 0}, {"gamma": -1}):
        with pytest.raises(FedchordError, match=next(iter(wrong))):
            Energy(**wrong)
    with pytest.raises(FedchordError, match=r"Energy: the task must tell what an example is"):
        Energy().opening(Task(net), 0)
    for change in ({"mixing": "aaggff-d"}, {"server": "fedadam"}):
        with pytest.raises(FedchordError, match="cannot be used with Energy"):
            catalog.build("fedevg", **change)
    with pytest.raises(FedchordError, match="cannot be used with Plain"):
        Algorithm(catalog.build("fedavg").client, BySize(), Langevin())
