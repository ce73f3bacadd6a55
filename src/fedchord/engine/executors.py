"""Who runs the local rounds of a cohort: one after another, in worker processes, on several machines, or vectorised.

All executors call the same `local_round` and give the same results: serial, processes and ranks bit for bit (all run
local rounds on one thread), vectorised within floating-point tolerance.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fedchord import check
from fedchord.check import FedchordError
from fedchord.core.round import Results
from fedchord.core.rules import Log, RoundInfo, Upload
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.tensors import Tensors

Item = TypeVar("Item")
Found = TypeVar("Found")


class Arena:
    """Stacked tensors that hold a cohort's results, made once and written anew in every round."""

    def __init__(self, upload: Upload, own: Tensors, rows: int, shared_memory: bool) -> None:
        self.rows = rows
        self.losses = torch.zeros(rows, dtype=torch.float64)
        self.groups = {
            group: {n: torch.empty((rows, *t.shape), dtype=t.dtype, device=t.device) for n, t in state.items()}
            for group, state in _groups(upload, own).items()
        }
        if shared_memory:
            self.losses.share_memory_()
            for state in self.groups.values():
                for tensor in state.values():
                    tensor.share_memory_()

    def write(self, slot: int, upload: Upload, own: Tensors, loss: Tensor | None) -> None:
        """Put one client's results into its row."""
        for group, state in _groups(upload, own).items():
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
        parts = {group: {n: t[:count] for n, t in rows.items()} for group, rows in self.groups.items()}
        log = Log(parts["log means"], parts["log sums"])
        losses = self.losses[:count].clone() if needs_loss else None
        return Results(torch.tensor(ids), sizes, parts["mix"], parts["carry"], parts["mean"], log, losses)

    def keep(self, memory: ClientMemory, ids: list[int], round: int) -> None:
        """Copy the private states of a cohort into the clients' memory."""
        for slot, client in enumerate(ids):
            memory.put(client, {name: rows[slot] for name, rows in self.groups["own"].items()}, round)


def _groups(upload: Upload, own: Tensors) -> dict[str, Tensors]:
    """All that a client gives back, by kind."""
    log = {"log means": upload.log.means, "log sums": upload.log.sums}
    return {"mix": upload.mix, "carry": upload.carry, "mean": upload.mean, **log, "own": own}


class Executor(Protocol):
    """Runs the local rounds of cohorts, and anything else that is done per client, for one `Work`."""

    name: str
    work: Work

    def run(self, shared: Tensors, ids: list[int], info: RoundInfo, memory: ClientMemory) -> Results:
        """The results of a cohort, in the order of `ids`; private states go to `memory`."""

    def each(self, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        """What a function gives for every item, in their order; for clients, or groups of them."""

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

    def __init__(self, work: Work) -> None:
        self.work = work
        self._arena: Arena | None = None
        self._sizes = work.federation.train.sizes
        keep_freed_memory()

    def run(self, shared: Tensors, ids: list[int], info: RoundInfo, memory: ClientMemory) -> Results:
        with one_thread():
            for slot, client in enumerate(ids):
                upload, own, loss = self.work.run(client, shared, memory.get(client), info)
                if self._arena is None or self._arena.rows < len(ids):
                    self._arena = Arena(upload, own, len(ids), shared_memory=False)
                self._arena.write(slot, upload, own, loss)
        assert self._arena is not None
        self._arena.keep(memory, ids, info.round)
        return self._arena.results(ids, self._sizes[ids], self.work.needs_loss)

    def each(self, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        return one_by_one(function, items)

    def close(self) -> None:
        self._arena = None


def one_by_one(function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """A function of every item, in this process, on one thread."""
    with one_thread():
        return [function(item) for item in items]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


Report = Callable[[str], None]
EXECUTORS = ("auto", "processes", "ranks", "serial", "vectorised")
MOST_WORKERS = 1024


def make_executor(
    name: str, work: Work, shared: Tensors, cohort: int, workers: int | None = None, report: Report = lambda line: None
) -> Executor:
    """An executor by name: serial, processes, ranks, vectorised, or auto (measures and picks)."""
    from fedchord.engine.group import group_of
    from fedchord.engine.processes import Processes, can_fork
    from fedchord.engine.ranks import Ranks
    from fedchord.engine.vectorised import Vectorised, cannot_vectorise

    check.one_of("run", "executor", name, EXECUTORS)
    workers = check.whole("run", "workers", workers, 1, MOST_WORKERS) if workers is not None else cores()
    on_cpu = work.federation.columns["y"].device.type == "cpu"
    possible = workers > 1 and cohort > 1 and can_fork() and on_cpu
    if name == "vectorised":
        reason = cannot_vectorise(work)
        if reason:
            raise FedchordError(f"executor: vectorised cannot run this model: {reason}; use processes or serial")
        return Vectorised(work)
    if name == "ranks":
        return Ranks(work, shared, cohort, group_of(name))
    if name == "processes" and possible:
        return Processes(work, shared, cohort, workers)
    if name != "auto":
        return Serial(work)
    reason = cannot_vectorise(work)
    if reason:
        report(f"executor: vectorised is out ({reason})")
    makers: dict[str, Callable[[], Executor]] = {"serial": lambda: Serial(work)}
    if possible:
        makers["processes"] = lambda: Processes(work, shared, cohort, workers)
    if not reason:
        makers["vectorised"] = lambda: Vectorised(work)
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
