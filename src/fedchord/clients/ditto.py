"""Ditto: a private model held near the global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fedchord import check, rng
from fedchord.core.objective import Batch
from fedchord.core.rules import LINE, ClientRule, Deployed, Line, Phase, Upload, Visit, shared_model
from fedchord.core.task import Task
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Ditto(ClientRule):
    """FedAvg on w, and a private v that minimises F_i(v) + (lam / 2) ||v - w||^2 (Li et al., 2021).

        v <- v - lr (grad F_i(v) + lam (v - w)),   w the model received this round.

    The norm is squared (common code leaves the square out). The private phase runs `own_epochs` (None: the run's
    epochs) after the shared one; v starts as the first model the client receives.
    """

    deploys: ClassVar[Deployed] = Deployed("each client's own model v; the global model if never sampled", LINE)

    lam: float = 1.0
    own_epochs: int | None = None

    def __post_init__(self) -> None:
        check.at_least("Ditto", "lam", self.lam, 0)
        if self.own_epochs is not None:
            check.whole("Ditto", "own_epochs", self.own_epochs)

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        return {"v": shared["theta"], "v_buffers": shared["buffers"]}

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        epochs = visit.info.epochs if self.own_epochs is None else self.own_epochs
        return Phase(epochs=visit.info.epochs), Phase(("v",), epochs, name="own", stays=True)

    def start(self, visit: Visit) -> Tensors:
        return shared_model(visit.shared) | visit.own

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        if visit.phase.name != "own":
            return visit.slope(trained, batch, key)
        slope = visit.slope(trained, batch, key, of="v", buffers="v_buffers")
        slope["v"] = slope["v"].add(trained["v"] - visit.shared["theta"], alpha=self.lam)
        return slope

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        update = trained["theta"] - visit.shared["theta"]
        kept = {"v": trained["v"], "v_buffers": trained["v_buffers"]}
        return Upload(mix={"theta": update}, carry={"buffers": trained["buffers"]}), kept

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors | Line:
        return Line(shared["theta"], own["v"], 1.0, own["v_buffers"]) if own else shared_model(shared)
