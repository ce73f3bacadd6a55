"""A node: one client on its owner's machine. It answers what a server asks, from its own rows and its own memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fedchord.check import FedchordError, require
from fedchord.core.local import data_loss
from fedchord.core.per_client import PerClient
from fedchord.core.round import open_run, round_info
from fedchord.core.rules import LINE, RoundInfo, ServerState, Upload, Visit
from fedchord.core.task import Task
from fedchord.data.federation import Federation
from fedchord.engine.compress import divided
from fedchord.engine.executors import one_thread
from fedchord.engine.memory import ClientMemory
from fedchord.evaluation.evaluate import Measured, checked, measured, scored
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import measured_lines, tables_of
from fedchord.experiments.parts import beside, headline
from fedchord.privacy.clients import Clip
from fedchord.privacy.terms import ROWS
from fedchord.remote import noise
from fedchord.remote.audit import IN, OUT, Audit
from fedchord.remote.checking import check_marks, check_size, check_tensors, fits, number, signed, whole
from fedchord.remote.limits import Limits
from fedchord.remote.marks import LOSS, REPORT, digest, packed, weighted
from fedchord.remote.memory import NEVER, VERSIONS, Versions
from fedchord.remote.parcel import Parcel
from fedchord.remote.plan import Plan
from fedchord.tensors import Tensors, num_bytes

OWNER = "message"
SPLITS = ("test", "validation")
MOST = 1e6
"""The largest coefficient that a server may ask for."""


class Node:
    """One client of a plan: its rows (those of the others are empty, see `data.alone`), and its memory on disk.

    `secret` keys the noise that a private report needs; `limits` are the owner's; `audit` is a file that gets a line
    for every message.
    """

    def __init__(
        self,
        plan: Plan,
        client: int,
        rows: Federation,
        memory: Path,
        *,
        secret: bytes = b"",
        limits: Limits | None = None,
        audit: Path | None = None,
        versions: int = VERSIONS,
    ) -> None:
        self.plan, self.client, self.limits = plan, client, limits or Limits()
        fits(plan, client, rows)
        self.limits.allowed(plan.config.method)
        needed = plan.algorithm.mixing.secret and not secret
        require(not needed, "node", f"{plan.config.method} needs a secret of the node, for the noise of its reports")
        self._hides = hides = plan.config.privacy == ROWS
        require(bool(secret) or not hides, "node", "privacy=rows needs a secret of the node, for its noise")
        self._secret = secret
        self.versions, self.audit = Versions(memory, plan.fingerprint, versions), Audit(audit)
        guards = () if self.limits.clip is None else (Clip(self.limits.clip),)
        self.work = plan.work(rows, guards, secret if hides else b"")
        whole = self.work.compress is None or self.limits.clip is None
        require(whole, "limits", "clip is of updates as they are, and compress rounds them; leave one of the two out")
        self._kinds: dict[str, Callable[[Parcel], Parcel]] = {
            "hello": lambda parcel: self.hello(),
            "loss": self._loss,
            "train": self._train,
            "evaluate": self._limited(self._evaluate),
            "judge": self._limited(self._judge),
            "sweep": self._limited(self._sweep),
            "notice": lambda parcel: Parcel(facts=signed(self.plan)),
        }

    # -- talking ---------------------------------------------------------------------------------------------------

    def hello(self) -> Parcel:
        """Who it is, and of which plan and version."""
        return Parcel(facts=signed(self.plan, client=self.client, name=self.plan.outline.client_names[self.client]))

    def answer(self, kind: str, parcel: Parcel) -> Parcel:
        """What the client sends back; a refusal is an error of one line, and is written down."""
        try:
            require(kind in self._kinds, OWNER, f"nobody knows the question {kind!r}")
            if kind != "hello":
                check_size(parcel, self._largest, OWNER)
                check_marks(self.plan, parcel.facts, OWNER)
            self.audit.message(IN, kind, parcel)
            with one_thread():
                reply = self._kinds[kind](parcel)
            self.audit.message(OUT, kind, reply)
            return reply
        except FedchordError as error:
            self.audit.refusal(kind, parcel, str(error))
            raise

    def leaving(self) -> dict[str, Tensors]:
        """What would leave, by question: names and tensors of zeros in their shapes; no row is read for it."""
        info = round_info(self.plan.course, self.work.training, self.plan.clients, 0, 1)
        upload, _, _ = self.work.run(self.client, self._template, None, info, limit=0)
        sent = self._packed(upload)
        one, usual = torch.zeros(1, dtype=torch.float64), self._measures
        told = {} if not self.work.needs_loss else {REPORT if self.work.algorithm.mixing.secret else LOSS: one}
        names = self.limits.metric(self.plan.metrics(usual) or usual)
        counts = {"counts": torch.zeros(1, dtype=torch.int64)} if names else {}
        found = {"train": {n: torch.zeros_like(t) for n, t in sent.items()} | told}
        samples = self.plan.algorithm.outcome == "samples"
        found["judge" if samples else "evaluate"] = {f"metric/{name}": one for name in names} | counts
        if self.work.algorithm.client.deploys.kind == LINE:
            found["sweep"] = self._line()
        return found

    @property
    def _measures(self) -> tuple[str, ...]:
        """The usual metrics."""
        samples = self.plan.algorithm.outcome == "samples"
        return (self._judged[0] if samples else self.work.task).objective.metrics

    def _line(self) -> Tensors:
        """What a sweep would send; nothing where the owner does not let all of it go."""
        row = torch.zeros(1, len(self.plan.config.lambdas()), dtype=torch.float64)
        return {f"{split}/{name}": row for split, part in self._wanted.items() for name in part}

    @cached_property
    def _wanted(self) -> dict[str, tuple[str, ...]]:
        """What a sweep measures, by split: the headline with what chooses lambda, if the owner lets all of it go, and
        of what stands beside it as much as may."""
        metric = headline(self.work.task.objective.metrics)
        needed = {name for part in tables_of(self.plan.outline, metric).values() for name in part}
        if set(self.limits.metric(needed)) != needed:
            return {}
        return tables_of(self.plan.outline, metric, tuple(self.limits.metric(beside(self.work.task, metric))))

    @cached_property
    def _template(self) -> Tensors:
        """A broadcast of this plan."""
        return open_run(self.work.algorithm, self.work.task, self.plan.clients, self.plan.course).broadcast

    @cached_property
    def _largest(self) -> int:
        """No message is larger than a broadcast, or the model of a classifier that judges samples."""
        judge = num_bytes(self._judged[1]) if self.plan.algorithm.outcome == "samples" else 0
        return max(num_bytes(self._template), judge)

    # -- training --------------------------------------------------------------------------------------------------

    def _asked(self, parcel: Parcel) -> tuple[RoundInfo, Tensors | None, int, str]:
        """The round that is asked for, the memory to start from, which version that is, and the hash of what came."""
        facts, course = parcel.facts, self.plan.course
        round = whole(facts, "round", OWNER, 0, course.rounds - 1)
        counted = whole(facts, "counted", OWNER, NEVER, round - 1)
        cohort = whole(facts, "cohort", OWNER, 1, self.plan.clients)
        check_tensors(parcel.tensors, self._template, OWNER)
        received = digest(parcel.tensors, {"round": round, "counted": counted, "cohort": cohort})
        self._take_part(round, received)
        info = round_info(course, self.work.training, self.plan.clients, round, cohort)
        return info, self.versions.get(counted), counted, received

    def _take_part(self, round: int, received: str) -> None:
        """Refuse one round more than the owner allows, and under privacy of rows a second question of a round: its
        answer would cost what no accountant has counted."""
        taken, most = self.versions.taken(), self.limits.rounds
        if received in taken.get(round, ()):
            return
        told = (
            f"round {round + 1} was answered before, to another question; a second answer would cost more than is told"
        )
        require(not (self._hides and taken.get(round)), "privacy", told)
        if most is None:
            return
        count = sum(len(marks) for marks in taken.values())
        require(count < most, "limits", f"this node takes part in at most {most} rounds")

    def _train(self, parcel: Parcel) -> Parcel:
        info, kept, counted, received = self._asked(parcel)
        weights = self._weights(parcel)
        upload, own, loss = self.work.run(self.client, parcel.tensors, kept, info)
        self.versions.put(info.round, own, counted, received)
        sent = self._packed(upload)
        if weights is not None:
            sent = weighted(sent, *weights, self.work.task.buffers.counters)
        elif loss is not None:
            sent |= self._told(loss, info.round, received)
        return Parcel({name: tensor.detach() for name, tensor in sent.items()}, signed(self.plan, round=info.round))

    def _packed(self, upload: Upload) -> Tensors:
        """An upload as it travels, with as much of its log as the owner lets go."""
        sent = packed(replace(upload, log=self.limits.logged(upload.log)))
        return self.work.compress.packed(sent) if self.work.compress else sent

    def _weights(self, parcel: Parcel) -> tuple[float, float] | None:
        """In the second of two phases, by what the upload and its buffers are weighed; a bounded one not up."""
        if "coefficient" not in parcel.facts:
            return None
        most = MOST if self.limits.clip is None else 1.0
        return number(parcel.facts, "coefficient", OWNER, -most, most), number(parcel.facts, "share", OWNER, 0, 1)

    def _told(self, loss: Tensor, round: int, received: str) -> Tensors:
        """The loss of the received model, or what is told in its place."""
        mixing = self.work.algorithm.mixing
        if not mixing.secret:
            return {LOSS: loss.double().reshape(1)}
        drawn = noise.normal(self._secret, self.plan.fingerprint, round, received, REPORT, (1,))
        return {REPORT: mixing.report(loss.double().reshape(1), drawn).double()}

    def _loss(self, parcel: Parcel) -> Parcel:
        """The first of two phases: the loss of the received model alone."""
        info, kept, _, received = self._asked(parcel)
        work, stream = self.work, self.work.stream(self.client, info.round)
        own = divided(work.own(self.client, kept, parcel.tensors))[0]
        visit = Visit(work.task, parcel.tensors, own, info, self.client, stream.size)
        loss = data_loss(work.task, work.algorithm.client.received(visit), stream)
        self.versions.note(info.round, received)
        return Parcel(self._told(loss, info.round, received), signed(self.plan, round=info.round))

    # -- measuring -------------------------------------------------------------------------------------------------

    def _limited(self, measure: Callable[[Parcel], Parcel]) -> Callable[[Parcel], Parcel]:
        """A measurement that is told as often as the owner allows; one that is asked for again counts once."""

        def answer(parcel: Parcel) -> Parcel:
            most, known = self.limits.evaluations, self.versions.told()
            question = digest(parcel.tensors, parcel.facts | {"kind": measure.__name__})
            good = most is None or question in known or len(known) < most
            require(good, "limits", f"this node tells numbers of evaluation at most {most} times")
            found = measure(parcel)
            if found.tensors:
                self.versions.note_told(question)
            return found

        return answer

    def _fitted(self, shared: Tensors, round: int, counted: int) -> Fitted:
        """This client as a server's state finds it."""
        visits = PerClient.filled(self.plan.clients, 0, torch.int32).replaced([self.client], int(counted != NEVER))
        memory = ClientMemory()
        memory.put(self.client, self.versions.get(counted) or {}, round)
        return Fitted(self.work, ServerState(round, shared, {}, {}, visits), memory)

    def fitted(self) -> Fitted:
        """This client with the last model it was sent: what it would use, here."""
        return self._fitted(*self.versions.model())

    def _state(self, parcel: Parcel) -> tuple[Fitted, int]:
        round = whole(parcel.facts, "round", OWNER, 0, self.plan.course.rounds)
        counted = whole(parcel.facts, "counted", OWNER, NEVER, max(round - 1, NEVER))
        check_tensors(parcel.tensors, self._template, OWNER)
        return self._fitted(parcel.tensors, round, counted), counted

    def _split(self, parcel: Parcel) -> str:
        split = parcel.facts.get("split")
        require(split in SPLITS, OWNER, f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        return str(split)

    def _evaluate(self, parcel: Parcel) -> Parcel:
        """What the client's model measures on its own rows of a split, as far as the owner lets it go."""
        (fitted, counted), split = self._state(parcel), self._split(parcel)
        round, usual = fitted.state.round, self.work.task.objective.metrics
        self.versions.keep_model(parcel.tensors, round, counted)
        if not parcel.facts.get("everyone") and fitted.waits(self.client):
            return Parcel(facts=signed(self.plan, round=round, waits=True))
        names = self.limits.metric(self.plan.metrics(usual) or usual)
        found = measured(fitted, [self.client], split, checked(names)) if names and self._rows(split) else None
        return self._numbers(found, round)

    def _judge(self, parcel: Parcel) -> Parcel:
        """What a model that the server sent (trained on its samples) measures on the client's rows."""
        task, model = self._judged
        check_tensors(parcel.tensors, model, OWNER)
        round, split = whole(parcel.facts, "round", OWNER, 0, self.plan.course.rounds), self._split(parcel)
        names = self.limits.metric(self.plan.metrics(task.objective.metrics) or task.objective.metrics)
        found = None
        if names and self._rows(split):
            rows = self.work.federation
            found = Measured([self.client], scored(task, rows, [self.client], parcel.tensors, split, names), True)
        return self._numbers(found, round)

    @cached_property
    def _judged(self) -> tuple[Task, Tensors]:
        require(self.plan.algorithm.outcome == "samples", OWNER, f"{self.plan.config.method} ends with no samples")
        task = self.plan.config.judged_by().task(self.plan.outline.shape, self.plan.outline.classes)
        return task, task.fresh(0)

    def _rows(self, split: str) -> bool:
        return bool(len(self.work.federation.part(split)[self.client]))

    def _numbers(self, found: Measured | None, round: int) -> Parcel:
        if found is None:
            return Parcel(facts=signed(self.plan, round=round))
        part = found.scored
        sent = {f"metric/{name}": value.double() for name, value in part.values.items()} | {"counts": part.counts}
        sent |= {} if part.units is None else {"units": part.units.double()}
        return Parcel(sent, signed(self.plan, round=round, shared=found.shared))

    def _sweep(self, parcel: Parcel) -> Parcel:
        """The client's metric along its line, by split."""
        fitted, _ = self._state(parcel)
        round = fitted.state.round
        if not self._wanted or not self._rows("test"):
            return Parcel(facts=signed(self.plan, round=round))
        ended, tables = measured_lines(fitted, [self.client], self.plan.config.lambdas(), self._wanted)
        sent = {f"{split}/{name}": table.double() for split, part in tables.items() for name, table in part.items()}
        return Parcel(sent, signed(self.plan, round=round, two_ended=ended[0]))
