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
from fedchord.core.per_client import PerClient
from fedchord.core.rules import Algorithm, Line, shared_model
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.executors import Executor
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.evaluation.evaluate import Evaluation, evaluate
from fedchord.evaluation.fitted import Fitted
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
    fitted: Fitted,
    newcomers: Federation,
    training: Training,
    epochs: int = 1,
    metrics: tuple[str, ...] | None = None,
    executor: Executor | None = None,
) -> Welcome:
    """Measure newcomers with the model of a finished run, before and after `epochs` of plain local training.

    Plain: FedAvg's local steps on the newcomer's training rows, with the run's batch size and optimiser and the
    learning rate of the last round. What is received is the global model. Where only a part of the model is shared
    (FedPer, LG-FedAvg, FedRep) it is that part with an untrained rest, and then all of it is trained (a client of the
    run that was never sampled trains the rest alone). With `local`, which shares nothing, it is the first model.
    """
    check.whole("run", "newcomer_epochs", epochs)
    model, words = newcomer_model(fitted)
    visits = PerClient.filled(newcomers.num_clients, 0, torch.int32)
    state = replace(fitted.state, broadcast=model, visits=visits)
    received, tuned = (
        evaluate(
            Fitted(
                Work(plain_tuning(n), fitted.work.task, newcomers, training, fitted.work.seed), state, ClientMemory()
            ),
            metrics=metrics,
            executor=executor,
        )
        for n in (0, epochs)
    )
    return Welcome(words, epochs, received, tuned)


def plain_tuning(epochs: int) -> Algorithm:
    """FedAvg whose clients train before use."""
    return Algorithm(FineTune(tune_epochs=epochs), BySize(), Step())


def newcomer_model(fitted: Fitted) -> tuple[Tensors, str]:
    """The whole model a newcomer gets, and what it is."""
    algorithm, task, shared = fitted.work.algorithm, fitted.work.task, fitted.state.broadcast
    check.require(
        algorithm.outcome == "model", "run", f"newcomers need a method that ends with a model, got {algorithm.name}"
    )
    if not algorithm.client.sends:
        return shared_model(shared), "the first model, since nothing is shared"
    if len(shared["theta"]) == task.layout.size:
        return shared_model(shared), "the global model"
    untrained = algorithm.client.deploy(task, shared, None)
    assert not isinstance(untrained, Line)  # a line has two whole models
    return untrained, "the shared part of the global model with an untrained rest"
