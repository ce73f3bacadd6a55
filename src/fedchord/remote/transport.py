"""What carries parcels between the server's half of a round and the nodes': Flower, or nodes in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fedchord.remote.parcel import Parcel


@dataclass(frozen=True)
class Answers:
    """What came back in time, by client, and in words why others did not answer ("late", "lost", "refused: ...")."""

    parcels: dict[int, Parcel] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)


class Transport(Protocol):
    """Carries parcels to clients by their number in the federation, and brings back what came in time."""

    def clients(self) -> set[int]:
        """The clients that can be asked now."""
        ...

    def ask(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> Answers:
        """Send each client its parcel and wait, at most so many seconds, for the answers."""
        ...

    def tell(self, kind: str, parcels: Mapping[int, Parcel]) -> None:
        """Send each client that is here its parcel; no answer is waited for."""
        ...


class Answering(Protocol):
    """A node: one client's rows and memory, on its owner's machine."""

    def hello(self) -> Parcel:
        """Who it is (client, name), and of which plan and version: facts alone."""
        ...

    def answer(self, kind: str, parcel: Parcel) -> Parcel:
        """What the client sends back. A refusal (limits, other plan, bad message) is a FedchordError of one line."""
        ...
