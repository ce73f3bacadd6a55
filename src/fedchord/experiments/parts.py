"""What a run is made of: its settings, the work it does, and what is measured when training is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fedchord.attacks.attack import Attack
from fedchord.core.objective import PLAIN
from fedchord.core.round import Plan
from fedchord.core.rules import Algorithm, ServerState
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine.executors import Executor, make_executor
from fedchord.engine.guards import Defence
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult, rounds_of
from fedchord.engine.weather import Weather
from fedchord.engine.work import Work
from fedchord.evaluation.choice import Choice, Chooser, choose, settled
from fedchord.evaluation.evaluate import Evaluation, evaluate
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.newcomers import Welcome, divide, welcome
from fedchord.evaluation.sweep import Sweep, sweep
from fedchord.experiments.config import RunConfig
from fedchord.experiments.settings import Scalar
from fedchord.metrics import check_kind
from fedchord.privacy.shield import shield
from fedchord.privacy.terms import Privacy
from fedchord.synthetic.judge import judge
from fedchord.synthetic.learn import Judge
from fedchord.synthetic.set import SyntheticSet

BESIDE = ("top1", "top5", "loss")
"""Metrics that a sweep along lambda measures beside the headline, for tables that show them at their best lambda."""


def beside(task: Task, metric: str) -> tuple[str, ...]:
    """Those of `BESIDE` that are measured with a metric; of an objective of its own scores do not tell the loss."""
    plain = task.objective.losses in PLAIN
    known = [name for name in BESIDE if name in task.objective.metrics and (plain or name != "loss")]
    return tuple(name for name in known if name != metric)


class Settings(Protocol):
    """What a run reads of its settings: those of the command (`RunConfig`), or of objects in Python (`OwnConfig`)."""

    @property
    def method(self) -> str: ...
    @property
    def parameters(self) -> tuple[tuple[str, Scalar], ...]: ...
    @property
    def rounds(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def validation(self) -> float: ...
    @property
    def sweep_lambdas(self) -> tuple[float, ...] | None: ...
    @property
    def judge_features(self) -> str | None: ...
    @property
    def judge_privacy(self) -> bool | None: ...
    @property
    def executor(self) -> str: ...
    @property
    def workers(self) -> int | None: ...
    @property
    def checkpoint_every(self) -> int: ...
    @property
    def horizon(self) -> str: ...
    @property
    def out(self) -> str | None: ...
    def values(self) -> dict[str, Any]:
        """All settings by key."""

    def choices(self) -> dict[str, Any]:
        """Those that are chosen from the others: model, eval_every, newcomer_epochs."""

    def to_toml(self) -> str:
        """All settings as a file."""

    def fingerprint(self) -> str:
        """A hash of everything that changes the result."""

    def course(self) -> str:
        """The fingerprint that runs of any number of rounds share; "" where their rounds differ."""

    def plan(self) -> Plan:
        """Rounds, cohort and seed."""

    def lambdas(self) -> tuple[float, ...]:
        """Where models with two ends are measured."""

    def judged_by(self) -> Judge:
        """The recipe of the classifier that measures synthetic samples."""

    def weather(self) -> Weather | None:
        """Who is away and what gets lost; None where that does not happen."""

    def hostile(self) -> Attack | None:
        """What hostile clients do; None where there are none."""

    def defence(self) -> Defence:
        """How the server takes uploads."""

    def chooser(self) -> Chooser | None:
        """What is chosen for all clients; None if nothing."""

    def measured(self, last: bool) -> int:
        """How many clients are measured, on the way or in the end; 0 is all of them."""

    def private(self) -> Privacy | None:
        """What is hidden by noise; None if nothing."""


@dataclass(frozen=True)
class Parts:
    """A run before it starts: settings, the work, the training settings as they were asked for, late clients."""

    config: Settings
    work: Work
    training: Training
    newcomers: Federation | None = None
    metrics: tuple[str, ...] | None = None

    @staticmethod
    def build(config: RunConfig, device: str | None = None, federation: Federation | None = None) -> Parts:
        """Read the data and build everything, on the run's device unless told otherwise; mistakes are told here.

        A `federation` that is given takes the place of the one that the settings describe.
        """
        config.check_code()
        federation, late = divide(federation or config.federation(), config.newcomers or 0, config.seed)
        config.plan().size(federation.num_clients)
        if (attack := config.hostile()) is not None:
            federation = attack.among(federation, config.seed)
        asked, task = config.training(), config.task(federation)
        hidden = shield(config.algorithm(), config.private(), task, federation, config.plan(), asked)
        work = Work.of(
            hidden.algorithm,
            hidden.task,
            federation,
            asked,
            config.seed,
            device or config.device,
            hidden.guards,
            bool(config.central),
            hidden.hiding,
            config.packing(),
        )
        more = tuple(dict.fromkeys((*task.objective.metrics, *config.metrics))) if config.metrics else None
        check_kind(more or (), federation.regression)
        return Parts(config, work, asked, late and late.whole().to(work.task.device), more)

    @property
    def algorithm(self) -> Algorithm:
        """The three rules."""
        return self.work.algorithm

    @property
    def federation(self) -> Federation:
        """The clients that train."""
        return self.work.federation

    @property
    def task(self) -> Task:
        """What is learnt."""
        return self.work.task

    def staffed(self, state: ServerState, report: Callable[[str], None]) -> Executor:
        """Who does the work of the run."""
        config, size = self.config, self.config.plan().most(self.federation.num_clients)
        return make_executor(config.executor, self.work, state.broadcast, size, config.workers, report)

    def rounds(self, executor: Executor, state: ServerState, memory: ClientMemory) -> Iterator[RoundResult]:
        """The rounds that are left."""
        config = self.config
        return rounds_of(executor, config.plan(), state, memory, config.weather(), config.hostile(), config.defence())

    def chosen(self, fitted: Fitted, executor: Executor | None = None) -> tuple[Fitted, Choice | None]:
        """What clients deploy after their joint choice, where one is asked for, and the choice."""
        chooser = self.config.chooser()
        if chooser is None:
            return fitted, None
        choice = choose(fitted, chooser, executor)
        return settled(fitted, choice), choice

    def measured(
        self, fitted: Fitted, executor: Executor | None = None, last: bool = True
    ) -> tuple[Evaluation | None, SyntheticSet | None]:
        """Every client's model on its own test rows, and the synthetic set behind it where the outcome is samples.

        On the way (`last` false) clients that would first have to train because they never took part are left out; None
        if nobody is left.
        """
        if self.algorithm.outcome == "samples":
            return judge(fitted, self.config.judged_by(), metrics=self.metrics, executor=executor)
        fitted = self._some(fitted, last)
        if not last and all(fitted.waits(client) for client in fitted.clients()):
            return None, None
        return evaluate(fitted, metrics=self.metrics, executor=executor, everyone=last), None

    def validated(self, fitted: Fitted, executor: Executor | None = None) -> Evaluation | None:
        """The same models on validation rows; None where no client has any."""
        if not len(self.federation.validation.rows):
            return None
        if self.algorithm.outcome == "samples":
            return judge(fitted, self.config.judged_by(), "validation", self.metrics, executor)[0]
        return evaluate(self._some(fitted), "validation", self.metrics, executor)

    def _some(self, fitted: Fitted, last: bool = True) -> Fitted:
        """With those clients that are measured, on the way or in the end."""
        return replace(fitted, among=self.config.measured(last))

    def looked(
        self, made: SyntheticSet | None, evaluation: Evaluation, lines: Sequence[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Bounds, quality, privacy and bytes of a synthetic set, for methods that end with samples."""
        if made is None:
            return None
        from fedchord.experiments.synthesis import synthesis  # here, since most runs end with a model

        return synthesis(self, made, lines, headline(tuple(evaluation.metrics)))

    def swept(self, fitted: Fitted, metric: str = "", executor: Executor | None = None) -> Sweep | None:
        """A metric (the headline) along lambda, for methods with two models, and those of `BESIDE` with it."""
        if self.algorithm.outcome == "samples":
            return None
        chosen = metric or headline(self.task.objective.metrics)
        return sweep(self._some(fitted), chosen, self.config.lambdas(), executor, beside(self.task, chosen))

    def welcomed(self, fitted: Fitted, executor: Executor | None = None) -> Welcome | None:
        """What the newcomers measure with the last model, if there are any."""
        if self.newcomers is None:
            return None
        epochs = self.config.choices()["newcomer_epochs"]
        return welcome(fitted, self.newcomers, self.training, epochs, self.metrics, executor)


def headline(metrics: Sequence[str]) -> str:
    """The metric to show first: AUROC where it is measured, else top-1 accuracy, else the first there is."""
    return next((name for name in ("auroc", "top1") if name in metrics), metrics[0] if metrics else "top1")
