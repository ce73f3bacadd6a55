"""Plain local training: FedAvg's clients, and clients that learn alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from fedchord.core.rules import ClientRule, Deployed, Upload, Visit, shared_model
from fedchord.core.task import Task
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Plain(ClientRule):
    """Local SGD from the received model; the change is uploaded (McMahan et al., 2017, FedAvg).

        theta_i <- theta_i - lr grad F_i(batch; theta_i),   theta_i = theta at first,

    E epochs; upload theta_i - theta.
    """


@final
@dataclass(frozen=True)
class Local(ClientRule):
    """Every client trains a model of its own and sends nothing: the control that says what federation is worth.

        theta_i <- theta_i - lr grad F_i(batch; theta_i),   theta_i kept from round to round.

    All clients start from the same first model; one that was never sampled deploys that first model, and is counted.
    """

    deploys: ClassVar[Deployed] = Deployed("each client's own model; the first model where a client was never sampled")
    sends: ClassVar[Mapping[str, str]] = {}

    def init(self, task: Task, shared: Tensors, key: int) -> Tensors:
        return shared_model(shared)

    def start(self, visit: Visit) -> Tensors:
        return visit.own

    def received(self, visit: Visit) -> Tensors:
        return visit.own

    def finish(self, trained: Tensors, visit: Visit) -> tuple[Upload, Tensors]:
        return Upload(), trained

    def deploy(self, task: Task, shared: Tensors, own: Tensors | None) -> Tensors:
        return own or shared_model(shared)
