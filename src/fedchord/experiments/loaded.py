"""A finished run with its models, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedchord.check import FedchordError
from fedchord.core.rules import ServerState
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.parts import Parts

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Loaded:
    """A finished run with its models: the last broadcast and what the clients keep."""

    parts: Parts
    state: ServerState
    memory: ClientMemory

    @staticmethod
    def of(folder: Path) -> Loaded:
        """Read a run's data and its last checkpoint."""
        here = RunFolder(folder)
        config, memory = here.read_config(), ClientMemory()
        found = checkpoint.load(here.checkpoints, memory, config.fingerprint())
        if found is None or found.state.round != config.rounds:
            raise FedchordError(f"{folder}: the checkpoint of the last round is missing")
        return Loaded(Parts.build(config, "cpu"), found.state, memory)

    @property
    def clients(self) -> list[int]:
        """The clients with test rows."""
        return [int(client) for client in self.parts.federation.test.sizes.nonzero().flatten()]

    def kept(self, client: int) -> dict[str, Tensor] | None:
        """What a client keeps; None if it never trained."""
        return (self.memory.get(client) or {}) if self.state.visits[client] > 0 else None

    def two_ended(self) -> Bools:
        """Which clients with test rows have two models."""
        rule, task, shared = self.parts.algorithm.client, self.parts.task, self.state.broadcast
        return np.array([rule.endpoints(task, shared, self.kept(client)) is not None for client in self.clients])

    def private(self, client: int) -> Tensor:
        """A client's own model: the far end of its line, or what it deploys where there is no line."""
        rule, task, shared = self.parts.algorithm.client, self.parts.task, self.state.broadcast
        ends = rule.endpoints(task, shared, self.kept(client))
        return (ends[1] if ends is not None else rule.deploy(task, shared, self.kept(client)))["theta"]

    def scores(self) -> tuple[Tensor, Tensor]:
        """Scores and labels of all test rows, each by the model its client deploys."""
        found = [self.scores_of(client) for client in self.clients]
        return torch.cat([scores for scores, _ in found]), torch.cat([labels for _, labels in found])

    def scores_of(self, client: int) -> tuple[Tensor, Tensor]:
        """Scores and labels of a client's test rows, by the model it deploys."""
        parts = self.parts
        model = parts.deployed(self.state, self.memory, client)
        batch = parts.federation.batch(parts.federation.test[client])
        return parts.task.objective.predictions(parts.task.outputs(model["theta"], model["buffers"], batch), batch)
