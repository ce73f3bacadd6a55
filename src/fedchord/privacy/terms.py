"""What is asked for: who is protected, how much, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedchord import check
from fedchord.privacy.accounting import ALL, FIXED, POISSON, Draw, Spending

CLIENTS, ROWS = "clients", "rows"
SAMPLINGS = (FIXED, POISSON)


@final
@dataclass(frozen=True)
class Privacy:
    """Differential privacy of a run.

    `level` is whose: "clients" (all rows of a client together; the server is trusted and adds the noise) or "rows"
    (single rows; each client adds noise of its own and trusts nobody). `clip` bounds the norm of what one of them adds
    to a sum. Either `epsilon` is given, and the least noise for it is found, or `noise`, a multiple of `clip`, and
    epsilon is told. `sampling` is how cohorts are drawn at the level of clients; rows are always drawn by Poisson
    sampling.
    """

    level: str = CLIENTS
    clip: float = 1.0
    delta: float = 1e-5
    epsilon: float | None = None
    noise: float | None = None
    sampling: str = FIXED

    def __post_init__(self) -> None:
        check.one_of("privacy", "privacy", self.level, (CLIENTS, ROWS))
        check.positive("privacy", "privacy.clip", self.clip)
        check.number("privacy", "privacy.delta", self.delta)
        good = 0 < self.delta < 1
        check.require(good, "privacy", f"privacy.delta must be above 0 and below 1, got {self.delta!r}")
        check.one_of("privacy", "privacy.sampling", self.sampling, SAMPLINGS)
        one = (self.epsilon is None) != (self.noise is None)
        both = "both" if self.noise is not None else "neither"
        check.require(one, "privacy", f"give privacy.epsilon, or privacy.noise (a multiple of the clip), got {both}")
        if self.epsilon is not None:
            check.positive("privacy", "privacy.epsilon", self.epsilon)
        if self.noise is not None:
            check.at_least("privacy", "privacy.noise", self.noise, 0)

    @property
    def horizon(self) -> str:
        """What depends on the number of all rounds, in words."""
        return "" if self.epsilon is None else "chooses its noise for all rounds (privacy.epsilon)"

    def of_clients(self, clients: int, cohort: int, rounds: int) -> Spending:
        """What rounds cost each of so many clients, with so many in a round."""
        self.doubt(clients, "clients")
        way = ALL if cohort == clients and self.sampling == FIXED else self.sampling
        return Spending(Draw(way, cohort, clients), rounds, self.delta, self.noise, self.epsilon)

    def doubt(self, members: int, what: str) -> None:
        """Warn of a delta at which one of so many members may be published whole."""
        if self.delta >= 1 / members:
            told = f"at 1 / {members} or more one of {members} {what} may be published as it is"
            check.warn("privacy", f"privacy.delta is {self.delta:g}; {told}")


__all__ = ["CLIENTS", "FIXED", "POISSON", "ROWS", "Privacy"]
