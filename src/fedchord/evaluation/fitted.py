"""A trained federation: what every client would deploy, after the training before use that its rule asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedchord import notebook, rng
from fedchord.check import fail, require
from fedchord.core.rules import LINE, Line, ServerState, shared_model
from fedchord.engine.averaging import averaged
from fedchord.engine.compress import divided
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult
from fedchord.engine.work import Work
from fedchord.tensors import Tensors

if TYPE_CHECKING:
    from fedchord.evaluation.prediction import Prediction

STATISTICS = 256
"""How many training rows make a batch when BatchNorm statistics are recomputed."""


@dataclass(frozen=True)
class Fitted:
    """The work of a run, which is constant, with a server state and the clients' memory.

    Where global models are averaged, the mean takes the place of the last one in `state`. `at` is the lambda that was
    chosen for all clients, from 0, the global model, to 1, their own (None: what each rule says). `among` is how many
    clients are measured (0: all), always the same ones of a seed.
    """

    work: Work
    state: ServerState
    memory: ClientMemory
    at: float | None = None
    among: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", averaged(self.state, self.work.task))

    def __repr__(self) -> str:
        algorithm, federation = self.work.algorithm, self.work.federation
        what = notebook.one_line(f"{algorithm.title} on {federation.name}")
        return f"Fitted({what} after round {self.state.round}: {notebook.counted(federation.num_clients, 'client')})"

    @staticmethod
    def of(result: RoundResult) -> Fitted:
        """What a round of `simulate` ended with."""
        return Fitted(result.work, result.state, result.memory)

    def clients(self, split: str = "test") -> list[int]:
        """The clients that are measured, all or some of those that have rows of a split; none at all is an error."""
        found: list[int] = self.work.federation.part(split).sizes.nonzero().flatten().tolist()
        if not found:
            raise fail("evaluate", f"no client has {split} rows")
        if not 0 < self.among < len(found):
            return found
        return [found[at] for at in rng.choose(rng.key(self.work.seed, "measured"), len(found), self.among)]

    def sampled(self, client: int) -> bool:
        """Whether a client has taken part in a round."""
        return self.state.visits[client] > 0

    def memory_of(self, client: int) -> Tensors | None:
        """What a client's rule keeps; empty if it keeps nothing, None if it never took part."""
        return divided(self.memory.get(client) or {})[0] if self.sampled(client) else None

    def tunes(self, client: int) -> bool:
        """Whether a client trains before it deploys."""
        return self.at != 0 and bool(self.work.tuning(client, self.sampled(client), self.state)[1])

    def waits(self, client: int) -> bool:
        """Whether a client would train before use only because it never took part (FedPer's private part)."""
        if self.sampled(client) or not self.tunes(client):
            return False
        return not self.work.tuning(client, True, self.state)[1]

    def point(self, client: int) -> Tensors | Line:
        """What a client deploys, after the training before use: a model, or a point on a line."""
        if self.at == 0:
            return shared_model(self.state.broadcast)
        return self.deployed_from(self.work.tune(client, self.memory_of(client), self.state))

    def deployed_from(self, own: Tensors | None) -> Tensors | Line:
        """What a client deploys that keeps this, or has made it before use."""
        rule = self.work.algorithm.client
        found = rule.deploy(self.work.task, self.state.broadcast, own)
        if isinstance(found, Line):
            told = rule.deploys.kind == LINE
            require(told, type(rule).__name__, "deploy gives a Line, so deploys must be Deployed(words, 'line')")
        else:
            require("theta" in found, type(rule).__name__, f"deploy gives no theta, only {sorted(found)}")
        return found if self.at is None else self.placed(found, self.at)

    def placed(self, point: Tensors | Line, at: float) -> Tensors | Line:
        """The model at lambda between the global model and a client's own; a client with one model has that one.

        At 0 it is the global model as it is, and where the rule deploys it is what the rule deploys.
        """
        shared = shared_model(self.state.broadcast)
        if not isinstance(point, Line):
            if point["theta"] is shared["theta"]:
                return point
            point = Line(shared["theta"], point["theta"], 1.0, point.get("buffers"))
        if at == 0:
            return shared
        return point if math.isclose(at, float(point.at), abs_tol=1e-6) else Line(point.near, point.far, at)

    def predict(self, rows: Any, client: int | str | None = None, **choices: Any) -> Prediction:
        """What the model of a client, or the global one, says of new rows; see `prediction.predict`."""
        from fedchord.evaluation.prediction import predict  # here, since it needs a Fitted itself

        return predict(self, rows, client, **choices)

    def line(self, client: int) -> Line | None:
        """The two models of a client, where it has two."""
        found = self.point(client) if self.work.algorithm.client.deploys.kind == LINE else None
        return found if isinstance(found, Line) else None

    def deployed(self, client: int) -> Tensors:
        """The model a client deploys, {"theta", "buffers"}."""
        return self.model(client, self.point(client))

    def model(self, client: int, point: Tensors | Line) -> Tensors:
        """A point as a model; without statistics of its own they are recomputed on the client's training rows."""
        if isinstance(point, Line):
            theta, buffers = point.theta, point.buffers
        else:
            theta, buffers = point["theta"], point.get("buffers")
        return {"theta": theta, "buffers": self.statistics(client, theta) if buffers is None else buffers}

    def statistics(self, client: int, theta: Tensor) -> Tensor:
        """BatchNorm statistics of a model, recomputed on a client's training rows (empty where the model has none)."""
        task, federation = self.work.task, self.work.federation
        if not task.buffers.size:
            return torch.zeros(0, device=theta.device)
        return task.statistics(theta, (federation.batch(rows) for rows in federation.train[client].split(STATISTICS)))
