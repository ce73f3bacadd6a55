"""Hostile nodes in this process: what an attack changes of their answers, for tests and rehearsals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from fedchord.attacks.attack import LOSSES, Attack
from fedchord.attacks.uploads import UPLOADS
from fedchord.check import require
from fedchord.remote.direct import Direct
from fedchord.remote.marks import LOSS, grouped
from fedchord.remote.parcel import Parcel
from fedchord.remote.plan import Plan
from fedchord.remote.transport import Answering, Answers
from fedchord.tensors import Tensors

SUMMED = ("mix", "mean")


class Hostile(Direct):
    """Nodes of which some are hostile, as in a simulation of the same plan in the same attack, to the bit.

    Wrong labels are in the rows that a node is given (`Attack.poisoned`). The attacks act on whole answers, so that a
    client is asked for its update in one phase; where replies get lost, those of `little` know more of each other here.
    """

    def __init__(self, nodes: Mapping[int, Answering], plan: Plan, attack: Attack) -> None:
        super().__init__(nodes)
        attack.check(plan.algorithm)
        secret = plan.algorithm.mixing.secret and attack.name == LOSSES
        require(not secret, "rehearse", f"attack={LOSSES} cannot be played where clients add noise to their reports")
        whole = plan.config.packing() is None or attack.name not in UPLOADS
        require(whole, "rehearse", f"attack={attack.name} changes uploads as they are; leave compress out")
        self._attack, self._seed = attack, plan.course.seed
        self.hostile = attack.hostile(self._seed, plan.clients)

    def ask(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> Answers:
        """Every node's answer; those of hostile ones are changed."""
        found = super().ask(kind, parcels, seconds)
        mine = {client: parcel for client, parcel in found.parcels.items() if client in self.hostile}
        if kind != "train" or not mine:
            return found
        weighed = any("coefficient" in parcels[client].facts for client in mine)
        require(not weighed, "rehearse", "attacks are played in one phase; set phases=1")
        changed = {client: replace(mine[client], tensors=tensors) for client, tensors in self._changed(mine).items()}
        return Answers({**found.parcels, **changed}, found.missing)

    def _changed(self, mine: Mapping[int, Parcel]) -> dict[int, Tensors]:
        """What hostile clients send, by client."""
        found = {client: dict(parcel.tensors) for client, parcel in mine.items()}
        if self._attack.name == LOSSES:
            for tensors in found.values():
                tensors[LOSS] = tensors[LOSS] * self._attack.strength
            return found
        first = grouped(next(iter(found.values())))
        names = [f"{way}/{name}" for way in SUMMED for name in first[way]]
        rows = {name: torch.stack([tensors[name] for tensors in found.values()]) for name in names}
        round = int(next(iter(mine.values())).facts["round"])
        sent = self._attack.uploads(rows, list(found), self._seed, round)
        for slot, tensors in enumerate(found.values()):
            tensors |= {name: sent[name][slot].clone() for name in names}
        return found
