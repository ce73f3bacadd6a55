"""An attack on witness energies: from what a client sent of a class back to its mean features, and to a row.

The network of a round is known to all, and so is the synthetic set. What a client sends of a class v is, at every
sample u, w J(u)^T (nu_v - mu_v) with J the Jacobian of the features at u: linear equations for mu_v, the mean features
of the client's rows of the class. Whoever sees single uploads solves them, and then looks for a row whose features in
the networks of several rounds are those that were found. Where the class has one row, mu_v is that row's features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.clients import moving
from fedchord.clients.witness import Witness
from fedchord.core.round import Plan, open_run, round_info
from fedchord.core.rules import Visit
from fedchord.engine.work import Work
from fedchord.synthetic.privacy import nearest
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Found:
    """What the attack found of the smallest class: whose it is, and how near it came."""

    client: int
    label: int
    rows: int
    features: float | None = None
    """The relative error of the mean features."""
    distance: float | None = None
    """From the row that was found to the nearest row of the class at the client: root mean square, range 0 to 1."""
    usual: float | None = None
    """From that row to other rows of the class, of any client: the median."""


def attack(work: Work, rounds: int, steps: int) -> Found:
    """Play the smallest class of any client for some rounds, and attack what was sent of it."""
    rule, task = work.algorithm.client, work.task
    check.require(isinstance(rule, Witness), "reconstruct", f"is for fedevg-witness, got {type(rule).__name__}")
    assert isinstance(rule, Witness)
    client, label, count = smallest(work)
    plan = Plan(rounds, 1.0, work.seed)
    shared = open_run(work.algorithm, task, work.federation.num_clients, plan).broadcast
    seen: list[tuple[Visit, Tensors, Tensor]] = []
    errors = []
    inputs = moving.described(task)
    rows = _rows(work, client, label)
    for round in range(rounds):
        info = round_info(plan, work.training, work.federation.num_clients, round, work.federation.num_clients)
        visit = Visit(task, shared, {}, info, client, 1)
        upload, _, _ = work.run(client, shared, None, info)
        weight = upload.mix["den"][label, 0]
        if not weight:
            return Found(client, label, count)
        networks = rule.start(visit)
        slope = upload.mix["num"][label] / weight
        mean = solved(rule, visit, networks, shared["x"][label], slope)
        true = rule.phi(networks, visit, 0, inputs.from_unit(rows)).mean(0)
        errors.append(float((mean - true).norm() / true.norm()))
        seen.append((visit, networks, mean))
    guess = searched(rule, seen, tuple(rows.shape[1:]), steps)
    gap, which = nearest(guess[None], rows)
    others = torch.cat([_rows(work, other, label) for other in range(work.federation.num_clients) if other != client])
    usual = float(nearest_all(rows[int(which)], others).median()) if len(others) else float("nan")
    return Found(client, label, count, sum(errors) / len(errors), float(gap), usual)


def smallest(work: Work) -> tuple[int, int, int]:
    """The client and the class with the fewest training rows, and how many these are."""
    found = []
    for client in range(work.federation.num_clients):
        labels = work.federation.columns["y"][work.federation.train[client]]
        counts = labels.bincount(minlength=work.federation.classes)
        found += [(int(count), client, label) for label, count in enumerate(counts) if count]
    count, client, label = min(found)
    return client, label, count


def _rows(work: Work, client: int, label: int) -> Tensor:
    """The client's training rows of a class, in unit coordinates."""
    rows = work.federation.train[client]
    rows = rows[work.federation.columns["y"][rows] == label]
    return moving.described(work.task).to_unit(work.federation.batch(rows)["x"])


def nearest_all(row: Tensor, others: Tensor) -> Tensor:
    """The distances of a row to others, root mean squares."""
    return (others.flatten(1) - row.flatten()).square().mean(1).sqrt()


def solved(rule: Witness, visit: Visit, networks: Tensors, x: Tensor, slope: Tensor) -> Tensor:
    """mu from slope = J(u)^T (nu - mu) at every sample, by least squares; of the first network."""
    inputs = moving.described(visit.task)

    def phi(u: Tensor) -> Tensor:
        return rule.phi(networks, visit, 0, inputs.from_unit(u[None]))[0]

    jacobians = torch.stack([torch.func.jacrev(phi)(u) for u in x]).flatten(2)  # (samples, features, inputs)
    nu = torch.stack([phi(u) for u in x]).mean(0)
    equations = jacobians.transpose(1, 2).flatten(0, 1).double()
    # rank may be short of the features: the least change from nu that explains what was sent
    change = torch.linalg.lstsq(equations, slope.flatten().double()[:, None], driver="gelsd").solution[:, 0]
    return nu - change.to(nu.dtype)


def searched(rule: Witness, seen: list[tuple[Visit, Tensors, Tensor]], shape: tuple[int, ...], steps: int) -> Tensor:
    """A row in unit coordinates whose features in all networks are nearest to those that were found."""
    inputs = moving.described(seen[0][0].task)
    guess = (0.5 + 0.01 * rng.normal(rng.key(0, "reconstruct"), shape)).requires_grad_()
    optimiser = torch.optim.Adam([guess], lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        gaps = [
            (rule.phi(networks, visit, 0, inputs.from_unit(guess.clamp(0, 1)[None]))[0] - mean).square().mean()
            for visit, networks, mean in seen
        ]
        torch.stack(gaps).sum().backward()
        optimiser.step()
    return guess.detach().clamp(0, 1)
