"""The clients of an algorithm apart: nodes with their own rows and memory, and a server, all in this process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from fedchord.core.local import Guard
from fedchord.core.round import Plan as Course
from fedchord.core.round import open_run
from fedchord.core.rules import Algorithm
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult
from fedchord.engine.work import Work
from fedchord.experiments.own import OwnConfig
from fedchord.remote.asking import Asking, Service
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.limits import Limits
from fedchord.remote.plan import facts
from fedchord.remote.rounds import rounds_of


@dataclass(frozen=True)
class Handed:
    """What a plan tells server and nodes, of objects instead of settings."""

    algorithm: Algorithm
    task: Task
    training: Training
    course: Course
    federation: Federation
    fingerprint: str = "of objects"

    @cached_property
    def outline(self) -> Federation:
        """The federation without its rows."""
        return facts(self.federation)

    @property
    def config(self) -> OwnConfig:
        """The settings, as far as objects have them."""
        return OwnConfig(self.algorithm, self.task, self.outline, self.training, self.course)

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.federation.num_clients

    def work(self, federation: Federation | None = None, guards: tuple[Guard, ...] = (), secret: bytes = b"") -> Work:
        """The work of the run, on rows or without any."""
        rows = self.outline if federation is None else federation
        return Work.of(self.algorithm, self.task, rows, self.training, self.course.seed, "cpu", guards)


def run_apart(handed: Handed, folder: Path) -> tuple[RoundResult, ClientMemory]:
    """The last round of a run by nodes in a folder, and what the nodes kept."""
    plan = cast(Any, handed)
    nodes = nodes_of(plan, handed.federation, folder, b"a secret for tests", Limits(log=None))
    asking = Asking(plan, Direct(nodes), handed.work(), Service(5.0, wait=0.0))
    state = open_run(handed.algorithm, asking.work.task, handed.clients, handed.course)
    *_, last = rounds_of(asking, state)
    memory = ClientMemory()
    for client, node in nodes.items():
        if (counted := int(last.state.counted[client])) >= 0:
            memory.put(client, node.versions.get(counted) or {}, counted)
    return last, memory
