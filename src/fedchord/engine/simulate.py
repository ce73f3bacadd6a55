"""`simulate`: a generator of round results. It trains, and nothing else; the caller's `for` body does the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedchord import check, notebook
from fedchord.attacks.attack import Attack
from fedchord.check import FedchordError
from fedchord.core import clock
from fedchord.core.round import Plan, Results, close_round, open_round, open_run
from fedchord.core.rules import Algorithm, Mix, RoundInfo, ServerState
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.attendance import collected, enough, somebody
from fedchord.engine.averaging import added
from fedchord.engine.compress import Compress, asked, bytes_up
from fedchord.engine.executors import Executor, make_executor, one_thread
from fedchord.engine.group import group_of
from fedchord.engine.guards import Defence, finite
from fedchord.engine.memory import ClientMemory
from fedchord.engine.ranks import RankMemory
from fedchord.engine.weather import LOST, Weather
from fedchord.engine.work import Work
from fedchord.privacy.shield import drawing, shield
from fedchord.privacy.terms import CLIENTS, Privacy
from fedchord.tensors import num_bytes


@dataclass(frozen=True)
class RoundResult:
    """One finished round; `round` counts from 1. `work`, `state` and `memory` are all that a `Fitted` needs."""

    round: int
    cohort: tuple[int, ...]
    shares: Tensor
    losses: Tensor | None
    log: dict[str, float]
    seconds: float
    bytes_up: int
    bytes_down: int
    work: Work
    state: ServerState
    memory: ClientMemory
    missing: dict[int, str] = field(default_factory=dict)
    """Clients of the cohort whose work is not part of the round, and why."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.round}: {self._words()})"

    def _words(self) -> str:
        """The round in a few words."""
        return f"{notebook.counted(len(self.cohort), 'client')}, {self.seconds:.2g} s"


def simulate(
    algorithm: Algorithm,
    task: Task,
    federation: Federation,
    *,
    rounds: int = 10,
    cohort: int | float = 1.0,
    seed: int = 0,
    training: Training | None = None,
    executor: str | Executor = "processes",
    workers: int | None = None,
    device: str = "auto",
    state: ServerState | None = None,
    memory: ClientMemory | None = None,
    report: Callable[[str], None] = lambda line: None,
    weather: Weather | None = None,
    average: float = 0.0,
    attack: Attack | None = None,
    defence: Defence | None = None,
    privacy: Privacy | None = None,
    compress: Compress | str | None = None,
) -> Iterator[RoundResult]:
    """Train an algorithm on a federation, one `RoundResult` per round.

    `cohort` is a number of clients or a share of them. `executor` is a name (serial, processes, ranks, vectorised,
    auto) or an executor of the caller's, made for the same work and closed by the caller. With a `state` and a `memory`
    (of a checkpoint) the run goes on from there, to the bit-identical result. In a `weather` clients are away and
    replies get lost, as over a network. `average` is the share of the rounds, the last ones, whose global models are
    averaged: a `Fitted` of the result deploys their mean. In an `attack` some clients are hostile (an executor of the
    caller's is made with `attack.among(federation, seed)`), and a `defence` says how the server takes uploads. With
    `privacy` what leaves clients is hidden by noise. `compress` ("half", "bytes" or a `Compress`) sends uploads in
    fewer bytes. Nothing runs until the generator is advanced.
    """
    plan = Plan(rounds, cohort, seed, average=average, draw=drawing(privacy))
    defence, how = defended(algorithm, attack, defence, weather, privacy, asked(compress)), asked(compress)
    if attack is not None and isinstance(executor, str):
        federation = attack.among(federation, seed)
    hidden = shield(algorithm, privacy, task, federation, plan, training or Training())
    shielded = (hidden.guards, False, hidden.hiding, how)
    work = Work.of(hidden.algorithm, hidden.task, federation, training, seed, device, *shielded)
    memory = memory if memory is not None else ClientMemory(device=work.task.device)
    memory = RankMemory.of(memory, group_of(executor))
    state = (state or open_run(work.algorithm, work.task, federation.num_clients, plan)).to(work.task.device)
    if isinstance(executor, str):
        work.rehearse(state, plan)
        size = plan.most(federation.num_clients)
        runner = make_executor(executor, work, state.broadcast, size, workers, report)
    else:
        runner = executor
        same = runner.work == work
        check.require(
            same, "simulate", "the executor was made for another algorithm, task, federation, training or seed"
        )
    try:
        yield from rounds_of(runner, plan, state, memory, weather, attack, defence)
    finally:
        if isinstance(executor, str):
            runner.close()


