"""A model in two parts, one shared and one that never leaves the client: LG-FedAvg, FedPer and FedRep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fedchord import check, rng
from fedchord.core.objective import Batch
from fedchord.core.rules import ClientRule, Deployed, Phase, Upload, Visit
from fedchord.core.task import Task
from fedchord.tensors import Cut, Tensors


@final
@dataclass(frozen=True)
class Split(ClientRule):
    """Trains a model of which only one part is exchanged; the server never holds the other.

        (s_i, h_i) <- (s_i, h_i) - lr grad F_i(s_i, h_i),   s <- sum_i p_i s_i,

    with s the shared part, where every s_i begins, and h_i what the client keeps.

    The head is the modules named in `head` (comma-separated; empty: the last module of the model, which is the final
    linear layer of every model here), the body is the rest. What stays private and how the parts are trained:

        FedPer     (Arivazhagan et al., 2019)  keeps the head, trains both parts jointly
        LG-FedAvg  (Liang et al., 2020)        keeps the body, trains both parts jointly
        FedRep     (Collins et al., 2021)      keeps the head; first `head_epochs` on the head with the body fixed,
                                               then `body_epochs` on the body with the head fixed

    `head_epochs` of None means the run's epochs. A client's private part starts at random, differently per client and
    seed. The server knows none, so one that was never sampled has only that random start: before use it trains its
    private part alone, on its training rows for the run's epochs, with the shared part (and its statistics) as
    received. Nothing of it is kept, and such clients are counted.
    """

    deploys: ClassVar[Deployed] = Deployed(
        "the shared part of the global model with the client's own part; a client that was never sampled first trains "
        "its own part for the run's epochs, the shared part fixed"
    )

    keeps: str = "head"
    head: str = ""
    alternate: bool = False
    head_epochs: int | None = None
    body_epochs: int = 1

    def __post_init__(self) -> None:
        check.one_of("Split", "keeps", self.keeps, ("head", "body"))
        check.whole("Split", "body_epochs", self.body_epochs)
        if self.head_epochs is not None:
            check.whole("Split", "head_epochs", self.head_epochs)

    def _cut(self, task: Task) -> Cut:
        """Named part: the head."""
        names = tuple(name.strip() for name in self.head.split(",")) if self.head else (task.layout.modules[-1],)
        cut = task.layout.cut(names)
        check.require(
            len(cut.others) > 0, "Split", f"{', '.join(names)} is the whole model: nothing is left for the body"
        )
        return cut

    def _parts(self, task: Task, theta: Tensors) -> Tensors:
        """{"theta": what is shared, "own": what is kept} of a whole model."""
        head, body = self._cut(task).split(theta["theta"])
        return {"theta": body, "own": head} if self.keeps == "head" else {"theta": head, "own": body}

    def _join(self, task: Task, parts: Tensors) -> Tensors:
        head, body = ("own", "theta") if self.keeps == "head" else ("theta", "own")
        return {"theta": self._cut(task).join(parts[head], parts[body]), "buffers": parts["buffers"]}

    def opening(self, task: Task, key: int) -> Tensors:
        model = task.init(key)
        return {"theta": self._parts(task, model)["theta"].clone()} | self._statistics(model, of="head")

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        model = task.fresh(key)
        return {"own": self._parts(task, model)["own"].clone()} | self._statistics(model, of="body")

    def _statistics(self, model: Tensors, of: str) -> Tensors:
        """BatchNorm statistics belong to the body: shared if it is shared, private if it is private."""
        return {"buffers": model["buffers"]} if self.keeps == of else {}

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        if not self.alternate:
            return (Phase(("theta", "own"), visit.info.epochs),)
        head, body = ("own", "theta") if self.keeps == "head" else ("theta", "own")
        epochs = visit.info.epochs if self.head_epochs is None else self.head_epochs
        return Phase((head,), epochs, name="head"), Phase((body,), self.body_epochs, name="body")

    def start(self, visit: Visit) -> Tensors:
        return visit.shared | visit.own

    def received(self, visit: Visit) -> Tensors:
        return self._join(visit.task, visit.shared | visit.own)

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Tensors:
        whole = self._join(visit.task, trained)
        slope, buffers = visit.task.grad(whole["theta"], trained["buffers"], batch, key)
        parts = self._parts(visit.task, {"theta": slope})
        return {name: parts[name] for name in visit.phase.moves} | {"buffers": buffers}

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        update = trained["theta"] - visit.shared["theta"]
        own = {"own": trained["own"]} | self._statistics(trained, of="body")
        return Upload(mix={"theta": update}, carry=self._statistics(trained, of="head")), own

    def tuning(self, visit: Visit) -> tuple[Phase, ...]:
        return () if visit.sampled else (Phase(("own",), visit.info.epochs, name="tune"),)

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors:
        """`own` is what a client keeps or has tuned; without either (None), an untrained private part."""
        own = own or self.init(task, shared, rng.key(0, "never sampled"))
        return self._join(task, shared | {"own": own["own"]} | self._statistics(own, of="body"))
