"""`serve`: a run whose clients are elsewhere. All but local rounds and measuring is what `fedchord run` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchord.core.records import LINE, ServerState
from fedchord.core.round import Plan as Course
from fedchord.engine.executors import Executor, Serial
from fedchord.engine.guards import Defence
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult
from fedchord.engine.weather import Weather
from fedchord.evaluation.evaluate import Evaluation
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.newcomers import Welcome
from fedchord.evaluation.sweep import Sweep
from fedchord.experiments.loggers import Logger
from fedchord.experiments.own import fingerprint_of
from fedchord.experiments.parts import Parts, headline
from fedchord.experiments.progress import Progress
from fedchord.experiments.reading import SERVED
from fedchord.experiments.session import Report, Run
from fedchord.experiments.settings import Scalar
from fedchord.privacy.terms import CLIENTS, Privacy
from fedchord.remote import measuring
from fedchord.remote.asking import Asking, Service
from fedchord.remote.plan import Plan
from fedchord.remote.rounds import rounds_of
from fedchord.remote.transport import Transport
from fedchord.synthetic.judge import judge
from fedchord.synthetic.learn import Judge
from fedchord.synthetic.set import SyntheticSet


def serve(
    plan: Plan,
    transport: Transport,
    out: str | Path | None = None,
    *,
    service: Service | None = None,
    resume: bool = False,
    weather: Weather | None = None,
    report: Report | None = None,
    progress: Progress | None = None,
    loggers: Sequence[Logger] = (),
    secret: bytes = b"",
) -> Run:
    """The run of a plan by clients that a transport reaches: iterate over it, or call `finish`.

    With `out` it is written to that folder as any run, with a checkpoint after every round; with `resume` it goes on
    there, to the bit-identical result. In a `weather` clients are away and replies get lost, for rehearsals. Under
    privacy=clients the `secret` is what cohorts and noise are drawn by; without one it is the plan's seed, which
    clients know.
    """
    config = ServedConfig(plan, None if out is None else str(out), weather)
    own = secret if plan.config.privacy == CLIENTS else b""
    work = plan.work(secret=own)
    asking = Asking(plan, transport, work, service or Service(), weather, report or (lambda line: None), own)
    metrics = plan.metrics(work.task.objective.metrics)
    parts = Served(config, work, plan.config.training(), metrics=metrics, asking=asking)
    return Run(parts, resume, report, progress, loggers)


@dataclass(frozen=True)
class Served(Parts):
    """The parts of a run whose rounds and measurements are asked for."""

    asking: Asking | None = None

    @property
    def _ask(self) -> Asking:
        assert self.asking is not None
        return self.asking

    def staffed(self, state: ServerState, report: Callable[[str], None]) -> Executor:
        """What little is computed here, in this process."""
        return Serial(self.work)

    def rounds(self, executor: Executor, state: ServerState, memory: ClientMemory) -> Iterator[RoundResult]:
        """The rounds that are left, by the clients where they are."""
        return rounds_of(self._ask, state)

    def measured(
        self, fitted: Fitted, executor: Executor | None = None, last: bool = True
    ) -> tuple[Evaluation | None, SyntheticSet | None]:
        """What clients measure on their own test rows, and the synthetic set where the outcome is samples."""
        if self.algorithm.outcome == "samples":
            ask = measuring.judged(self._ask, fitted)
            return judge(fitted, self.config.judged_by(), metrics=self.metrics, ask=ask)
        return measuring.evaluated(self._ask, fitted, "test", self._names, last), None

    @property
    def _names(self) -> tuple[str, ...]:
        return self.metrics or self.task.objective.metrics

    def validated(self, fitted: Fitted, executor: Executor | None = None) -> Evaluation | None:
        """The same on validation rows; None where no client has any."""
        if not len(self.federation.validation.rows):
            return None
        if self.algorithm.outcome == "samples":
            ask = measuring.judged(self._ask, fitted)
            return judge(fitted, self.config.judged_by(), "validation", self.metrics, ask=ask)[0]
        return measuring.evaluated(self._ask, fitted, "validation", self._names)

    def looked(
        self, made: SyntheticSet | None, evaluation: Evaluation, lines: Sequence[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Nothing: bounds, quality and privacy of a set are found with real rows, which are not here."""
        return None

    def swept(self, fitted: Fitted, metric: str = "", executor: Executor | None = None) -> Sweep | None:
        """The headline metric along lambda, for methods with two models."""
        if self.algorithm.client.deploys.kind != LINE:
            return None
        chosen = metric or headline(self.task.objective.metrics)
        return measuring.swept(self._ask, fitted, chosen, self.config.lambdas())

    def welcomed(self, fitted: Fitted, executor: Executor | None = None) -> Welcome | None:
        """Nothing: nobody's rows are here."""
        return None


