"""Each method against a plain-torch run of its paper's algorithm: nn.Module, backward, torch.optim and lists of
tensors.

The oracle shares nothing with the library but the order of the batches and the cohorts.
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers.federations import make_federation
from torch import Tensor, nn

from fedchord import catalog, rng
from fedchord.check import FedchordError
from fedchord.core.rules import Phase
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine.simulate import simulate
from fedchord.evaluation.evaluate import evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.models import TwoNN

ROUNDS, COHORT, SEED = 4, 3, 2
TRAINING = Training(epochs=2, batch=4, lr=0.1, momentum=0.5, weight_decay=0.01, lr_decay=0.9, lr_step=2)
FEDERATION = make_federation([13, 20, 7, 31, 10, 5])


def vector(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def batches(client: int, round: int) -> list[dict[str, Tensor]]:
    stream = ClientStream(FEDERATION, client, TRAINING.batch, rng.key(SEED, "batches", client, round))
    return list(stream.batches(0, Phase(epochs=TRAINING.epochs)))


def descend(module: nn.Module, client: int, round: int, mu: float = 0.0, momentum: float = 0.5, decay: float = 0.01,
            correction: list[Tensor] | None = None) -> tuple[nn.Module, int]:  # fmt: skip
    """A trained copy of a module and the number of steps, by torch.optim."""
    local, anchor = copy.deepcopy(module), [p.detach().clone() for p in module.parameters()]
    rate = TRAINING.lr * 0.9 ** (round // 2)
    optimiser = torch.optim.SGD(local.parameters(), rate, momentum, weight_decay=decay)
    count = 0
    for batch in batches(client, round):
        optimiser.zero_grad()
        loss = F.cross_entropy(local(batch["x"]), batch["y"])
        loss = loss + mu / 2 * sum(((p - a) ** 2).sum() for p, a in zip(local.parameters(), anchor, strict=True))
        loss.backward()
        if correction is not None:
            for p, c in zip(local.parameters(), correction, strict=True):
                p.grad.add_(c)
        optimiser.step()
        count += 1
    return local, count


def write(module: nn.Module, parts: list[Tensor]) -> None:
    with torch.no_grad():
        for p, value in zip(module.parameters(), parts, strict=True):
            p.copy_(value)


def averaged(module: nn.Module, locals_: list[nn.Module], weights: list[float]) -> list[Tensor]:
    return [
        sum(w * part.detach() for w, part in zip(weights, parts, strict=True))
        for parts in zip(*(m.parameters() for m in locals_), strict=True)
    ]


def by_size(cohort: tuple[int, ...]) -> list[float]:
    sizes = [len(FEDERATION.train[i]) for i in cohort]
    return [s / sum(sizes) for s in sizes]


def run(name: str, module: nn.Module, **parameters):
    algorithm = catalog.build(name, parameters)
    return list(simulate(algorithm, Task(module), FEDERATION, rounds=ROUNDS, cohort=COHORT, seed=SEED,
                            training=TRAINING, executor="serial"))  # fmt: skip


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(3)
    return TwoNN(6, 5, 3)


@pytest.mark.parametrize(("name", "mu"), [("fedavg", 0.0), ("fedprox", 0.7), ("uniform", 0.0)])
def test_fedavg_family(module, name, mu):
    results = run(name, module, **({"mu": mu} if name == "fedprox" else {}))
    for t, result in enumerate(results):
        trained = [descend(module, client, t, mu)[0] for client in result.cohort]
        weights = [1 / COHORT] * COHORT if name == "uniform" else by_size(result.cohort)
        write(module, averaged(module, trained, weights))
        assert torch.allclose(result.state.broadcast["theta"], vector(module), atol=2e-6), t
        assert torch.allclose(result.shares, torch.tensor(weights, dtype=torch.float64))


def test_scaffold(module):
    """Option II with plain SGD; c_i changes by -c + (x - y) / (steps lr), c by the mean change times |S| / K."""
    results = run("scaffold", module)
    zeros = [torch.zeros_like(p) for p in module.parameters()]
    server, clients = zeros, dict.fromkeys(range(6), zeros)
    for t, result in enumerate(results):
        rate = TRAINING.lr * 0.9 ** (t // 2)
        x = [p.detach().clone() for p in module.parameters()]
        moved, changes = [], []
        for i in result.cohort:
            correction = [c - ci for c, ci in zip(server, clients[i], strict=True)]
            local, steps = descend(module, i, t, momentum=0.0, decay=0.0, correction=correction)
            y = [p.detach() for p in local.parameters()]
            new = [ci - c + (a - b) / (steps * rate) for ci, c, a, b in zip(clients[i], server, x, y, strict=True)]
            changes.append([n - o for n, o in zip(new, clients[i], strict=True)])
            clients[i] = new
            moved.append(local)
        write(module, averaged(module, moved, [1 / COHORT] * COHORT))
        server = [c + sum(parts) / 6 for c, *parts in zip(server, *changes, strict=True)]
        assert torch.allclose(result.state.broadcast["theta"], vector(module), atol=5e-6), t
        flat = torch.cat([c.reshape(-1) for c in server])
        assert torch.allclose(result.state.broadcast["control"], flat, atol=5e-5), t
    kept = {i: result.memory.get(i) for i in result.memory.clients()}
    for i, own in kept.items():
        assert torch.allclose(own["control"], torch.cat([c.reshape(-1) for c in clients[i]]), atol=5e-5)


def test_scaffold_with_full_participation_keeps_the_mean_of_the_control_variates():
    """Property: with every client in every round, c is the mean of the c_i."""
    algorithm = catalog.build("scaffold")
    *_, last = simulate(
        algorithm, Task(lambda: TwoNN(6, 5, 3)), FEDERATION, rounds=3, seed=1, training=TRAINING, executor="serial"
    )
    mean = torch.stack([last.memory.get(i)["control"] for i in range(6)]).mean(0)
    assert torch.allclose(last.state.broadcast["control"], mean, atol=1e-5)


def reference_server(name: str, theta: Tensor, change: Tensor, memory: dict[str, Tensor], p: dict) -> Tensor:
    """Reddi et al. (2021), algorithm 2, and FedAvgM, in float64 scalars over a loop of coordinates."""
    out = theta.double().clone()
    for j in range(len(theta)):
        d = float(change[j])
        if name == "fedavgm":
            memory["v"][j] = p["beta"] * memory["v"][j] + d
            out[j] += p["lr"] * memory["v"][j]
            continue
        memory["m"][j] = p["beta1"] * memory["m"][j] + (1 - p["beta1"]) * d
        v = float(memory["v"][j])
        if name == "fedadam":
            v = p["beta2"] * v + (1 - p["beta2"]) * d * d
        elif name == "fedyogi":
            v = v - (1 - p["beta2"]) * d * d * (1 if v > d * d else -1 if v < d * d else 0)
        else:
            v = v + d * d
        memory["v"][j] = v
        out[j] += p["lr"] * float(memory["m"][j]) / (v**0.5 + p["tau"])
    return out.float()


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_server_optimisers_keep_their_state(module, name):
    parameters = {
        "fedavgm": {"lr": 0.5, "beta": 0.8},
        "fedadam": {"lr": 0.05, "beta1": 0.8, "beta2": 0.9, "tau": 0.01},
        "fedyogi": {"lr": 0.05, "beta1": 0.8, "beta2": 0.9, "tau": 0.01},
        "fedadagrad": {"lr": 0.05, "beta1": 0.3, "tau": 0.01},
    }[name]
    results = run(name, module, **parameters)
    size = len(vector(module))
    memory = {"m": torch.zeros(size, dtype=torch.float64)}
    start = 0.0 if name == "fedavgm" else parameters["tau"] ** 2
    memory["v"] = torch.full((size,), start, dtype=torch.float64)
    for t, result in enumerate(results):
        before = vector(module)
        trained = [descend(module, client, t)[0] for client in result.cohort]
        mean = torch.cat([p.reshape(-1) for p in averaged(module, trained, by_size(result.cohort))])
        after = reference_server(name, before, mean - before, memory, parameters)
        torch.nn.utils.vector_to_parameters(after, module.parameters())
        assert torch.allclose(result.state.broadcast["theta"], after, atol=2e-5), t


def test_local_only_trains_each_client_alone(module):
    results = run("local", module)
    own = {i: copy.deepcopy(module) for i in range(6)}
    for t, result in enumerate(results):
        for client in result.cohort:
            own[client] = descend(own[client], client, t)[0]
        assert torch.equal(result.state.broadcast["theta"], vector(module))
        assert result.bytes_up == 0
    for client in results[-1].memory.clients():
        assert torch.allclose(results[-1].memory.get(client)["theta"], vector(own[client]), atol=2e-6)
    protocol = evaluate(Fitted.of(results[-1])).protocol
    assert protocol["never_sampled"] == int((results[-1].state.visits.tensor() == 0).sum())


def theta_of(name: str, module: nn.Module, **parameters) -> Tensor:
    return run(name, module, **parameters)[-1].state.broadcast["theta"]


def test_reductions_are_exact(module):
    assert torch.equal(theta_of("fedprox", module, mu=0.0), theta_of("fedavg", module))
    assert torch.equal(theta_of("fedavgm", module, beta=0.0), theta_of("fedavg", module))
    assert not torch.equal(theta_of("fedprox", module, mu=0.5), theta_of("fedavg", module))


def test_scaffold_says_what_it_changed():
    changed = catalog.build("scaffold").client.local(TRAINING)
    assert (changed.momentum, changed.weight_decay) == (0.0, 0.0) and changed.lr == TRAINING.lr


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: catalog.build("fedporx"), "unknown method 'fedporx'; did you mean 'fedprox'?"),
        (
            lambda: catalog.build("fedprox", {"nu": 1}),
            "unknown parameter of fedprox 'method.nu'; did you mean 'method.mu'?",
        ),
        (lambda: catalog.build("fedprox", {"mu": -1}), "Prox: mu must be at least 0, got -1"),
        (lambda: catalog.build("fedavg", mixing="by-sise"), "unknown mixing rule 'by-sise'; did you mean 'by-size'?"),
        (lambda: catalog.build("fedavg", server="adam"), "unknown server rule 'adam'; did you mean 'fedadam'?"),
        (lambda: catalog.build("fedadam", {"beta1": 1.0}), "Adam: beta1 must be at least 0 and below 1, got 1.0"),
        (
            lambda: catalog.build("scaffold", server="fedadam"),
            "Adam takes theta and cannot be used with Scaffold, which sends theta and control (plain mean)",
        ),
    ],
)
def test_bad_methods_are_told_in_one_line(call, line):
    with pytest.raises(FedchordError) as error:
        call()
    assert line in str(error.value) and "\n" not in str(error.value)


def test_composition_by_name():
    algorithm = catalog.build("fedprox", {"mu": 0.3}, mixing="uniform", server="fedadam", server_parameters={"lr": 0.2})
    assert (algorithm.client.mu, type(algorithm.mixing).__name__, algorithm.server.lr) == (0.3, "Uniform", 0.2)
    assert catalog.build("fedadam", {"lr": 0.3, "tau": 0.1}).server.tau == 0.1
    assert algorithm.name == "fedprox mixing=uniform server=fedadam"


def test_scaffold_without_local_steps_stays_finite():
    training = Training(epochs=0, batch=4)
    settings = {"rounds": 2, "cohort": 2, "training": training, "executor": "serial"}
    *_, last = simulate(catalog.build("scaffold"), Task(lambda: TwoNN(6, 5, 3)), FEDERATION, **settings)
    assert torch.isfinite(last.state.broadcast["control"]).all()
