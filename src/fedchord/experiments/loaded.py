"""A finished run with its models, read from its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedchord.check import FedchordError
from fedchord.core.rules import Line
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.parts import Parts
from fedchord.experiments.summary import as_chosen

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Loaded:
    """A finished run with its models: the last broadcast and what the clients keep."""

    parts: Parts
    fitted: Fitted

    @staticmethod
    def of(folder: Path) -> Loaded:
        """Read a run's data and its last checkpoint."""
        here = RunFolder(folder)
        config, memory = here.read_config(), ClientMemory()
        found = checkpoint.load(here.checkpoints, memory, config.fingerprint(), config.course())
        if found is None or found.state.round != config.rounds:
            raise FedchordError(f"{folder}: the checkpoint of the last round is missing")
        parts = Parts.build(config, "cpu")
        return Loaded(parts, as_chosen(Fitted(parts.work, found.state, memory), here.read_summary()))

    @property
    def clients(self) -> list[int]:
        """The clients with test rows."""
        return self.fitted.clients()

    def two_ended(self) -> Bools:
        """Which clients with test rows have two models."""
        return np.array([self.fitted.line(client) is not None for client in self.clients])

    def private(self, client: int) -> Tensor:
        """A client's own model: the far end of its line, or what it deploys where there is no line."""
        point = self.fitted.point(client)
        return point.far if isinstance(point, Line) else point["theta"]

    def scores(self) -> tuple[Tensor, Tensor]:
        """Scores and labels of all test rows, each by the model its client deploys."""
        found = [self.scores_of(client) for client in self.clients]
        return torch.cat([scores for scores, _ in found]), torch.cat([labels for _, labels in found])

    def scores_of(self, client: int) -> tuple[Tensor, Tensor]:
        """Scores and labels of a client's test rows, by the model it deploys."""
        task, federation = self.parts.task, self.parts.federation
        model = self.fitted.deployed(client)
        batch = federation.batch(federation.test[client])
        return task.objective.predictions(task.outputs(model["theta"], model["buffers"], batch), batch)
