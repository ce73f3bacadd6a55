"""Clients that lie about their loss: what a mixing rule does when some of the numbers it is told are inflated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.tensors import Tensors


def lied(losses: Tensor, ids: Tensor, clients: Collection[int], factor: float) -> Tensor:
    """What is reported: factor F_i by those of `ids` who are among `clients`, F_i by all others."""
    lying = torch.isin(ids, torch.tensor(sorted(clients), device=ids.device))
    return torch.where(lying.to(losses.device), factor * losses, losses)


@final
@dataclass(frozen=True)
class Liars(MixingRule):
    """A mixing rule to which some clients report `factor` times their loss; all else is the rule's own.

    Wraps any rule that asks for losses: it sees F_i for honest clients and factor F_i for the liars, who train
    honestly. The log has `liar_share`, the weight that the liars of the cohort get together.
    """

    rule: MixingRule
    clients: tuple[int, ...] = (0,)
    factor: float = 10.0

    def __post_init__(self) -> None:
        rule = self.rule
        check.positive("Liars", "factor", self.factor)
        check.require(len(self.clients) > 0, "Liars", "clients must name at least one")
        for client in self.clients:
            check.whole("Liars", "clients", client)
        check.require("loss" in rule.needs, "Liars", f"{type(rule).__name__} asks for no losses, so nobody can lie")

    @property
    def needs(self) -> Collection[str]:
        """What the wrapped rule asks for."""
        return self.rule.needs

    @property
    def full(self) -> bool:
        """Whether the wrapped rule must see every client in every round."""
        return self.rule.full

    @property
    def instead(self) -> str:
        """What the wrapped rule names in its place."""
        return self.rule.instead

    @property
    def secret(self) -> bool:
        """Whether clients of the wrapped rule add noise to what they tell."""
        return self.rule.secret

    def report(self, losses: Tensor, noise: Tensor) -> Tensor:
        return self.rule.report(losses, noise)

    @property
    def horizon(self) -> str:
        """What the wrapped rule makes of the number of all rounds."""
        return str(getattr(self.rule, "horizon", ""))

    def init(self, num_clients: int) -> Tensors:
        last = max(self.clients)
        check.require(last < num_clients, "Liars", f"there are {num_clients} clients, from 0; got client {last}")
        return self.rule.init(num_clients)

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        assert cohort.losses is not None
        lying = torch.isin(cohort.ids, torch.tensor(self.clients, device=cohort.ids.device))
        reported = lied(cohort.losses, cohort.ids, self.clients, self.factor)
        mix, state = self.rule.weigh(state, replace(cohort, losses=reported), info)
        share = float(mix.shares[lying.to(mix.shares.device)].sum())
        return replace(mix, log={**mix.log, "liar_share": share}), state
