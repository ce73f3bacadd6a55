"""One finished round of a run, with what was measured after it."""

from __future__ import annotations

from dataclasses import dataclass

from fedchord.engine.simulate import RoundResult
from fedchord.evaluation.choice import Choice, settled
from fedchord.evaluation.evaluate import Evaluation
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.shown import first
from fedchord.synthetic.set import SyntheticSet


@dataclass(frozen=True, repr=False)
class Round(RoundResult):
    """One finished round of a run; `evaluation` is there in the rounds that were evaluated, `samples` with it where the
    outcome is a synthetic set, `choice` where clients make one."""

    evaluation: Evaluation | None = None
    samples: SyntheticSet | None = None
    choice: Choice | None = None

    def _words(self) -> str:
        measured = "" if self.evaluation is None else f", {first(self.evaluation.metrics)}"
        return f"{super()._words()}{measured}"

    @property
    def fitted(self) -> Fitted:
        """The federation as this round left it."""
        return Fitted.of(self) if self.choice is None else settled(Fitted.of(self), self.choice)
