"""The executor for torchrun: every process runs the same program, and does its share of each cohort.

All ranks walk the same course: each has the server's state and makes the same server step, so that what is exchanged is
uploads, and what `each` found. A client belongs to a rank (its number modulo their count), where its private state
stays; it travels when a checkpoint is written or read. Where clients keep nothing, any rank trains any client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from fedchord.check import fail, require
from fedchord.core.round import Results
from fedchord.core.rules import RoundInfo
from fedchord.engine.executors import Arena, Found, Item, keep_freed_memory, one_thread
from fedchord.engine.group import OWNER, Group, attempted
from fedchord.engine.memory import ClientMemory
from fedchord.engine.work import Work
from fedchord.tensors import Tensors, row, stack


class Ranks:
    """The processes of a torchrun job, one thread each."""

    name = "ranks"

    def __init__(self, work: Work, shared: Tensors, cohort: int, group: Group) -> None:
        require(work.task.device.type == "cpu", OWNER, "ranks runs on the CPU; add device=cpu")
        self.work, self.group = work, group
        self._sizes = work.federation.train.sizes
        info = RoundInfo(0, 1, work.federation.num_clients, cohort, 1.0, 1, 0)
        upload, own, _ = work.run(0, shared, None, info, limit=0)
        self._arena = Arena(upload, own, cohort, shared_memory=False)
        self._private = bool(own)
        keep_freed_memory()

    def run(self, shared: Tensors, ids: list[int], info: RoundInfo, memory: ClientMemory) -> Results:
        homes = self._homes(ids)
        memory.scattered = memory.scattered or self._private

        def train() -> None:
            for slot, client in enumerate(ids):
                if homes[slot] == self.group.rank:
                    self._arena.write(slot, *self.work.run(client, shared, memory.get(client), info))

        with one_thread():
            _, problem = attempted(train, f"rank {self.group.rank}, round {info.round},")
        self.group.agree(problem, (info.round, ids, _mark(shared)))
        self._exchange(homes)
        for slot, client in enumerate(ids):
            if homes[slot] == self.group.rank:
                memory.put(client, {n: rows[slot] for n, rows in self._arena.groups["own"].items()}, info.round)
        return self._arena.results(ids, self._sizes[ids], self.work.needs_loss)

    def _homes(self, ids: list[int]) -> list[int]:
        """Who trains each client of a cohort: where its private state is, else the largest first and in turn."""
        if self._private:
            return [home(client, self.group) for client in ids]
        sizes, homes = self._sizes[ids].tolist(), [0] * len(ids)
        for place, slot in enumerate(sorted(range(len(ids)), key=lambda slot: -sizes[slot])):
            homes[slot] = place % self.group.size
        return homes

    def _exchange(self, homes: list[int]) -> None:
        """Every rank's uploads to all others, packed where they are; private states stay."""
        groups = {way: rows for way, rows in self._arena.groups.items() if way != "own"}
        parts = {f"{way}/{name}": rows for way, group in groups.items() for name, rows in group.items()}
        parts |= {"loss": self._arena.losses} if self.work.needs_loss else {}
        how = self.work.compress
        for rank in range(self.group.size):
            slots = [slot for slot, where in enumerate(homes) if where == rank]
            for name, rows in parts.items() if slots else ():
                sent = stack(how.packed({name: rows[slot]}) if how else {name: rows[slot]} for slot in slots)
                for tensor in sent.values():
                    self.group.spread(tensor, rank)
                for place, slot in enumerate(slots):
                    came = row(sent, place)
                    rows[slot] = (how.unpacked(came) if how else came)[name]

    def each(self, function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
        mine = [at for at, item in enumerate(items) if self._place(at, item) == self.group.rank]

        def found() -> dict[int, Found]:
            return {at: function(items[at]) for at in mine}

        with one_thread():
            made, problem = attempted(found, f"rank {self.group.rank}")
        self.group.agree(problem, len(items))
        everything = {at: value for part in self.group.gather(made) for at, value in (part or {}).items()}
        return [everything[at] for at in range(len(items))]

    def _place(self, at: int, item: object) -> int:
        """Who takes an item: the rank of the client, or of the first of several; anything else in turn."""
        first = item[0] if isinstance(item, list) and item else item
        return home(first, self.group) if self._private and isinstance(first, int) else at % self.group.size

    def close(self) -> None:
        """The group stays: another run may follow."""


def home(client: int, group: Group) -> int:
    """The rank a client belongs to."""
    return client % group.size


def _mark(shared: Tensors) -> int:
    """A number by which two broadcasts that differ are told apart."""
    return sum(int(t.contiguous().view(-1).view(torch.uint8).sum()) for t in shared.values() if t.numel())


class RankMemory(ClientMemory):
    """The private states of a rank's clients. The first rank also knows the files of all, for checkpoints."""

    def __init__(self, group: Group, device: torch.device | str) -> None:
        super().__init__(device=device)
        self._group = group

    @staticmethod
    def of(memory: ClientMemory, group: Group) -> ClientMemory:
        """What the first process holds, every client's state at the rank it belongs to."""
        if group.size == 1 or isinstance(memory, RankMemory):
            return memory
        require(memory._folder is None, OWNER, "ranks keeps private states in the processes, not in a folder")
        made = RankMemory(group, memory._device)
        parts: list[dict[int, Tensors]] = [{} for _ in range(group.size)]
        for client in memory.clients() if group.first else []:
            parts[home(client, group)][client] = memory.get(client) or {}
        made._held = group.hand_out(parts)
        made.scattered = group.any(bool(made._held))
        if group.first:
            made._files, made._home, made._pinned = memory._files, memory._home, memory._pinned
            made._unsaved = {client for client in memory._unsaved if home(client, group) == group.rank}
        return made

    def clients(self) -> list[int]:
        return sorted(self._held)

    def get(self, client: int) -> Tensors | None:
        where = home(client, self._group)
        if self.scattered and where != self._group.rank:
            raise fail(OWNER, f"what client {client} keeps is at rank {where}; this is rank {self._group.rank}")
        return self._held.get(client)

    def collect(self) -> None:
        unsaved = {client: self._held[client] for client in self._unsaved}
        for part in self._group.to_first({} if self._group.first else unsaved):
            self._held |= part
            self._unsaved |= part.keys()
        if not self._group.first:
            self._unsaved.clear()

    def save(self, home_folder: Path, round: int) -> dict[str, tuple[str, str]]:
        found = super().save(home_folder, round)
        self._held = {c: own for c, own in self._held.items() if home(c, self._group) == self._group.rank}
        return found
