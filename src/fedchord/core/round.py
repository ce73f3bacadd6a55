"""The server's half of a round: draw the cohort, weigh what came back, mix it, step.

batches --> local_round (one client) --> Results --> mixing.weigh --> weighted sum --> server.step -->
ServerState(round + 1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.core.per_client import PerClient
from fedchord.core.rules import Algorithm, Cohort, Log, Mix, RoundInfo, ServerState, Update
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.tensors import Tensors, weighted_sum

MOST_ROUNDS = 10_000_000
Combine = Callable[[Tensor, Tensor], Tensor]
"""Makes one upload of many: coefficients and stacked uploads to their sum, or to what takes its place."""


@dataclass(frozen=True)
class Plan:
    """How long and with whom: rounds, clients a round (a number, or a share of all given as a fraction below 1),
    seed. With `at_most` the number is no promise: where there are fewer clients, all take part. `average` is the share
    of the rounds, the last ones, whose global models are averaged (0: none). `draw` is whom a cohort is drawn from:
    those who are there ("here"), or all, whoever is there ("all"); "poisson" takes each of all with the same
    probability, so that the number is one on average. `lot` is what cohorts are drawn by where clients must not know it
    (None: the seed)."""

    rounds: int = 10
    cohort: int | float = 1.0
    seed: int = 0
    at_most: bool = False
    average: float = 0.0
    draw: str = "here"
    lot: int | None = None

    def __post_init__(self) -> None:
        check.whole("run", "rounds", self.rounds, 1, MOST_ROUNDS)
        check.whole("run", "seed", self.seed)
        if isinstance(self.cohort, float):
            check.require(
                0 < self.cohort <= 1, "run", f"cohort as a share must be above 0 and at most 1, got {self.cohort}"
            )
        else:
            check.whole("run", "cohort", self.cohort, 1)
        check.between("run", "average", self.average, 0, 1)
        check.one_of("run", "draw", self.draw, ("here", "all", "poisson"))

    @property
    def horizon(self) -> str:
        """What depends on the number of rounds, in words."""
        return "averages a share of all rounds (average)" if self.average else ""

    def averages(self, round: int) -> bool:
        """Whether the model after a round, counted from 1, is one of those that are averaged: the last
        max(1, floor(average T)) of T rounds."""
        return self.average > 0 and round > self.rounds - max(1, math.floor(self.average * self.rounds + 1e-9))

    def size(self, num_clients: int) -> int:
        """|S| = max(1, floor(C K)) for a share C (departs: E3, E10), or the number itself."""
        if isinstance(self.cohort, float):
            return max(1, math.floor(self.cohort * num_clients + 1e-9))
        if self.at_most:
            return min(self.cohort, num_clients)
        check.require(
            self.cohort <= num_clients,
            "run",
            f"cohort must be at most the number of clients, {num_clients}, got {self.cohort}",
        )
        return self.cohort

    def most(self, num_clients: int) -> int:
        """The most clients that a round may have."""
        return num_clients if self.draw == "poisson" else self.size(num_clients)


@dataclass(frozen=True)
class Results:
    """What came back from a cohort: uploads stacked along the first axis, in the order of `ids`."""

    ids: Tensor
    sizes: Tensor
    mix: Tensors
    carry: Tensors = field(default_factory=dict)
    mean: Tensors = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    losses: Tensor | None = None
    reports: Tensor | None = None
    """What clients told in place of their losses, where they did so themselves (`MixingRule.secret`)."""


def open_run(algorithm: Algorithm, task: Task, num_clients: int, plan: Plan) -> ServerState:
    """The server before the first round."""
    size = plan.size(num_clients)
    mixing = algorithm.mixing
    check.require(
        not mixing.full or size == num_clients,
        type(mixing).__name__,
        f"needs every client in every round, got cohort {size} of {num_clients}"
        + (f"; use {mixing.instead}, or cohort=all" if mixing.instead else ""),
    )
    averaged = not plan.average or (algorithm.outcome == "model" and bool(algorithm.client.sends))
    check.require(averaged, "run", f"average is a mean of global models, and {algorithm.title} has none")
    broadcast = algorithm.client.opening(task, rng.key(plan.seed, "model"))
    moving = {name: broadcast[name] for name in algorithm.client.sends if name in broadcast}
    visits = PerClient.filled(num_clients, 0, torch.int32)
    return ServerState(0, broadcast, mixing.init(num_clients), algorithm.server.init(moving), visits)


def open_round(
    state: ServerState, plan: Plan, training: Training, here: Sequence[int] | None = None
) -> tuple[RoundInfo, list[int]]:
    """What is known about the round, and its cohort: a uniform sample without replacement, sorted.

    It is drawn among those who are `here` (sorted; None: all); where they are too few, all of them take part.
    """
    num_clients = len(state.visits)
    if plan.draw != "here":
        return _drawn_from_all(state, plan, training, here)
    present = num_clients if here is None else len(here)
    size = min(plan.size(num_clients), present)
    info = round_info(plan, training, num_clients, state.round, size)
    ids = range(present) if size == present else rng.choose(rng.key(plan.seed, "cohort", state.round), present, size)
    return info, list(ids) if here is None else [here[place] for place in ids]


def _drawn_from_all(
    state: ServerState, plan: Plan, training: Training, here: Sequence[int] | None
) -> tuple[RoundInfo, list[int]]:
    """A cohort of all clients, as its chances must not depend on who is there; those who are not are left out."""
    num_clients, key = len(state.visits), rng.key(plan.seed if plan.lot is None else plan.lot, "cohort", state.round)
    size = plan.size(num_clients)
    if size == num_clients:
        drawn = list(range(num_clients))
    elif plan.draw == "poisson":
        drawn = (rng.uniform(key, num_clients) < size / num_clients).nonzero().flatten().tolist()
    else:
        drawn = rng.choose(key, num_clients, size)
    present = range(num_clients) if here is None else set(here)
    return round_info(plan, training, num_clients, state.round, size), [i for i in drawn if i in present]


def round_info(plan: Plan, training: Training, num_clients: int, round: int, cohort: int) -> RoundInfo:
    """What is known about a round, on whatever machine."""
    key = rng.key(plan.seed, "server", round)
    return RoundInfo(round, plan.rounds, num_clients, cohort, training.rate(round), training.epochs, key)


def close_round(
    algorithm: Algorithm,
    task: Task,
    state: ServerState,
    results: Results,
    info: RoundInfo,
    combine: Combine = weighted_sum,
) -> tuple[ServerState, Mix]:
    """Weigh, mix, step."""
    mix, mixing = weigh(algorithm, state, results, info)
    broadcast, server = advance(algorithm, task, state, results, mix, info, combine)
    return following(state, broadcast, mixing, server, results.ids), mix


def following(state: ServerState, broadcast: Tensors, mixing: Tensors, server: Tensors, ids: Tensor) -> ServerState:
    """The server after a round of some clients: what it broadcasts next and what its rules remember."""
    took_part: list[int] = ids.tolist()
    visits, counted = state.visits.added(took_part, 1), state.counted.replaced(took_part, state.round)
    return ServerState(state.round + 1, broadcast, mixing, server, visits, counted, state.sums)


def weigh(algorithm: Algorithm, state: ServerState, results: Results, info: RoundInfo) -> tuple[Mix, Tensors]:
    """How much each client counts, and what the mixing rule remembers."""
    cohort = _cohort(algorithm, results)
    mix, memory = algorithm.mixing.weigh(state.mixing, cohort, info)
    check_mix(algorithm, mix, len(cohort.ids))
    return mix, memory


def check_mix(algorithm: Algorithm, mix: Mix, count: int) -> None:
    """A mixing rule gives every client of the cohort its weight."""
    for name in ("coefficients", "shares"):
        found, owner = len(getattr(mix, name)), type(algorithm.mixing).__name__
        check.require(found == count, owner, f"weigh gives {found} {name} for a cohort of {count}")


def advance(
    algorithm: Algorithm,
    task: Task,
    state: ServerState,
    results: Results,
    mix: Mix,
    info: RoundInfo,
    combine: Combine = weighted_sum,
) -> tuple[Tensors, Tensors]:
    """The next broadcast from what came back, and what the server rule remembers."""
    equal = torch.full_like(mix.shares, 1 / max(1, len(results.ids)))
    update = Update(
        mix={name: combine(mix.coefficients, stacked) for name, stacked in results.mix.items()},
        mean={name: combine(equal, stacked) for name, stacked in results.mean.items()},
    )
    broadcast, server = state.broadcast, state.server
    if algorithm.client.sends:  # else there is nothing for the server to do
        broadcast, server = algorithm.server.step(broadcast, update, server, info)
    broadcast = broadcast | _carried(task, mix.shares, results.carry, combine)
    _check_entries(type(algorithm.server).__name__, state.broadcast, broadcast)
    return broadcast, server


def _carried(task: Task, shares: Tensor, carry: Tensors, combine: Combine) -> Tensors:
    """Buffers combined with the shares; whole-number counters take the maximum."""
    carried: Tensors = {}
    for name, stacked in carry.items():
        if stacked.numel():
            counters = task.buffers.counters.to(stacked.device)
            mean = combine(shares, stacked)
            if counters.any() and counters.shape == mean.shape:
                mean = torch.where(counters, stacked.amax(0), mean)
            carried[name] = mean
    return carried


def _check_entries(owner: str, before: Tensors, after: Tensors) -> None:
    """A server rule keeps every entry of the broadcast."""
    for name, tensor in before.items():
        check.require(name in after, owner, f"step leaves {name} out of the broadcast; return broadcast | {{...}}")
        now, was = tuple(after[name].shape), tuple(tensor.shape)
        check.require(now == was, owner, f"step gives {name} the shape {now}, it was {was}")


def _cohort(algorithm: Algorithm, results: Results) -> Cohort:
    """What the mixing rule asked for, and no more."""
    needs = algorithm.mixing.needs
    norms = gram = None
    if "norm" in needs or "gram" in needs:
        rows = results.mix["theta"].reshape(len(results.ids), -1).double()
        gram = rows @ rows.t() if "gram" in needs else None
        squares = gram.diagonal() if gram is not None else rows.square().sum(1)
        norms = squares.clamp_min(0).sqrt()
    losses = results.losses if "loss" in needs else None
    return Cohort(results.ids, results.sizes, losses, norms, gram, results.reports)