@dataclass(frozen=True)
class ServedConfig:
    """What a run reads of its settings, taken from a plan."""

    of: Plan
    out: str | None = None
    played: Weather | None = None
    executor: str = SERVED
    workers: int | None = None
    checkpoint_every: int = 1

    @property
    def method(self) -> str:
        return self.of.config.method

    @property
    def parameters(self) -> tuple[tuple[str, Scalar], ...]:
        return self.of.config.parameters

    @property
    def rounds(self) -> int:
        return self.of.config.rounds

    @property
    def seed(self) -> int:
        return self.of.config.seed

    @property
    def lr(self) -> float:
        return self.of.config.lr

    @property
    def validation(self) -> float:
        """The share of validation rows."""
        sizes = [len(self.of.outline.part(part).rows) for part in ("train", "validation", "test")]
        return sizes[1] / max(1, sum(sizes))

    @property
    def sweep_lambdas(self) -> tuple[float, ...] | None:
        return self.of.config.sweep_lambdas

    @property
    def judge_features(self) -> str | None:
        return None

    @property
    def judge_privacy(self) -> bool | None:
        return None

    @property
    def horizon(self) -> str:
        """What depends on the number of rounds: over a network a plan stays as it was agreed on."""
        return "is a plan that all parties have agreed on"

    def values(self) -> dict[str, Any]:
        """All settings by key."""
        data = {"made": SERVED, "data": self.of.outline.name, "clients": self.of.clients, "plan": self.of.fingerprint}
        values = dict(self.of.settings) | data | {"executor": self.executor, "checkpoint_every": 1}
        values |= {} if self.played is None else {"weather": repr(self.played)}
        return values if self.out is None else values | {"out": self.out}

    def choices(self) -> dict[str, Any]:
        """The model, and how often it is measured."""
        return {key: value for key, value in self.of.config.choices().items() if key in ("model", "eval_every")}

    def to_toml(self) -> str:
        """All settings as a file."""
        import tomli_w

        return tomli_w.dumps(self.values())

    def fingerprint(self) -> str:
        """A hash of everything that changes the result."""
        return fingerprint_of(self.values())

    def course(self) -> str:
        """Nothing: a plan with other rounds is another plan."""
        return ""

    def plan(self) -> Course:
        """Rounds, cohort and seed."""
        return self.of.course

    def lambdas(self) -> tuple[float, ...]:
        """Where models with two ends are measured."""
        return self.of.config.lambdas()

    def measured(self, last: bool) -> int:
        """All clients that are there are measured."""
        return 0

    def chooser(self) -> None:
        """Nothing is chosen for all clients over a network."""

    def private(self) -> Privacy | None:
        """What is hidden by noise; None if nothing."""
        return self.of.config.private()

    def judged_by(self) -> Judge:
        """The recipe of the classifier that measures synthetic samples."""
        return self.of.config.judged_by()

    def weather(self) -> Weather | None:
        """Who is away and what gets lost; None where that is not played."""
        return self.played

    def hostile(self) -> None:
        """Nobody that the server knows of."""

    def defence(self) -> Defence:
        """How the server takes uploads."""
        return self.of.config.defence()
