"""SuPerFed by plain autograd of its objective, with one torch.optim optimiser over both models."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedchord import rng
from fedchord.core.training import Training
from helpers import oracle
from helpers.oracle import FEDERATION, SEED


def modules_of(names) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names))


def lambdas(names, key: int, layerwise: bool) -> dict[str, float]:
    """The lambda of each named parameter."""
    names = list(names)
    if not layerwise:
        return dict.fromkeys(names, float(rng.uniform(key, 1)))
    modules = modules_of(names)
    drawn = dict(zip(modules, rng.uniform(key, len(modules)).tolist(), strict=True))
    return {name: drawn[name.rpartition(".")[0]] for name in names}


def cos(a: list[Tensor], b: list[Tensor]) -> Tensor:
    """<a, b> / (||a|| ||b||) over lists of tensors."""
    inner = sum((p * q).sum() for p, q in zip(a, b, strict=True))
    return inner / (sum((p * p).sum() for p in a).sqrt() * sum((q * q).sum() for q in b).sqrt())


def objective(f: nn.Module, l: nn.Module, g: nn.Module, batch, lam: dict[str, float], mu: float, nu: float) -> Tensor:  # noqa: E741
    """J(f, l); the buffers are those of f."""
    other = dict(l.named_parameters())
    mixed = {name: (1 - lam[name]) * p + lam[name] * other[name] for name, p in f.named_parameters()}
    loss = F.cross_entropy(functional_call(f, mixed, (batch["x"],)), batch["y"])
    angle = cos(list(f.parameters()), list(l.parameters()))
    return loss + mu / 2 * oracle.squared(f, g) + nu * angle**2


def optimiser_of(training: Training, parameters, lr: float) -> torch.optim.Optimizer:
    if training.optimiser == "adam":
        return torch.optim.Adam(parameters, lr, (0.9, 0.999), 1e-8, training.weight_decay)
    return torch.optim.SGD(parameters, lr, training.momentum, weight_decay=training.weight_decay)


def train(setting, g, own, i, t, layerwise, mu, nu, training):
    """One client's round after the warm-up."""
    f, l = copy.deepcopy(g).train(), copy.deepcopy(own)  # noqa: E741
    both = [*f.parameters(), *l.parameters()]
    optimiser = optimiser_of(training, both, oracle.rate(t))
    key = rng.fold(rng.key(SEED, "local", i, t), 0)
    for step, batch in enumerate(oracle.batches(setting, i, t)):
        optimiser.zero_grad()
        lam = lambdas(dict(f.named_parameters()), rng.fold(key, step), layerwise)
        objective(f, l, g, batch, lam, mu, nu).backward()
        if training.clip:
            nn.utils.clip_grad_norm_(both, training.clip)
        optimiser.step()
    return f, l


def warm(setting, g, i, t, mu, training):
    """One client's round of the warm-up: f alone, with the proximal term."""
    f = copy.deepcopy(g).train()
    optimiser = optimiser_of(training, list(f.parameters()), oracle.rate(t))
    for batch in oracle.batches(setting, i, t):
        optimiser.zero_grad()
        (F.cross_entropy(f(batch["x"]), batch["y"]) + mu / 2 * oracle.squared(f, g)).backward()
        if training.clip:
            nn.utils.clip_grad_norm_(f.parameters(), training.clip)
        optimiser.step()
    return f


def blended(g: nn.Module, own: nn.Module, blend: float, client: int) -> nn.Module:
    """(1 - blend) g + blend l with the statistics of the client's training rows."""
    model, other = copy.deepcopy(g), dict(own.named_parameters())
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((1 - blend) * p + blend * other[name])
        for part in model.modules():
            if isinstance(part, nn.BatchNorm1d):
                part.reset_running_stats()
                part.momentum = None
        model.train()(FEDERATION.batch(FEDERATION.train[client])["x"])
    return model
