"""Nodes in this process as a transport: for tests, and to rehearse a plan before anyone deploys it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fedchord.check import FedchordError
from fedchord.data.alone import alone
from fedchord.data.federation import Federation
from fedchord.remote.limits import Limits
from fedchord.remote.node import Node
from fedchord.remote.parcel import Parcel
from fedchord.remote.plan import Plan
from fedchord.remote.transport import Answering, Answers
from fedchord.tensors import clone


class Direct:
    """Asks nodes one after another; what they get and give is copied, as on a wire."""

    def __init__(self, nodes: Mapping[int, Answering]) -> None:
        self.nodes = dict(nodes)

    def clients(self) -> set[int]:
        """The clients that can be asked now."""
        return set(self.nodes)

    def ask(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> Answers:
        """Every node's answer; a node is given the time it needs."""
        came, missing = {}, {}
        for client, parcel in parcels.items():
            if client not in self.nodes:
                missing[client] = "gone"
                continue
            try:
                came[client] = _copied(self.nodes[client].answer(kind, _copied(parcel)))
            except FedchordError as error:
                missing[client] = f"refused: {error}"
        return Answers(came, missing)

    def tell(self, kind: str, parcels: Mapping[int, Parcel]) -> None:
        """The same, whatever they answer."""
        Direct.ask(self, kind, parcels, 0.0)


def nodes_of(
    plan: Plan, federation: Federation, folder: Path, secret: bytes = b"", limits: Limits | None = None
) -> dict[int, Node]:
    """A node for every client of a federation whose rows are all here, each with its own rows and its own folder; the
    secret of a node is made of one for all, which is for tests and rehearsals only."""
    return {
        client: Node(
            plan,
            client,
            alone(federation, client),
            folder / f"client-{client}",
            secret=secret and secret + client.to_bytes(4, "little"),
            limits=limits,
            audit=folder / f"client-{client}.jsonl",
        )
        for client in range(plan.clients)
    }


def _copied(parcel: Parcel) -> Parcel:
    return Parcel(clone(parcel.tensors), json.loads(json.dumps(parcel.facts)))
