"""Clients that come when training is over: how the global model serves them as it is, and after some local training.

Some clients are held out of a run (`divide`). After the last round each of them receives the model, is measured on its
own test rows, trains for a few epochs and is measured again (`welcome`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from fedchord import check, rng
from fedchord.clients.finetune import FineTune
from fedchord.core.rules import Algorithm, ServerState, shared_model
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.executors import Work
from fedchord.engine.memory import ClientMemory
from fedchord.evaluation.evaluate import Evaluation, evaluate
from fedchord.mixing.static import BySize
from fedchord.servers.step import Step
from fedchord.tensors import Tensors


@dataclass(frozen=True)
class Welcome:
    """What newcomers measure with the model they receive, and after `epochs` epochs of their own."""

    model: str
    """What they receive, in words."""
    epochs: int
    received: Evaluation
    tuned: Evaluation


def count(newcomers: int | float, num_clients: int) -> int:
    """How many of K clients come later: the number itself, or max(1, floor(share K)) for a share above 0."""
    if isinstance(newcomers, float):
        share = check.below("run", "newcomers as a share", newcomers, 1)
        found = max(1, math.floor(share * num_clients + 1e-9)) if share else 0
    else:
        found = check.whole("run", "newcomers", newcomers)
    check.require(
        found < num_clients,
        "run",
        f"newcomers must be fewer than the {num_clients} clients, so that some can train, got {found}",
    )
    return found


def divide(federation: Federation, newcomers: int | float, seed: int = 0) -> tuple[Federation, Federation | None]:
    """The clients that train and the newcomers (None if there are none): a uniform choice under the seed.

    Both are numbered from 0 in the old order; names stay.
    """
    number = count(newcomers, federation.num_clients)
    if not number:
        return federation, None
    late = rng.choose(rng.key(seed, "newcomers"), federation.num_clients, number)
    early = sorted(set(range(federation.num_clients)) - set(late))
    measured = bool(federation.test.sizes[late].any())
    check.require(measured, "run", f"none of the {number} newcomers has test rows, so there is nothing to measure")
    return federation.only(early), federation.only(late)


def welcome(
    algorithm: Algorithm,
    task: Task,
    newcomers: Federation,
    state: ServerState,
    training: Training,
    epochs: int = 1,
    seed: int = 0,
    metrics: tuple[str, ...] | None = None,
) -> Welcome:
    """Measure newcomers with the model of a finished run, before and after `epochs` of plain local training.

    Plain: FedAvg's local steps on the newcomer's training rows, with the run's batch size and optimiser and the
    learning rate of the last round. What is received is the global model. Where only a part of the model is shared
    (FedPer, LG-FedAvg, FedRep) it is that part with an untrained rest, and then all of it is trained (a client of the
    run that was never sampled trains the rest alone). With `local`, which shares nothing, it is the first model.
    """
    check.whole("run", "newcomer_epochs", epochs)
    model, words = _received(algorithm, task, state)
    twin = replace(state, broadcast=model, visits=torch.zeros(newcomers.num_clients, dtype=torch.int32))
    work = Work(_plain(epochs), task, newcomers, training, seed)
    measured = [
        evaluate(_plain(n), task, newcomers, twin, ClientMemory(), metrics=metrics, tune=work.tune if n else None)
        for n in (0, epochs)
    ]
    return Welcome(words, epochs, *measured)


def _plain(epochs: int) -> Algorithm:
    """FedAvg whose clients train before use."""
    return Algorithm(FineTune(tune_epochs=epochs), BySize(), Step())


def _received(algorithm: Algorithm, task: Task, state: ServerState) -> tuple[Tensors, str]:
    """The whole model a newcomer gets, and what it is."""
    rule, shared = algorithm.client, state.broadcast
    check.require(
        rule.outcome == "model", "run", f"newcomers need a method that ends with a model, got {algorithm.name}"
    )
    if not rule.mixes:
        return shared_model(shared), "the first model, since nothing is shared"
    if len(shared["theta"]) == task.layout.size:
        return shared_model(shared), "the global model"
    return rule.deploy(task, shared, None), "the shared part of the global model with an untrained rest"
