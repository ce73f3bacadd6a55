"""Who answers in a round: how often clients are asked, and how many of them must answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fedchord import check
from fedchord.check import FedchordError
from fedchord.core.round import Plan
from fedchord.core.rules import Algorithm

Reply = TypeVar("Reply")
Ask = Callable[[list[int], int], tuple[Mapping[int, Reply], Mapping[int, str]]]
"""Asks some clients, for the n-th time (from 0): what came back, and why nothing did, by client."""


@dataclass(frozen=True)
class Terms:
    """When a round goes on: those who did not answer are asked again, `attempts` times in all, until at least the share
    `minimum` of the cohort has answered. A rule that needs every client in every round waits for all of them."""

    attempts: int = 3
    minimum: float = 0.5

    def __post_init__(self) -> None:
        check.whole("run", "attempts", self.attempts, 1, 1000)
        check.between("run", "minimum", self.minimum, 0, 1)

    def least(self, algorithm: Algorithm, cohort: int) -> int:
        """How many of a cohort must answer."""
        return cohort if algorithm.mixing.full else max(1, math.ceil(self.minimum * cohort - 1e-9))


class TooFew(FedchordError):
    """Fewer clients took part in a round than it needs."""


def collected(
    ids: Sequence[int], least: int, attempts: int, ask: Ask[Reply]
) -> tuple[dict[int, Reply], dict[int, str]]:
    """The replies of clients, in the order of `ids`, and the last cause of each that is missing.

    Those who are missing are asked again until there are enough; who is not there by then is left out.
    """
    came: dict[int, Reply] = {}
    missing: dict[int, str] = {}
    for attempt in range(attempts):
        waiting = [client for client in ids if client not in came]
        replies, causes = ask(waiting, attempt)
        came |= {client: replies[client] for client in waiting if client in replies}
        missing = {client: causes.get(client, "late") for client in waiting if client not in came}
        if len(came) >= least:
            break
    return {client: came[client] for client in ids if client in came}, missing


def enough(round: int, came: int, least: int, asked: int, missing: Mapping[int, str]) -> None:
    """End the run where too few answered; `round` counts from 1."""
    if came < least:
        told, why = f"only {came} of {asked} clients answered, {least} are needed", first(missing)
        raise TooFew(f"round {round}: {told}{f' ({why})' if why else ''}")


def somebody(plan: Plan, round: int, asked: int) -> None:
    """End a run that has nobody to ask in a round; where cohorts are drawn from all, chance may have drawn nobody."""
    enough(round, 0, int(plan.draw == "here"), asked, {})


def first(causes: Mapping[int, str]) -> str:
    """The causes of the first three clients in words, and how many more there are."""
    why = ", ".join(f"client {client} {cause}" for client, cause in sorted(causes.items())[:3])
    return f"{why} and {len(causes) - 3} more" if len(causes) > 3 else why
