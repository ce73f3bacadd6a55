"""Hostile nodes: what an attack changes of their answers, for tests and rehearsals.

`Hostile` is a transport to nodes in this process, `HostileNode` one node, which may be in a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from fedchord.attacks.attack import LOSSES, Attack
from fedchord.attacks.uploads import UPLOADS
from fedchord.check import require
from fedchord.remote.direct import Direct
from fedchord.remote.marks import LOSS, grouped
from fedchord.remote.node import Node
from fedchord.remote.parcel import Parcel
from fedchord.remote.plan import Plan
from fedchord.remote.transport import Answering, Answers

SUMMED = ("mix", "mean")
TOGETHER = "little"
"""The attack of clients that know each other's updates."""


class Hostile(Direct):
    """Nodes of which some are hostile, as in a simulation of the same plan in the same attack, to the bit.

    Wrong labels are in the rows that a node is given (`Attack.poisoned`). The attacks act on whole answers, so that a
    client is asked for its update in one phase; where replies get lost, those of `little` know more of each other here.
    """

    def __init__(self, nodes: Mapping[int, Answering], plan: Plan, attack: Attack) -> None:
        super().__init__(nodes)
        _check(plan, attack)
        self._attack, self._seed = attack, plan.course.seed
        self.hostile = attack.hostile(self._seed, plan.clients)

    def ask(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> Answers:
        """Every node's answer; those of hostile ones are changed."""
        found = super().ask(kind, parcels, seconds)
        mine = {client: parcel for client, parcel in found.parcels.items() if client in self.hostile}
        if kind != "train" or not mine:
            return found
        for client in mine:
            _one_phase(parcels[client])
        return Answers({**found.parcels, **changed(self._attack, self._seed, mine)}, found.missing)


class HostileNode:
    """A node that is hostile by itself: it knows its own answers alone, so that it cannot play `little`.

    What it sends has the bits that this client sends in a simulation of the same attack.
    """

    def __init__(self, node: Node, attack: Attack) -> None:
        _check(node.plan, attack)
        alone = attack.name != TOGETHER
        require(alone, "rehearse", f"attack={TOGETHER} needs all hostile clients in one place")
        self._node, self._attack = node, attack

    def hello(self) -> Parcel:
        """That of the node."""
        return self._node.hello()

    def answer(self, kind: str, parcel: Parcel) -> Parcel:
        """The node's answer; an update, or the loss it tells, is changed."""
        found = self._node.answer(kind, parcel)
        if kind != "train":
            return found
        _one_phase(parcel)
        client = self._node.client
        return changed(self._attack, self._node.plan.course.seed, {client: found})[client]


def changed(attack: Attack, seed: int, mine: Mapping[int, Parcel]) -> dict[int, Parcel]:
    """What hostile clients send in place of their honest answers, by client."""
    found = {client: dict(parcel.tensors) for client, parcel in mine.items()}
    if attack.name == LOSSES:
        for tensors in found.values():
            tensors[LOSS] = tensors[LOSS] * attack.strength
    else:
        first = grouped(next(iter(found.values())))
        names = [f"{way}/{name}" for way in SUMMED for name in first[way]]
        rows = {name: torch.stack([tensors[name] for tensors in found.values()]) for name in names}
        round = int(next(iter(mine.values())).facts["round"])
        sent = attack.uploads(rows, list(found), seed, round)
        for slot, tensors in enumerate(found.values()):
            tensors |= {name: sent[name][slot].clone() for name in names}
    return {client: replace(mine[client], tensors=tensors) for client, tensors in found.items()}


def _check(plan: Plan, attack: Attack) -> None:
    attack.check(plan.algorithm)
    secret = plan.algorithm.mixing.secret and attack.name == LOSSES
    require(not secret, "rehearse", f"attack={LOSSES} cannot be played where clients add noise to their reports")
    whole = plan.config.packing() is None or attack.name not in UPLOADS
    require(whole, "rehearse", f"attack={attack.name} changes uploads as they are; leave compress out")


def _one_phase(parcel: Parcel) -> None:
    require("coefficient" not in parcel.facts, "rehearse", "attacks are played in one phase; set phases=1")
