"""The joint choice: one lambda and one effort for all clients, by the sum of their losses on rows they hold out.

A client has two ends: the global model g and a model of its own, trained in the rounds (SuPerFed, APFL, Ditto) or
before use (fine-tuned FedAvg, stateless SuPerFed). How far from g to go is a question of the data: far where clients
differ, not at all where labels are wrong. One client has few rows to answer it with, all of them together have many:

1. rows are held out of the training rows before round 1, with the labels that training sees (`data.hold`);
2. each client makes its own end without them, once for every effort e (epochs of training before use), and adds up the
   loss of (1 - lam) g + lam own_e over its held-out rows, for every lam of the grid;
3. the server adds up these tables (sums of losses are all that leaves a client) and takes the lowest entry; of equal
   ones the smallest lam, then the smallest effort. Where it is careful (`within` = z above 0), it stays at the first
   entry, the global model g, unless that is higher by more than z standard errors: with D_i what it is higher at
   client i of K,

       sum_i D_i <= z sqrt(K / (K - 1) sum_i (D_i - mean D)^2)   keeps g;

4. every client takes its held-out rows back, trains once more before use where its rule does so, and deploys there.

lam = 0 is the global model itself, and the lam of the rule's own (fine-tuning: 1) is what the rule would deploy, its
own BatchNorm statistics included; at other points they are recomputed on the client's training rows. A client with one
model (never sampled) has the same loss everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedchord.check import at_least, one_of, require, whole
from fedchord.clients.finetune import FineTune
from fedchord.core.rules import LINE, Algorithm
from fedchord.engine.executors import Executor
from fedchord.evaluation.evaluate import ROWS, predicted, run_each
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import LAMBDAS, check_lambdas
from fedchord.tensors import Tensors, clone

LAMBDA, EPOCHS, BOTH = "lambda", "epochs", "both"
KINDS = (LAMBDA, EPOCHS, BOTH)
EFFORTS = (0, 1, 2, 5, 10)
HELD = 0.2
"""The share of the training rows that is held out unless it is said."""


@dataclass(frozen=True)
class Choice:
    """What was chosen for all clients, and the table it was chosen by.

    `at` is lambda (None: where the rule deploys), `epochs` the training before use (None: as the rule has it).
    `losses` are mean losses over all held-out rows, a row for each effort and a column for each lambda.
    """

    at: float | None
    epochs: int | None
    lambdas: tuple[float | None, ...]
    efforts: tuple[int | None, ...]
    losses: tuple[tuple[float, ...], ...]
    clients: int
    rows: int

    def told(self) -> dict[str, Any]:
        """For JSON."""
        table = [[loss if math.isfinite(loss) else None for loss in row] for row in self.losses]
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        return found | {"lambdas": list(self.lambdas), "efforts": list(self.efforts), "losses": table}

    @staticmethod
    def read(told: Mapping[str, Any]) -> Choice:
        """From JSON."""
        table = tuple(tuple(math.inf if loss is None else loss for loss in row) for row in told["losses"])
        grids = {"lambdas": tuple(told["lambdas"]), "efforts": tuple(told["efforts"])}
        return Choice(**{**told, **grids, "losses": table})


@dataclass(frozen=True)
class Chooser:
    """What is chosen (lambda, epochs or both), among which values, and how carefully (`within`, standard errors)."""

    kind: str = BOTH
    lambdas: tuple[float, ...] = LAMBDAS
    efforts: tuple[int, ...] = EFFORTS
    within: float = 0.0

    def __post_init__(self) -> None:
        one_of("choose", "choose", self.kind, KINDS)
        at_least("choose", "within", self.within, 0)
        check_lambdas(self.lambdas, "choose")
        require(len(self.efforts) > 0, "choose", "needs at least one number of epochs")
        for effort in self.efforts:
            whole("choose", "epochs", effort)

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a method that has no two ends, or no training before use where its length is to be chosen."""
        rule, name = algorithm.client, algorithm.title
        ends = rule.deploys.kind == LINE or (isinstance(rule, FineTune) and rule.form == "global")
        told = "is for methods with two ends (fedavg-ft, apfl, ditto, superfed-mm, ...)"
        require(ends, "choose", f"{told}, got {name}")
        if self.kind != LAMBDA:
            trains = hasattr(rule, "tune_epochs")
            told = f"{self.kind} is for methods that train before use (fedavg-ft, superfed-stateless)"
            require(trains, "choose", f"{told}, got {name}; use lambda")


