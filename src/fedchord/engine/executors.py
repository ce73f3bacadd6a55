"""Who runs the local rounds of a cohort: one after another, in worker processes, or vectorised.

All executors call the same `local_round` and give the same results: serial and processes bit for bit (both run local
rounds on one thread), vectorised within floating-point tolerance.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from fedchord import rng
from fedchord.check import FedchordError
from fedchord.core.local import local_round, train
from fedchord.core.objective import Batch
from fedchord.core.round import Results
from fedchord.core.rules import Algorithm, ClientRule, Phase, RoundInfo, ServerState, Upload, Visit
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.memory import ClientMemory
from fedchord.tensors import Tensors


@dataclass(frozen=True)
class Work:
    """Everything a local round needs that stays the same over the run."""

    algorithm: Algorithm
    task: Task
    federation: Federation
    training: Training
    seed: int

    @property
    def needs_loss(self) -> bool:
        return "loss" in self.algorithm.mixing.needs

    def stream(self, client: int, round: int) -> ClientStream:
        """A client's training examples in a round."""
        key = rng.key(self.seed, "batches", client, round)
        return ClientStream(self.federation, client, self.training.batch, key, least=self.task.least_batch)

    def own(self, client: int, kept: Tensors | None, shared: Tensors) -> Tensors:
        """What the client keeps, or, where it keeps nothing, what it starts with."""
        if kept:
            return kept
        return self.algorithm.client.init(self.task, shared, rng.key(self.seed, "own", client))

    def run(
        self, client: int, shared: Tensors, kept: Tensors | None, info: RoundInfo, limit: int | None = None
    ) -> tuple[Upload, Tensors, Tensor | None]:
        """One client's local round; `limit` cuts each phase after so many steps, for trials."""
        stream = self.stream(client, info.round)
        return local_round(
            self.algorithm.client,
            self.task,
            self.training,
            shared,
            self.own(client, kept, shared),
            stream if limit is None else Cut(stream, limit),
            info,
            client,
            rng.key(self.seed, "local", client, info.round),
            self.needs_loss,
        )

    def tune(self, client: int, kept: Tensors | None, state: ServerState) -> Tensors | None:
        """What a client deploys from: what it keeps, or what the training its rule asks for before deployment gives."""
        rule = self.algorithm.client
        if type(rule).tuning is ClientRule.tuning or (kept is not None and rule.tunes == "never sampled"):
            return kept
        before = max(state.round - 1, 0)
        info = RoundInfo(
            before,
            max(state.round, 1),
            self.federation.num_clients,
            1,
            self.training.rate(before) if rule.tune_lr is None else rule.tune_lr,
            self.training.epochs,
            key=0,
        )
        shared, stream = state.broadcast, self.stream(client, state.round)
        visit = Visit(self.task, shared, self.own(client, kept, shared), info, client, stream.size)
        phases = rule.tuning(visit)
        if not phases:
            return kept
        key = rng.key(self.seed, "tune", client, state.round)
        return train(rule, self.training, replace(visit, phase=phases[0]), stream, phases, key)


class Cut:
    """A stream that ends early: for shapes (no step at all) and for trials."""

    def __init__(self, stream: ClientStream, limit: int) -> None:
        self._stream, self._limit, self.size = stream, limit, stream.size

    def steps(self, phase: Phase) -> int:
        return min(self._limit, self._stream.steps(phase))

    def batches(self, index: int, phase: Phase) -> Iterator[Batch]:
        if self._limit:
            for _, batch in zip(range(self._limit), self._stream.batches(index, phase), strict=False):
                yield batch

    def whole(self) -> Iterator[Batch]:
        return self._stream.whole() if self._limit else iter(())


class Arena:
    """Stacked tensors that hold a cohort's results, made once and written anew in every round."""

    def __init__(self, upload: Upload, own: Tensors, rows: int, shared_memory: bool) -> None:
        groups = {"mix": upload.mix, "carry": upload.carry, "mean": upload.mean, "stats": upload.stats, "own": own}
        self.rows = rows
        self.losses = torch.zeros(rows, dtype=torch.float64)
        self.groups = {
            group: {n: torch.empty((rows, *t.shape), dtype=t.dtype, device=t.device) for n, t in state.items()}
            for group, state in groups.items()
        }
        if shared_memory:
            self.losses.share_memory_()
            for state in self.groups.values():
                for tensor in state.values():
                    tensor.share_memory_()

    def write(self, slot: int, upload: Upload, own: Tensors, loss: Tensor | None) -> None:
        """Put one client's results into its row."""
        groups = {"mix": upload.mix, "carry": upload.carry, "mean": upload.mean, "stats": upload.stats, "own": own}
        for group, state in groups.items():
            rows = self.groups[group]
            if rows.keys() != state.keys():
                raise FedchordError(f"client rule: {group} holds {sorted(state)} here and {sorted(rows)} elsewhere")
            for name, tensor in state.items():
                rows[name][slot].copy_(tensor)
        if loss is not None:
            self.losses[slot] = loss

    def results(self, ids: list[int], sizes: Tensor, needs_loss: bool) -> Results:
        """The uploads of a cohort (views into the arena)."""
        count = len(ids)
        parts = {g: {n: t[:count] for n, t in self.groups[g].items()} for g in ("mix", "carry", "mean", "stats")}
        losses = self.losses[:count].clone() if needs_loss else None
        return Results(torch.tensor(ids), sizes, losses=losses, **parts)

    def keep(self, memory: ClientMemory, ids: list[int], round: int) -> None:
        """Copy the private states of a cohort into the clients' memory."""
        for slot, client in enumerate(ids):
            memory.put(client, {name: rows[slot] for name, rows in self.groups["own"].items()}, round)