def defended(
    algorithm: Algorithm,
    attack: Attack | None,
    defence: Defence | None,
    weather: Weather | None = None,
    privacy: Privacy | None = None,
    compress: Compress | None = None,
) -> Defence:
    """The defence, or the usual one; what does not fit the algorithm is refused."""
    made = defence or (Defence() if weather is None else Defence(terms=weather.terms))
    hidden = privacy is not None and privacy.level == CLIENTS
    made.check(algorithm, hidden)
    if compress is not None:
        compress.check(algorithm, hidden, made.combine)
    if attack is not None:
        attack.check(algorithm)
    return made


def rounds_of(
    runner: Executor,
    plan: Plan,
    state: ServerState,
    memory: ClientMemory,
    weather: Weather | None = None,
    attack: Attack | None = None,
    defence: Defence | None = None,
) -> Iterator[RoundResult]:
    """The rounds that are left, by an executor."""
    work, defence = runner.work, defence or Defence()
    while state.round < plan.rounds:
        with one_thread():  # idle threads would spin beside the workers, and sums have the same bits on any machine
            start = time.perf_counter()
            here = None if weather is None else weather.here(plan.seed, state.round, len(state.visits))
            info, asked = open_round(state, plan, work.training, here)
            ids, missing = (asked, {}) if weather is None else _arrived(work.algorithm, plan, weather, state, asked)
            results = runner.run(state.broadcast, ids, info, memory) if ids else nobody(work, state, info)
            if attack is not None:
                results = attack.sent(results, plan.seed, state.round, len(state.visits))
            before = state
            try:
                with clock.span(clock.MIXING):
                    state, mix, results, left_out = closed(work, state, results, info, defence)
                    state = added(state, plan)
            except FedchordError:
                memory.settle(ids)  # the round is not part of the run
                raise
            memory.settle(left_out)
            mix = mix if attack is None else attack.told(mix, results, plan.seed, len(state.visits))
            done = finished(work, before, state, memory, results, mix, len(asked), missing | left_out, start)
        yield done


def closed(
    work: Work, state: ServerState, results: Results, info: RoundInfo, defence: Defence
) -> tuple[ServerState, Mix, Results, dict[int, str]]:
    """The server after a round, by the uploads that it takes; why others are left out, by client."""
    with one_thread():
        taken, left_out = defence.taken(work.algorithm, state, results)
        now = replace(info, cohort=len(taken.ids))
        after, mix = close_round(work.algorithm, work.task, state, taken, now, defence.combiner)
        finite(after)
    return after, mix, taken, left_out


def nobody(work: Work, state: ServerState, info: RoundInfo) -> Results:
    """What comes back from a cohort of nobody, which chance may draw: uploads of no rows."""
    upload, _, _ = work.run(0, state.broadcast, None, info, limit=0)
    none = torch.zeros(0, dtype=torch.int64)
    mix, carry, mean = (
        {name: tensor.new_zeros((0, *tensor.shape)) for name, tensor in part.items()}
        for part in (upload.mix, upload.carry, upload.mean)
    )
    return Results(none, none, mix, carry, mean)


def finished(
    work: Work,
    before: ServerState,
    after: ServerState,
    memory: ClientMemory,
    results: Results,
    mix: Mix,
    asked: int,
    missing: dict[int, str],
    start: float,
) -> RoundResult:
    """A round that is over, as a record: `asked` clients were sent the broadcast, at `start`."""
    ids = results.ids.tolist()
    down = num_bytes(before.broadcast) * asked if work.algorithm.client.sends else 0
    up = bytes_up(results, work.compress)
    up += 4 * len(ids) if work.needs_loss else 0
    log, seconds = dict(mix.log) | results.log.over_cohort(), time.perf_counter() - start
    return RoundResult(
        after.round, tuple(ids), mix.shares, results.losses, log, seconds, up, down, work, after, memory, missing
    )


def _arrived(
    algorithm: Algorithm, plan: Plan, weather: Weather, state: ServerState, asked: list[int]
) -> tuple[list[int], dict[int, str]]:
    """Whose replies arrive in a weather; the others need not train, since nothing is left of it."""
    clients, size = len(state.visits), plan.size(len(state.visits))
    if not asked:
        somebody(plan, state.round + 1, size)
        return [], {}
    least = weather.terms.least(algorithm, size if algorithm.mixing.full else len(asked))

    def ask(ids: list[int], attempt: int) -> tuple[dict[int, bool], dict[int, str]]:
        keeps = weather.keeps(plan.seed, state.round, attempt, clients)
        return {client: True for client in ids if keeps[client]}, dict.fromkeys(ids, LOST)

    came, missing = collected(asked, least, weather.terms.attempts, ask)
    enough(state.round + 1, len(came), least, size, missing)
    return list(came), missing