def choose(fitted: Fitted, chooser: Chooser, executor: Executor | None = None) -> Choice:
    """The choice of all clients, in the workers of the executor if one is given."""
    chooser.check(fitted.work.algorithm)
    held = fitted.work.federation.held
    require(held is not None, "choose", "no rows are held out; see data.hold_out")
    assert held is not None
    lambdas: tuple[float | None, ...] = (None,) if chooser.kind == EPOCHS else tuple(sorted(chooser.lambdas))
    efforts: tuple[int | None, ...] = (None,) if chooser.kind == LAMBDA else tuple(sorted(chooser.efforts))
    clients: list[int] = held.sizes.nonzero().flatten().tolist()
    reports = run_each(executor, lambda client: losses_of(fitted, client, lambdas, efforts), clients)
    tables, units = torch.stack([table for table, _ in reports]), sum(over for _, over in reports)
    mean = (tables.sum(0) / units).nan_to_num(math.inf, math.inf)
    column, row = divmod(settled_on(tables.transpose(1, 2).flatten(1), chooser.within), len(efforts))
    table = tuple(tuple(line) for line in mean.tolist())
    return Choice(lambdas[column], efforts[row], lambdas, efforts, table, len(clients), len(held.rows))


def settled_on(tables: Tensor, within: float) -> int:
    """Which column of the clients' sums of losses, (clients, columns), is taken; see the top."""
    total = tables.sum(0).nan_to_num(math.inf, math.inf)
    lowest = int(total.argmin())  # the first of equal ones
    if not within or len(tables) < 2 or not total[0].isfinite():
        return lowest
    apart = tables[:, 0] - tables[:, lowest]
    return 0 if apart.sum() <= within * (len(tables) * apart.var()).sqrt() else lowest


def losses_of(
    fitted: Fitted, client: int, lambdas: tuple[float | None, ...], efforts: tuple[int | None, ...]
) -> tuple[Tensor, float]:
    """What one client reports: the sums of its losses, (efforts, lambdas), and what they are sums over."""
    work = fitted.work
    rows, at_once = work.federation.part("held")[client], work.task.objective.rows or ROWS
    table, units = torch.zeros(len(efforts), len(lambdas), dtype=torch.float64), 0.0
    for i, (effort, own) in enumerate(zip(efforts, owns(fitted, client, efforts), strict=True)):
        here = with_effort(fitted, effort)
        point = here.deployed_from(own)
        for j, at in enumerate(lambdas):
            model = here.model(client, point if at is None else here.placed(point, at))
            found = predicted(work.task, work.federation, model, rows, at_once, losses=True).losses
            assert found is not None
            table[i, j], units = found[0].double().sum(), float(found[1].double().sum())
    return table, units


def owns(fitted: Fitted, client: int, efforts: tuple[int | None, ...]) -> list[Tensors | None]:
    """What a client deploys from after each effort. The longest passes through the others, where they differ in epochs
    alone, and is trained once."""
    works, kept, state = (
        [with_effort(fitted, effort).work for effort in efforts],
        fitted.memory_of(client),
        fitted.state,
    )
    asked = [work.tuning(client, kept is not None, state)[1] for work in works]
    longest = max(range(len(works)), key=lambda at: efforts[at] or 0)
    alike = [len(phases) == 1 and replace(phases[0], epochs=0) for phases in asked if phases]
    if len(alike) < 2 or not alike[0] or any(one != alike[0] for one in alike):
        return [work.tune(client, kept, state) for work in works]
    stream, found = works[longest].stream(client, state.round), {}
    stops = {stream.steps(phases[0]) for phases in asked if phases}

    def watch(steps: int, trained: Tensors) -> None:
        if steps in stops:
            found[steps] = clone(trained)

    works[longest].tune(client, kept, state, watch)
    return [
        found[stream.steps(phases[0])] if phases and stream.size else work.tune(client, kept, state)
        for work, phases in zip(works, asked, strict=True)
    ]


def with_effort(fitted: Fitted, epochs: int | None) -> Fitted:
    """The same with another number of epochs before use."""
    if epochs is None:
        return fitted
    algorithm = fitted.work.algorithm
    rule = replace(algorithm.client, tune_epochs=epochs)  # type: ignore[type-var]
    return replace(fitted, work=replace(fitted.work, algorithm=replace(algorithm, client=rule)))


def settled(fitted: Fitted, choice: Choice) -> Fitted:
    """What clients deploy after a choice: the held-out rows are training rows again."""
    whole_again = replace(fitted.work, federation=fitted.work.federation.whole())
    return with_effort(replace(fitted, work=whole_again, at=choice.at), choice.epochs)
