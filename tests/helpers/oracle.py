"""What the plain-torch runs of the personal methods share: modules, lists of parameters, backward and torch.optim.

With the library they share the order of the batches, the cohorts and the keys under which models are drawn, no more.
Seven clients of unequal size, three a round: client 1 and 4 are never sampled, client 6 only in the first two rounds,
client 0 only in the last, the others several times.
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedchord import catalog, rng, run
from fedchord.core.rules import Algorithm, Phase
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.round import Round
from fedchord.models import TwoNN
from helpers.federations import make_federation

ROUNDS, COHORT, SEED = 4, 3, 9
TRAINING = Training(epochs=2, batch=4, lr=0.1, momentum=0.5, weight_decay=0.01, lr_decay=0.9, lr_step=2)
FEDERATION = make_federation([13, 15, 7, 23, 9, 5, 11])  # batches of two rows would make BatchNorm magnify rounding
CLIENTS = range(FEDERATION.num_clients)
COHORTS = [(2, 3, 6), (2, 5, 6), (2, 3, 5), (0, 3, 5)]
NEVER = (1, 4)


def two() -> nn.Module:
    return TwoNN(6, 5, 3)


def normed() -> nn.Module:
    parts = [("hidden", nn.Linear(6, 5)), ("norm", nn.BatchNorm1d(5)), ("act", nn.ReLU()), ("head", nn.Linear(5, 3))]
    return nn.Sequential(OrderedDict(parts))


@dataclass(frozen=True)
class Setting:
    """A model and the way its gradient is found."""

    make: Callable[[], nn.Module]
    dense: bool = True

    def task(self) -> Task:
        task = Task(self.make, dense=self.dense)
        assert (task.dense is not None) == (self.dense and self.make is two)
        return task

    def drawn(self, key: int) -> nn.Module:
        with rng.seeded(key):
            return self.make()

    def first(self) -> nn.Module:
        """The first global model of a run."""
        return self.drawn(rng.key(SEED, "model"))

    def private(self, client: int) -> nn.Module:
        """A client's own model before its first round, where it starts at random."""
        return self.drawn(rng.key(SEED, "own", client))


SETTINGS = {"dense": Setting(two), "autograd": Setting(two, dense=False), "batchnorm": Setting(normed)}
DENSE = SETTINGS["dense"]


def batches(setting: Setting, client: int, round: int, phase: int = 0, epochs: int | None = None) -> list[Any]:
    least = 2 if setting.make is normed else 1
    key = rng.key(SEED, "batches", client, round)
    stream = ClientStream(FEDERATION, client, TRAINING.batch, key, least)
    return list(stream.batches(phase, Phase(epochs=TRAINING.epochs if epochs is None else epochs)))


