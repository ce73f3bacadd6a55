"""What a run is made of, built from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedchord.core.rules import Algorithm, ServerState
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.executors import Work
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import pick_device
from fedchord.evaluation.evaluate import Evaluation, deployed, evaluate
from fedchord.evaluation.newcomers import Welcome, divide, welcome
from fedchord.evaluation.sweep import Sweep, sweep
from fedchord.experiments.config import RunConfig
from fedchord.experiments.synthesis import synthesis
from fedchord.synthetic.set import SyntheticSet, drawn
from fedchord.tensors import Tensors


@dataclass(frozen=True)
class Parts:
    """What a run is made of."""

    config: RunConfig
    algorithm: Algorithm
    federation: Federation
    task: Task
    training: Training
    newcomers: Federation | None = None

    @staticmethod
    def build(config: RunConfig, device: str | None = None) -> Parts:
        """Read the data and build everything, on the run's device unless told otherwise; mistakes are told here."""
        federation, late = divide(config.federation(), config.newcomers or 0, config.seed)
        config.plan().size(federation.num_clients)
        place, task = pick_device(device or config.device), config.task(federation)
        late = late and late.to(place)
        return Parts(config, config.algorithm(), federation.to(place), task.to(place), config.training(), late)

    @property
    def work(self) -> Work:
        """What the engine works with; the training settings are those of the rule."""
        training = self.algorithm.client.local(self.training)
        return Work(self.algorithm, self.task, self.federation, training, self.config.seed)

    def deployed(self, state: ServerState, memory: ClientMemory, client: int) -> Tensors:
        """The model a client would use."""
        own = (memory.get(client) or {}) if state.visits[client] > 0 else None
        return deployed(self.algorithm, self.task, self.federation, state, client, own, self.work.tune)

    def measured(self, state: ServerState, memory: ClientMemory) -> Evaluation:
        """Every client's deployed model on its own test rows."""
        judge, seed, tune = self.config.judged_by(), self.config.seed, self.work.tune
        return evaluate(self.algorithm, self.task, self.federation, state, memory, tune=tune, judge=judge, seed=seed)

    def drawn(self, state: ServerState) -> SyntheticSet:
        """The synthetic set of the server, for methods that end with samples."""
        return drawn(self.algorithm, self.task, self.federation, state, self.config.seed)

    def looked(self, evaluation: Evaluation, lines: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """Bounds, quality, privacy and bytes of a synthetic set, for methods that end with samples."""
        made = evaluation.samples
        return None if made is None else synthesis(self, made, lines, headline(tuple(evaluation.metrics)))

    def swept(self, state: ServerState, memory: ClientMemory, metric: str = "") -> Sweep | None:
        """A metric (the headline) along lambda, for methods with two models."""
        if self.algorithm.outcome == "samples":
            return None
        metric, lambdas = metric or headline(self.task.objective.metrics), self.config.lambdas()
        return sweep(self.algorithm, self.task, self.federation, state, memory, metric, lambdas, self.work.tune)

    def welcomed(self, state: ServerState) -> Welcome | None:
        """What the newcomers measure with the last model, if there are any."""
        if self.newcomers is None:
            return None
        epochs, seed = self.config.choices()["newcomer_epochs"], self.config.seed
        return welcome(self.algorithm, self.task, self.newcomers, state, self.training, epochs, seed)


def headline(metrics: Sequence[str]) -> str:
    """The metric to show first: AUROC where it is measured, else top-1 accuracy."""
    return "auroc" if "auroc" in metrics else "top1"
