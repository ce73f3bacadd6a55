"""The server's questions: what clients are sent, and what of their answers is taken."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from fedchord import check
from fedchord.check import FedchordError, require
from fedchord.core.records import Log, ServerState
from fedchord.core.round import Plan as Course
from fedchord.core.round import Results, open_run, round_info
from fedchord.engine.attendance import Terms, collected
from fedchord.engine.executors import one_thread
from fedchord.engine.guards import Defence
from fedchord.engine.weather import LOST, Weather
from fedchord.engine.work import Work
from fedchord.experiments.interrupts import stopping
from fedchord.privacy import draws
from fedchord.remote.checking import check_marks, check_size, check_tensors, signed, whole
from fedchord.remote.marks import GROUPS, LOSS, REPORT, grouped, packed
from fedchord.remote.parcel import Parcel
from fedchord.remote.plan import Plan
from fedchord.remote.transport import Answers, Transport
from fedchord.tensors import Tensors, num_bytes

OWNER = "answer"
POLL = 0.5
"""Seconds between two looks at who is there."""
Check = Callable[[Parcel], None]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Service:
    """How a server serves: seconds it waits for answers and for enough clients, and when a round goes on. `present` is
    the share of all clients that a round waits for before it begins (0: as many as it needs answers)."""

    deadline: float = 60.0
    wait: float = 600.0
    terms: Terms = field(default_factory=Terms)
    phases: int = 1
    present: float = 0.0

    def __post_init__(self) -> None:
        check.positive("serve", "deadline", self.deadline)
        check.at_least("serve", "wait", self.wait, 0)
        check.between("serve", "present", self.present, 0, 1)
        require(self.phases in (1, 2), "serve", f"phases must be 1 or 2, got {self.phases!r}")


@dataclass(frozen=True)
class Asking:
    """A plan, the way to its clients, and the work of the run without its rows."""

    plan: Plan
    transport: Transport
    work: Work
    service: Service
    weather: Weather | None = None
    say: Report = lambda line: None
    secret: bytes = b""
    """What cohorts are drawn by where clients must not know them; empty: by the seed of the plan."""

    def __post_init__(self) -> None:
        needs = set(self.work.algorithm.mixing.needs)
        two = self.service.phases == 1 or needs <= {"loss"}
        name = type(self.work.algorithm.mixing).__name__
        looks = self.defence.looks
        sums = self.service.phases == 1 or not looks
        require(sums, "serve", f"phases=2 is for sums of updates, and {looks} must see single ones; use phases=1")
        plain = self.service.phases == 1 or self.work.compress is None
        require(plain, "serve", "phases=2 lets clients weigh updates, which compress has rounded; use phases=1")
        require(two, "serve", f"phases=2 is for mixing rules that need losses at most; {name} needs {sorted(needs)}")

    @property
    def defence(self) -> Defence:
        """How uploads are taken; how many must be left is the service's."""
        return self.plan.config.defended(self.service.terms)

    @property
    def course(self) -> Course:
        """Rounds, cohort and seed, and how cohorts are drawn."""
        lot = draws.secret_key(self.secret, "cohort") if self.secret else None
        return replace(self.plan.course, lot=lot)

    # -- who is there ----------------------------------------------------------------------------------------------

    def here(self, round: int) -> list[int]:
        """The clients that can be asked in a round (from 0), sorted; it waits until they are enough, for a while."""
        size = self.plan.course.size(self.plan.clients)
        least = self.service.terms.least(self.work.algorithm, size)
        least = max(least, math.ceil(self.service.present * self.plan.clients - 1e-9))
        until, told = time.monotonic() + self.service.wait, False
        while True:
            found = self._present(round)
            if len(found) >= least or time.monotonic() >= until:
                return found
            if stopping():
                raise KeyboardInterrupt
            if not told:
                self.say(f"round {round + 1}: waiting for clients, {len(found)} are here, {least} are needed")
                told = True
            time.sleep(min(POLL, max(0.0, until - time.monotonic())))

    def _present(self, round: int) -> list[int]:
        found = self.transport.clients() & set(range(self.plan.clients))
        if self.weather is not None:
            found &= set(self.weather.here(self.plan.course.seed, round, self.plan.clients))
        return sorted(found)

    # -- asking ----------------------------------------------------------------------------------------------------

    def ask(
        self,
        kind: str,
        tensors: Tensors,
        state: ServerState,
        ids: Sequence[int],
        check: Check,
        least: int,
        more: Mapping[int, Mapping[str, Any]] | Mapping[str, Any] | None = None,
    ) -> tuple[dict[int, Parcel], dict[int, str]]:
        """The answers that are good, and why others are missing; those are asked again until enough are there.

        `more` are facts for all of them, or, by number, for one.
        """

        def told(client: int) -> dict[str, Any]:
            found: Any = more or {}
            return dict(found.get(client, found))

        def attempt(waiting: list[int], number: int) -> tuple[dict[int, Parcel], dict[int, str]]:
            if number and stopping():
                raise KeyboardInterrupt
            parcels = {
                client: Parcel(
                    tensors,
                    signed(self.plan, round=state.round, counted=state.counted[client], **told(client)),
                )
                for client in waiting
            }
            found = self.transport.ask(kind, parcels, self.service.deadline)
            if kind in ("train", "loss"):
                found = self._weathered(found, state.round, number)
            good, bad = {}, dict(found.missing)
            for client, parcel in found.parcels.items():
                problem = self._problem(parcel, state.round, check) if client in parcels else "garbage: not asked"
                if problem:
                    bad[client] = problem
                else:
                    good[client] = parcel
            self._tell(state.round, bad)
            return good, {client: bad.get(client, "late") for client in waiting if client not in good}

        return collected(ids, least, self.service.terms.attempts, attempt)

    def _tell(self, round: int, bad: Mapping[int, str]) -> None:
        """A line for every answer that is not taken, here and at its node."""
        strange = {client: why for client, why in bad.items() if why.startswith(("garbage", "another round"))}
        for client, why in strange.items():
            name = self.plan.outline.client_names[client]
            self.say(f"round {round + 1}: the answer of {name} is not taken ({why})")
        notices = {client: signed(self.plan, round=round, reason=why) for client, why in strange.items()}
        if notices:
            self.transport.tell("notice", {client: Parcel({}, facts) for client, facts in notices.items()})

    def _weathered(self, found: Answers, round: int, attempt: int) -> Answers:
        if self.weather is None:
            return found
        keeps = self.weather.keeps(self.plan.course.seed, round, attempt, self.plan.clients)
        lost = {client: LOST for client in found.parcels if not keeps[client]}
        kept = {client: parcel for client, parcel in found.parcels.items() if keeps[client]}
        return Answers(kept, found.missing | lost)

    def _problem(self, parcel: Parcel, round: int, check: Check) -> str:
        """What is wrong with an answer, in words; "" if nothing is."""
        try:
            check_marks(self.plan, parcel.facts, OWNER)
            told = whole(parcel.facts, "round", OWNER, 0, self.plan.course.rounds)
            if told != round:
                return f"another round: {told + 1}"
            with one_thread():
                check(parcel)
        except FedchordError as error:
            return f"garbage: {error}"
        return ""

    # -- what an upload looks like ---------------------------------------------------------------------------------

    @cached_property
    def template(self) -> Tensors:
        """What clients of this plan send, with zeros: the upload of a round without a step, and the loss or report."""
        work, course = self.work, self.plan.course
        state = open_run(work.algorithm, work.task, self.plan.clients, course)
        info = round_info(course, work.training, self.plan.clients, 0, 1)
        upload, _, _ = work.run(0, state.broadcast, None, info, limit=0)
        return packed(upload) | self.told

    @cached_property
    def told(self) -> Tensors:
        """What clients tell beside their update: the loss, or what is told in its place."""
        mixing = self.work.algorithm.mixing
        name = REPORT if mixing.secret else LOSS
        return {name: torch.zeros(1, dtype=torch.float64)} if "loss" in mixing.needs else {}

    def check_upload(self, parcel: Parcel) -> None:
        """Refuse an upload that is not one of this plan."""
        self._check(parcel, self.work.compress.packed(self.template) if self.work.compress else self.template)

    def check_weighted(self, parcel: Parcel) -> None:
        """Refuse an upload of the second of two phases that is not one."""
        self._check(parcel, {name: like for name, like in self.template.items() if name not in self.told})

    def _check(self, parcel: Parcel, expected: Tensors) -> None:
        check_size(parcel, num_bytes(expected), OWNER)
        loose = {name: like for name, like in expected.items() if name.startswith("log.") or name in self.told}
        strict = {name: like for name, like in expected.items() if name not in loose}
        free = {name: tensor for name, tensor in parcel.tensors.items() if name in loose}
        check_tensors({n: t for n, t in parcel.tensors.items() if n not in free}, strict, OWNER)
        kept = frozenset(name for name in loose if name not in self.told)
        check_tensors(free, loose, OWNER, finite=False, optional=kept)  # a loss may be no number; rules know

    def check_told(self, parcel: Parcel) -> None:
        """Refuse anything but a loss, or what is told in its place."""
        check_size(parcel, num_bytes(self.told), OWNER)
        check_tensors(parcel.tensors, self.told, OWNER, finite=False)


def stacked(work: Work, replies: Mapping[int, Parcel], template: Tensors) -> Results:
    """What came back, in the order of the clients; log entries that a client kept are NaN."""
    ids, how = list(replies), work.compress
    came = [replies[client].tensors if how is None else how.unpacked(replies[client].tensors) for client in ids]
    rows: Tensors = {}
    for name, like in template.items():
        parts = [tensors.get(name) for tensors in came]
        rows[name] = torch.stack([torch.full_like(like, torch.nan) if part is None else part for part in parts])
    groups = grouped(rows)
    losses, reports = (rows[name].flatten() if name in rows else None for name in (LOSS, REPORT))
    mix, carry, mean, means, sums = (groups[group] for group in GROUPS)
    sizes = work.federation.train.sizes[ids]
    return Results(torch.tensor(ids), sizes, mix, carry, mean, Log(means, sums), losses, reports)
