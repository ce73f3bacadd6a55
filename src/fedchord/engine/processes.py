"""Worker processes: one per core, one thread each, started once, with data and results in shared memory."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any

import torch

from fedchord.check import FedchordError
from fedchord.core import clock
from fedchord.core.round import Results
from fedchord.core.rules import RoundInfo
from fedchord.engine.executors import Arena, Found, Item, keep_freed_memory, one_by_one, one_thread
from fedchord.engine.halves import Halves, Piece, pieces
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.tensors import Tensors

WORTH = 0.01
"""Seconds that a round has to take for visits in two pieces to be worth their bookkeeping."""
BEGUN, LEFT, DROPPED = range(3)
"""A visit in two pieces: its first is being made, is done, or nobody will come for the second."""


class Processes:
    """One process per core, this one among them, one thread each; the others are started once.

    Workers are forked, so data, task and rules reach them without copying; the broadcast, private states and results
    lie in shared memory. Clients are taken from a shared counter, largest first; where whole ones would leave processes
    without work, some are made in two pieces (`halves`).
    """

    name = "processes"

    def __init__(self, work: Work, shared: Tensors, cohort: int, workers: int) -> None:
        self.work, self._count = work, workers
        self._sizes = work.federation.train.sizes
        info = RoundInfo(0, 1, work.federation.num_clients, cohort, 1.0, 1, 0)
        upload, own, _ = work.run(0, shared, None, info, limit=0)
        self._arena = Arena(upload, own, cohort, shared_memory=True)
        self._shared = {name: tensor.clone().share_memory_() for name, tensor in shared.items()}
        context: Any = multiprocessing.get_context("fork")
        self._next = context.Value("i", 0)
        self._stand = context.RawArray("b", cohort)
        room = 4 * sum(_bytes(part) for part in (shared, own, upload.mix, upload.carry, upload.mean)) + (1 << 16)
        self._halves = Halves(min(workers, cohort) - 1, room)
        self._took = 0.0
        self._pipes: list[Connection] = []
        self._workers: list[Any] = []
        keep_freed_memory()
        for _ in range(min(workers, cohort) - 1):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            worker = context.Process(target=self._serve, args=(theirs,), daemon=True)
            worker.start()
            Finalize(worker, worker.kill, exitpriority=1)  # at exit multiprocessing would send SIGTERM, and wait
            theirs.close()
            self._workers.append(worker)

    def run(self, shared: Tensors, ids: list[int], info: RoundInfo, memory: ClientMemory) -> Results:
        for name, tensor in shared.items():
            self._shared[name].copy_(tensor)
        fresh = self._lend(ids, memory)
        sizes, start = self._sizes[ids], time.perf_counter()
        alike = self.work.central or self.work.hiding is not None or self._took < WORTH
        order = pieces(sizes.tolist(), 1 if alike else len(self._workers) + 1)
        self._next.value = 0
        self._stand[:] = [BEGUN] * len(self._stand)
        for pipe in self._pipes:
            pipe.send((info, ids, order, fresh))
        try:
            with one_thread():
                problem = self._take_part(info, ids, order, fresh)
                with clock.span(clock.WAITING):
                    self._collect(problem)
        except BaseException:  # nobody waits for this round any more
            for worker in self._workers:
                worker.kill()
            raise
        self._took = time.perf_counter() - start
        self._arena.keep(memory, ids, info.round)
        return self._arena.results(ids, sizes, self.work.needs_loss)

    def _lend(self, ids: list[int], memory: ClientMemory) -> list[bool]:
        """Put the cohort's private states where the workers see them; says which clients have none yet."""
        fresh = []
        for slot, client in enumerate(ids):
            own = memory.get(client)
            fresh.append(own is None)
            for name, tensor in (own or {}).items():
                self._arena.groups["own"][name][slot].copy_(tensor)
        return fresh

    def _collect(self, problem: Exception | None) -> None:
        """Wait for the workers; raise what went wrong here or there."""
        waiting = dict(zip(self._pipes, self._workers, strict=True))
        while waiting:
            for ready in wait([*waiting, *(worker.sentinel for worker in waiting.values())]):
                pipe = next((p for p, w in waiting.items() if ready is p or ready == w.sentinel), None)
                if pipe is None:
                    continue
                try:
                    wrong, seen = pipe.recv()
                    problem = wrong or problem
                except (EOFError, OSError):
                    code = waiting[pipe].exitcode
                    raise RuntimeError(f"a worker process ended (exit code {code}); is memory short?") from None
                del waiting[pipe]
                if seen and (watched := clock.running()):
                    watched.add(self._pipes.index(pipe), seen)
        if problem is not None:
            raise problem

    def _serve(self, pipe: Connection) -> None:
        """A worker's life: wait for a round, take clients until none is left, report."""
        leave_signals()
        for inherited in self._pipes:  # the parent's ends: while a copy is open here, nobody would see the parent go
            inherited.close()
        torch.set_num_threads(1)
        keep_freed_memory()
        if watched := clock.running():
            watched.taken()  # what the parent saw before the fork
        while True:
            try:
                info, ids, order, fresh = pipe.recv()
            except (EOFError, OSError):
                return
            problem = self._take_part(info, ids, order, fresh)
            pipe.send((problem, watched and watched.taken()))

    def _take_part(self, info: RoundInfo, ids: list[int], order: list[Piece], fresh: list[bool]) -> Exception | None:
        """Take clients until none is left, or until something goes wrong."""
        problem: Exception | None = None
        with clock.span(clock.OTHER):
            while problem is None and (taken := self._take()) < len(order):
                piece, slot = order[taken], order[taken].slot
                problem = self._attempt(piece, ids[slot], fresh[slot], info)
        return problem

    def _take(self) -> int:
        with self._next.get_lock():
            self._next.value += 1
            return int(self._next.value) - 1

    def _attempt(self, piece: Piece, client: int, fresh: bool, info: RoundInfo) -> Exception | None:
        try:
            self._visit(piece, client, fresh, info)
        except FedchordError as error:
            return error
        except Exception:
            return RuntimeError(f"client {client} failed in round {info.round}:\n{traceback.format_exc()}")
        return None

    def _visit(self, piece: Piece, client: int, fresh: bool, info: RoundInfo) -> None:
        """A client's visit or one piece of it."""
        slot, begun = piece.slot, None
        own = None if fresh else {n: rows[slot].clone() for n, rows in self._arena.groups["own"].items()}
        if piece.since is not None:
            if not self._stands(slot, LEFT, otherwise=DROPPED):
                return  # whoever is at the first piece goes on with it
            begun = self._halves.get(piece.place)
        elif piece.until is not None:
            steps = round(piece.until * self.work.steps(client, self._shared, own, info))
            begun, loss = self.work.begin(client, self._shared, own, info, steps)
            if loss is not None:
                self._arena.losses[slot] = loss
            if self._halves.put(piece.place, begun) and not self._stands(slot, DROPPED, otherwise=LEFT):
                return
        self._arena.write(slot, *self.work.run(client, self._shared, own, info, begun=begun))

    def _stands(self, slot: int, how: int, otherwise: int) -> bool:
        """Whether a visit in two pieces stands so; if not, it does `otherwise` from now on."""
        with self._next.get_lock():
            if self._stand[slot] == how:
                return True
            self._stand[slot] = otherwise
            return False

    def each(self, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        return forked(function, items, self._count)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for worker in self._workers:
            worker.join(timeout=5)
            if worker.is_alive():
                worker.kill()
        self._pipes, self._workers = [], []


def _bytes(tensors: Tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def leave_signals() -> None:
    """In a worker: Ctrl-C and SIGTERM, which often reach the whole group, are the parent's business."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def forked(function: Callable[[Item], Found], items: Sequence[Item], workers: int) -> list[Found]:
    """A function of every item, in this process and in others that are forked for it, one thread each.

    They see everything as it is now, so that the function may be any; what it returns is pickled. Items are taken from
    a shared counter, so that long and short ones mix.
    """
    count = min(workers, len(items)) - 1
    if count < 1:
        return one_by_one(function, items)
    context: Any = multiprocessing.get_context("fork")
    following = context.Value("i", 0)

    def take() -> int:
        with following.get_lock():
            following.value += 1
            return int(following.value) - 1

    def work() -> tuple[dict[int, Found], Exception | None]:
        made: dict[int, Found] = {}
        while (at := take()) < len(items):
            try:
                made[at] = function(items[at])
            except FedchordError as error:
                return made, error
            except Exception:
                return made, RuntimeError(f"a worker failed:\n{traceback.format_exc()}")
        return made, None

    def serve(pipe: Connection) -> None:
        leave_signals()
        torch.set_num_threads(1)
        try:
            made = pickle.dumps(work())  # not `send`: it would pass tensors by shared memory that ends with us
        except Exception as error:  # what cannot be pickled
            made = pickle.dumps(({}, RuntimeError(f"what a worker found cannot be sent: {error}")))
        pipe.send_bytes(made)

    pipes, helpers = [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        helper = context.Process(target=serve, args=(theirs,), daemon=True)
        helper.start()
        theirs.close()
        pipes.append(ours)
        helpers.append(helper)
    try:
        with one_thread():
            found, problem = work()
        for pipe, helper in zip(pipes, helpers, strict=True):
            try:
                more, wrong = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                helper.join(timeout=5)
                raise RuntimeError(f"a worker process ended (exit code {helper.exitcode}); is memory short?") from None
            found, problem = found | more, problem or wrong
    except BaseException:  # nobody waits for the others any more
        for helper in helpers:
            helper.kill()
        raise
    finally:
        for pipe, helper in zip(pipes, helpers, strict=True):
            pipe.close()
            helper.join(timeout=5)
    if problem is not None:
        raise problem
    return [found[at] for at in range(len(items))]


def can_fork() -> bool:
    """Whether worker processes can be forked here."""
    return "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
