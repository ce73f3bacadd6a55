"""Fine-tuned FedAvg: the control that decides whether a personal method earns its keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fedchord import check
from fedchord.core.rules import ClientRule, Deployed, Phase, Upload, Visit, shared_model
from fedchord.core.task import Task
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class FineTune(ClientRule):
    """FedAvg whose clients deploy a locally adapted copy of the global model (control).

        theta_i <- theta_i - tune_lr grad F_i(theta_i),   theta_i = theta at first, after the last round.

    form="global": the last global model after `tune_epochs` epochs on the client's training rows, for every client,
    also one that was never sampled. form="last": the client's own model at the end of its last round, which costs
    nothing; a client that was never sampled has none and deploys the global model.

    `tune_lr` is the learning rate of these epochs; without it they have that of the last round, which after a long run
    with a decaying rate is close to zero, and then they change little.
    """

    deploys: ClassVar[Deployed] = Deployed(
        "the global model after tune_epochs local epochs, also if never sampled (form=global); or the client's last "
        "local copy, the global model if never sampled (form=last)"
    )

    form: str = "global"
    tune_epochs: int = 1
    tune_lr: float | None = None

    def __post_init__(self) -> None:
        check.one_of("FineTune", "form", self.form, ("global", "last"))
        check.whole("FineTune", "tune_epochs", self.tune_epochs)
        if self.tune_lr is not None:
            check.positive("FineTune", "tune_lr", self.tune_lr)

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        return shared_model(shared) if self.form == "last" else {}

    def tuning(self, visit: Visit) -> tuple[Phase, ...]:
        if self.form == "last" or not self.tune_epochs:
            return ()
        return (Phase(epochs=self.tune_epochs, name="tune", lr=self.tune_lr, stays=True),)

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        upload, _ = ClientRule.finish(self, trained, visit)
        return upload, shared_model(trained) if self.form == "last" else {}

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors:
        return own or shared_model(shared)