def rate(round: int) -> float:
    return 0.1 * 0.9 ** (round // 2)


def by_size(cohort: tuple[int, ...]) -> list[float]:
    sizes = [len(FEDERATION.train[client]) for client in cohort]
    return [size / sum(sizes) for size in sizes]


def vector(module: nn.Module, names: list[str] | None = None) -> Tensor:
    """The parameters, or those of the given names, in one vector."""
    named = dict(module.named_parameters())
    return torch.cat([named[n].detach().reshape(-1) for n in (named if names is None else names)])


def buffers(module: nn.Module) -> Tensor:
    return torch.cat([torch.zeros(0), *(b.reshape(-1).float() for b in module.buffers())])


def squared(a: nn.Module, b: nn.Module) -> Tensor:
    """||a - b||^2, b held fixed."""
    return sum(((p - q.detach()) ** 2).sum() for p, q in zip(a.parameters(), b.parameters(), strict=True))


def descend(
    setting: Setting,
    module: nn.Module,
    client: int,
    round: int,
    *,
    phase: int = 0,
    epochs: int | None = None,
    names: list[str] | None = None,
    penalty: Callable[[nn.Module], Tensor | float] = lambda module: 0.0,
    lr: float | None = None,
) -> nn.Module:
    """A trained copy of a module: torch.optim on the named parameters (None: all)."""
    local = copy.deepcopy(module).train()
    moving = [p for n, p in local.named_parameters() if names is None or n in names]
    optimiser = torch.optim.SGD(moving, rate(round) if lr is None else lr, 0.5, weight_decay=0.01)
    for batch in batches(setting, client, round, phase, epochs):
        local.zero_grad()
        (F.cross_entropy(local(batch["x"]), batch["y"]) + penalty(local)).backward()
        optimiser.step()
    return local


def average(modules: list[nn.Module], weights: list[float]) -> nn.Module:
    """The weighted mean of modules; whole-number buffers by their maximum."""
    mean = copy.deepcopy(modules[0])
    states = [module.state_dict() for module in modules]
    with torch.no_grad():
        for name, tensor in mean.state_dict().items():
            parts = torch.stack([state[name] for state in states])
            if tensor.is_floating_point():
                tensor.copy_(sum(w * part for w, part in zip(weights, parts, strict=True)))
            else:
                tensor.copy_(parts.amax(0))
    return mean


def copy_named(target: nn.Module, source: nn.Module, names: list[str]) -> None:
    """Overwrite the named parameters and buffers of a module by another's."""
    with torch.no_grad():
        for name in names:
            target.state_dict()[name].copy_(source.state_dict()[name])


def build(name: str, **parameters: Any) -> Algorithm:
    return catalog.build(name, parameters)


def running(algorithm: Algorithm | str, setting: Setting = DENSE, **changes: Any) -> Iterator[Round]:
    """The library's run, round by round; the last one is evaluated, by the same executor."""
    algorithm = build(algorithm) if isinstance(algorithm, str) else algorithm
    settings = {"rounds": ROUNDS, "cohort": COHORT, "seed": SEED, "training": TRAINING, "executor": "serial"} | changes
    return iter(run(algorithm, setting.task(), FEDERATION, **settings))


@functools.cache
def last(algorithm: Algorithm | str, setting: Setting = DENSE, **changes: Any) -> Round:
    """The end of the library's run; each is made once and only read."""
    *_, result = running(algorithm, setting, **changes)
    return result


def theta(algorithm: Algorithm | str, setting: Setting = DENSE, **changes: Any) -> Tensor:
    return last(algorithm, setting, **changes).state.broadcast["theta"]


def close(a: Tensor, b: Tensor, atol: float = 5e-6) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=atol, rtol=1e-5)


def same(state: dict[str, Tensor], module: nn.Module, atol: float = 5e-6) -> bool:
    """Whether a broadcast is a module: parameters and buffers."""
    return close(state["theta"], vector(module), atol) and close(state["buffers"], buffers(module), atol)


def model_of(result: Round, client: int) -> dict[str, Tensor]:
    """What a client deploys after a round, as the evaluation finds it."""
    return Fitted.of(result).deployed(client)


def check_deployed(result: Round, modules: dict[int, nn.Module], atol: float = 5e-6) -> None:
    """The deployed model of every client, and its loss on the client's test rows as the run reported it."""
    assert sorted(modules) == list(CLIENTS)
    for client, module in modules.items():
        assert same(model_of(result, client), module, atol), client
        rows = FEDERATION.test[client]
        with torch.no_grad():
            outputs = copy.deepcopy(module).eval()(FEDERATION.columns["x"][rows])
        expected = float(F.cross_entropy(outputs, FEDERATION.columns["y"][rows]))
        place = result.evaluation.clients.index(client)
        assert abs(float(result.evaluation.per_client["loss"][place]) - expected) < 20 * atol, client


def assert_same(a: Round, b: Round, tolerance: float) -> None:
    """Broadcast, private memory and what every client measures."""
    pairs = {f"broadcast {n}": (t, b.state.broadcast[n]) for n, t in a.state.broadcast.items()}
    assert a.memory.clients() == b.memory.clients()
    for i in a.memory.clients():
        left, right = a.memory.get(i), b.memory.get(i)
        assert left.keys() == right.keys()
        pairs |= {f"client {i} {n}": (t, right[n]) for n, t in left.items()}
    pairs["loss"] = a.evaluation.per_client["loss"], b.evaluation.per_client["loss"]
    for name, (left, right) in pairs.items():
        assert torch.isfinite(left).all(), name
        same = torch.allclose(left, right, atol=tolerance, rtol=tolerance) if tolerance else torch.equal(left, right)
        assert same, name
