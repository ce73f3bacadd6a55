"""SuPerFed for fleets whose clients keep nothing between rounds: the private model is made anew when it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import torch

from fedchord import check, rng
from fedchord.clients.superfed import SuPerFed
from fedchord.core.objective import Batch
from fedchord.core.rules import LINE, ClientRule, Deployed, Line, Phase, RoundInfo, Slope, Upload, Visit, shared_model
from fedchord.core.task import Task
from fedchord.core.training import LocalOptimiser
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class StatelessSuPerFed(ClientRule):
    """SuPerFed without memory: a client rebuilds its private model l in each round, and once more before use.

    In a round, f starts at the received g and l where `rebuild` says:

        "global"   at g as well
        "seed"     at the client's own random model, which its key gives anew, the same in every round

    Both then train by SuPerFed's steps on J(f, l) for the round's epochs, f is sent and l is forgotten. Before use (and
    before every evaluation) a client makes l again from the same start by `tune_epochs` epochs on

        J(g, l) = loss((1 - lam) g + lam l) + nu cos^2(g, l),   lam drawn anew for every batch,

    with g fixed, and deploys (1 - blend) g + blend l. So do clients that were never sampled, also during the warm-up.
    `tune_epochs` of 0 deploys g. Everything else is as in `SuPerFed`: lam per model or per module, mu, the warm-up, the
    statistics. What is lost: l sees one round of training instead of all of them.

    With "global" the cosine hardly acts. At f = l = g its square is 1, the maximum, where its gradient is zero; the
    ends part only because lam and 1 - lam scale their steps differently. l is then fine-tuning with about half the step
    (the mean of lam), and blend = 1/2 halves it once more: on digits after one epoch the deployed model had moved 0.28
    as far from g as a fine-tuned one, in the same direction, with cos(g, l) = 0.9995 for nu = 0, 1 and 5 (ten epochs
    with a larger step: 0.99, 0.98, 0.92). With "seed" the ends start almost orthogonal, and the term keeps them so
    (0.08, 0.06, 0.02 in the last case): it is the form in which nu does what it does in `SuPerFed`.
    """

    deploys: ClassVar[Deployed] = Deployed(
        "(1 - blend) g + blend l, where l is rebuilt by tune_epochs local epochs with g fixed, also by clients that "
        "were never sampled; the global model if tune_epochs is 0",
        LINE,
    )

    layerwise: bool = False
    mu: float = 0.01
    nu: float = 1.0
    warmup: float = 0.4
    start_round: int | None = None
    blend: float = 0.5
    rebuild: str = "global"
    tune_epochs: int = 1

    def __post_init__(self) -> None:
        check.one_of("StatelessSuPerFed", "rebuild", self.rebuild, ("global", "seed"))
        check.whole("StatelessSuPerFed", "tune_epochs", self.tune_epochs)
        _ = self._line  # checks the other fields

    @cached_property
    def _line(self) -> SuPerFed:
        """The steps along the line."""
        return SuPerFed(self.layerwise, self.mu, self.nu, self.warmup, self.start_round, self.blend)

    @property
    def horizon(self) -> str:
        """What depends on the number of all rounds: the start of mixing, as in `SuPerFed`."""
        return self._line.horizon

    def mixes_in(self, info: RoundInfo) -> bool:
        """Whether the private model takes part in a round: t >= L."""
        return self._line.mixes_in(info)

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        """Where l starts; asked for in every round, since nothing is kept."""
        return {"own": task.fresh(key)["theta"]} if self.rebuild == "seed" else {}

    def phases(self, visit: Visit) -> tuple[Phase, ...]:
        return self._line.phases(visit)

    def tuning(self, visit: Visit) -> tuple[Phase, ...]:
        return (Phase(("own",), self.tune_epochs, name="tune", stays=True),) if self.tune_epochs else ()

    def start(self, visit: Visit) -> Tensors:
        tunes = visit.phase.name == "tune"
        if not tunes and not self.mixes_in(visit.info):
            return shared_model(visit.shared)
        own = visit.own["own"] if self.rebuild == "seed" else visit.shared["theta"]
        ends = {"own": own} if tunes else {"pair": torch.stack([visit.shared["theta"], own])}
        return ends | {"buffers": visit.shared["buffers"]}

    def direction(self, trained: Tensors, visit: Visit, batch: Batch, key: rng.Key) -> Slope:
        if "own" not in trained:
            return self._line.direction(trained, visit, batch, key)
        pair = torch.stack([visit.shared["theta"], trained["own"]])
        slope = self._line.direction({"pair": pair, "buffers": trained["buffers"]}, visit, batch, key)
        both = slope["pair"]
        assert isinstance(both, torch.Tensor)
        return {"own": both[1], "buffers": slope["buffers"]}

    def step(
        self, trained: Tensors, memory: Tensors, visit: Visit, batch: Batch, key: rng.Key, optimiser: LocalOptimiser
    ) -> tuple[Tensors, Tensors]:
        if "own" in trained:
            return ClientRule.step(self, trained, memory, visit, batch, key, optimiser)
        return self._line.step(trained, memory, visit, batch, key, optimiser)

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        f = trained["pair"][0] if "pair" in trained else trained["theta"]
        return Upload(mix={"theta": f - visit.shared["theta"]}, carry={"buffers": trained["buffers"]}), {}

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors | Line:
        """Between g and the rebuilt l, where one was rebuilt."""
        return Line(shared["theta"], own["own"], self.blend) if own else shared_model(shared)
