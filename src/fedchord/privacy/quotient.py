"""Rules whose sums are a numerator and a denominator, where whole clients are hidden: the numerator alone is released.

Noise in a denominator comes into a quotient, which has no mean and may change its sign; and what the denominator has of
the clip is lost to the numerator. So the denominator stays with the clients, and a fixed and public number, 1,
takes its place: what is made of the noised numerator costs nothing more.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from fedchord.core.rules import Algorithm

Rule = TypeVar("Rule")


@runtime_checkable
class Quotient(Protocol):
    """A client or server rule of a numerator and a denominator."""

    def numerator(self) -> Any:
        """The same rule, which sends or takes the numerator alone."""
        ...


def only(rule: Rule, entries: str, kept: Mapping[str, str]) -> Rule:
    """The rule with other `sends` or `takes` (`entries`)."""
    twin = copy.copy(rule)
    object.__setattr__(twin, entries, dict(kept))
    return twin


def undivided(algorithm: Algorithm) -> Algorithm:
    """The algorithm with numerators alone; as it is where there are no quotients."""
    client, server = algorithm.client, algorithm.server
    return replace(
        algorithm,
        client=client.numerator() if isinstance(client, Quotient) else client,
        server=server.numerator() if isinstance(server, Quotient) else server,
    )
