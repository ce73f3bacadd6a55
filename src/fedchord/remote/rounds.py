"""The rounds of a run whose clients are elsewhere: the simulator's, but for who does the local part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from fedchord.core.records import Mix, RoundInfo, ServerState
from fedchord.core.round import Results, advance, close_round, following, open_round, weigh
from fedchord.engine.attendance import enough, somebody
from fedchord.engine.averaging import added
from fedchord.engine.guards import finite
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult, closed, finished, nobody
from fedchord.remote.asking import Asking, stacked
from fedchord.remote.parcel import Parcel


def rounds_of(asking: Asking, state: ServerState) -> Iterator[RoundResult]:
    """The rounds that are left."""
    work, course = asking.work, asking.course
    memory = ClientMemory()
    while state.round < course.rounds:
        start, before = time.perf_counter(), state
        here = asking.here(state.round)
        info, ids = open_round(state, course, work.training, here)
        size = course.size(asking.plan.clients)
        least = asking.service.terms.least(work.algorithm, size if work.algorithm.mixing.full else len(ids))
        run = one_phase if asking.service.phases == 1 else two_phases
        run = run if ids else no_phase
        state, mix, results, missing = run(asking, state, info, ids, least, size)
        state = added(state, course)
        yield finished(work, before, state, memory, results, mix, len(ids), missing, start)


Closed = tuple[ServerState, Mix, Results, dict[int, str]]


def no_phase(asking: Asking, state: ServerState, info: RoundInfo, ids: list[int], least: int, size: int) -> Closed:
    """A round for which chance has drawn nobody; where it is not chance, nobody is there, and the run ends."""
    work = asking.work
    somebody(asking.course, state.round + 1, size)
    results = nobody(work, state, info)
    return *close_round(work.algorithm, work.task, state, results, replace(info, cohort=0)), results, {}


def one_phase(asking: Asking, state: ServerState, info: RoundInfo, ids: list[int], least: int, size: int) -> Closed:
    """Updates and losses at once; the round is closed as in a simulation."""
    told = {"cohort": info.cohort}
    came, missing = asking.ask("train", state.broadcast, state, ids, asking.check_upload, least, told)
    enough(state.round + 1, len(came), least, size, missing)
    results = stacked(asking.work, came, asking.template)
    after, mix, taken, left_out = closed(asking.work, state, results, info, asking.defence)
    return after, mix, taken, missing | left_out


def two_phases(asking: Asking, state: ServerState, info: RoundInfo, ids: list[int], least: int, size: int) -> Closed:
    """Losses first, then weights, then updates that every client has weighed: a sum of them is all that is needed.

    Weights are of those who will be in the sum. Where one of them is missing then, the others are weighed anew.
    """
    work, algorithm, missing = asking.work, asking.work.algorithm, dict[int, str]()
    told: dict[int, Parcel] = {client: Parcel() for client in ids}
    if asking.told:
        cohort = {"cohort": info.cohort}
        told, missing = asking.ask("loss", state.broadcast, state, ids, asking.check_told, least, cohort)
    while True:
        enough(state.round + 1, len(told), least, size, missing)
        here = list(told)
        now = replace(info, cohort=len(here))
        known = stacked(work, told, asking.told)
        mix, mixing = weigh(algorithm, state, known, now)
        weights = {
            client: {"cohort": info.cohort, "coefficient": float(c), "share": float(s)}
            for client, c, s in zip(here, mix.coefficients.tolist(), mix.shares.tolist(), strict=True)
        }
        came, lost = asking.ask(
            "train",
            state.broadcast,
            state,
            here,
            asking.check_weighted,
            len(here),
            weights,
        )
        missing |= lost
        if not lost:
            break
        told = {client: parcel for client, parcel in told.items() if client in came}
    sums = stacked(work, came, {n: t for n, t in asking.template.items() if n not in asking.told})
    one = torch.ones(len(here), dtype=mix.shares.dtype)
    broadcast, server = advance(algorithm, work.task, state, sums, Mix(one, one), now)
    after = following(state, broadcast, mixing, server, sums.ids)
    finite(after)
    return after, mix, replace(sums, losses=known.losses, reports=known.reports), missing