class Executor(Protocol):
    """Runs the local rounds of a cohort."""

    name: str

    def run(self, shared: Tensors, ids: list[int], info: RoundInfo, memory: ClientMemory) -> Results:
        """The results of a cohort, in the order of `ids`; private states go to `memory`."""

    def close(self) -> None:
        """Give back what the executor holds."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Local rounds run on one thread, so that every executor computes the same bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Let the C allocator keep large freed blocks for reuse: large temporaries otherwise cost page faults at every
    step."""
    if sys.platform != "linux":
        return
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 1 << 28)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, 1 << 29)  # M_TRIM_THRESHOLD
    except (OSError, AttributeError):
        return


class Serial:
    """One client after another in this process."""

    name = "serial"

    def __init__(self, work: Work, shared: Tensors) -> None:
        self._work, self._arena = work, None
        self._sizes = work.federation.train.sizes
        keep_freed_memory()

    _arena: Arena | None

    def run(self, shared: Tensors, ids: list[int], info: RoundInfo, memory: ClientMemory) -> Results:
        with one_thread():
            for slot, client in enumerate(ids):
                upload, own, loss = self._work.run(client, shared, memory.get(client), info)
                if self._arena is None or self._arena.rows < len(ids):
                    self._arena = Arena(upload, own, len(ids), shared_memory=False)
                self._arena.write(slot, upload, own, loss)
        assert self._arena is not None
        self._arena.keep(memory, ids, info.round)
        return self._arena.results(ids, self._sizes[ids], self._work.needs_loss)

    def close(self) -> None:
        self._arena = None


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


Report = Callable[[str], None]


def make_executor(name: str, work: Work, shared: Tensors, cohort: int, workers: int | None, report: Report) -> Executor:
    """An executor by name: serial, processes, vectorised, or auto (measures and picks)."""
    from fedchord.engine.processes import Processes, can_fork
    from fedchord.engine.vectorised import Vectorised, cannot_vectorise

    workers = workers or cores()
    on_cpu = work.federation.columns["y"].device.type == "cpu"
    possible = workers > 1 and cohort > 1 and can_fork() and on_cpu
    if name == "vectorised":
        reason = cannot_vectorise(work)
        if reason:
            raise FedchordError(f"executor: vectorised cannot run this model: {reason}; use processes or serial")
        return Vectorised(work, shared)
    if name == "processes" and possible:
        return Processes(work, shared, cohort, workers)
    if name != "auto":
        return Serial(work, shared)
    reason = cannot_vectorise(work)
    if reason:
        report(f"executor: vectorised is out ({reason})")
    makers: dict[str, Callable[[], Executor]] = {"serial": lambda: Serial(work, shared)}
    if possible:
        makers["processes"] = lambda: Processes(work, shared, cohort, workers)
    if not reason:
        makers["vectorised"] = lambda: Vectorised(work, shared)
    return _fastest(makers, work, shared, cohort, report)


def _fastest(
    makers: dict[str, Callable[[], Executor]], work: Work, shared: Tensors, cohort: int, report: Report
) -> Executor:
    """Run one trial round on each and keep the fastest; the trials leave no trace."""
    if len(makers) == 1:
        return next(iter(makers.values()))()
    ids = list(range(cohort))
    info = RoundInfo(0, 1, work.federation.num_clients, cohort, work.training.rate(0), work.training.epochs, 0)
    seconds: dict[str, float] = {}
    for name, make in makers.items():
        executor = make()
        try:
            executor.run(shared, ids[:1], info, ClientMemory())  # warm up
            start = time.perf_counter()
            executor.run(shared, ids, info, ClientMemory())
            seconds[name] = time.perf_counter() - start
        finally:
            executor.close()
    best = min(seconds, key=lambda name: seconds[name])
    report(f"executor: {best} ({', '.join(f'{n} {s:.2f} s' for n, s in seconds.items())} a round)")
    return makers[best]()
