"""Privacy of whole clients: clipped uploads, equal weights, Gaussian noise on their sum.

With m clients in a round (on average, under Poisson sampling), clip C and noise z, the server gets

    (sum over the cohort of u_i min(1, C / ||u_i||) + z C N(0, I)) / m,

where u_i is all of client i's upload, what is mixed and what is averaged, as one vector. It is the Gaussian mechanism;
what the server makes of it, broadcasts and later rounds included, costs nothing more. m is the planned number: who did
not answer counts as zero. Of a quotient the numerator alone is sent (`privacy.quotient`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, final

import torch
from torch import Tensor

from fedchord.core.records import Log
from fedchord.core.rules import Algorithm, Cohort, Mix, MixingRule, RoundInfo, ServerRule, Update, Upload, Visit
from fedchord.privacy import draws
from fedchord.privacy.accounting import Spending
from fedchord.privacy.quotient import undivided
from fedchord.privacy.terms import Privacy
from fedchord.tensors import Tensors

Name = TypeVar("Name")


@final
@dataclass(frozen=True)
class Clip:
    """A guard: all that is mixed or averaged, as one vector u, leaves as u min(1, norm / ||u||).

    Buffers are statistics and no update; they leave as they are. A log stays here where it is not to be `told`.
    """

    norm: float
    told: bool = True

    def __call__(self, upload: Upload, visit: Visit) -> Upload:
        log = upload.log if self.told else Log()
        both = {("mix", name): part for name, part in upload.mix.items()}
        both |= {("mean", name): part for name, part in upload.mean.items()}
        cut = self.clipped(both)
        mix, mean = ({name: part for (way, name), part in cut.items() if way == group} for group in ("mix", "mean"))
        return Upload(mix, upload.carry, mean, log)

    def clipped(self, parts: Mapping[Name, Tensor]) -> dict[Name, Tensor]:
        """Named tensors, cut as one vector."""
        if not parts:
            return {}
        length = torch.linalg.vector_norm(torch.cat([part.double().flatten() for part in parts.values()]))
        factor = torch.where(length > self.norm, self.norm / length, 1.0)
        return {name: part * factor.to(part.dtype) for name, part in parts.items()}


@final
@dataclass(frozen=True)
class EqualParts(MixingRule):
    """Each client of the cohort counts 1 / m, with m the planned number whoever answered; epsilon so far is logged."""

    cohort: int
    spending: Spending = field(repr=False)

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        one = torch.ones(len(cohort.ids), dtype=torch.float64)
        log = {"epsilon": self.spending.after(info.round + 1)}
        return Mix(one / self.cohort, one / max(1, len(one)), log), state


@final
@dataclass(frozen=True)
class Noised(ServerRule):
    """Another server rule on sums to which noise of std z C / m was added.

    In a simulation the noise is a function of the round's key. Over a network all parties know that key, so the server
    draws it from a `secret`.
    """

    inner: ServerRule
    clip: float
    cohort: int
    spending: Spending = field(repr=False)
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "takes", self.inner.takes)

    @property
    def horizon(self) -> str:
        """What of the inner rule depends on the number of all rounds."""
        return str(getattr(self.inner, "horizon", ""))

    def init(self, moving: Tensors) -> Tensors:
        return self.inner.init(moving)

    def step(self, broadcast: Tensors, update: Update, state: Tensors, info: RoundInfo) -> tuple[Tensors, Tensors]:
        came = info.cohort / self.cohort  # plain means are over those who answered
        mix = {name: self._hidden(f"mix/{name}", value, info) for name, value in update.mix.items()}
        mean = {name: self._hidden(f"mean/{name}", came * value, info) for name, value in update.mean.items()}
        planned = info if info.cohort == self.cohort else replace(info, cohort=self.cohort)
        return self.inner.step(broadcast, Update(mix, mean), state, planned)

    def _hidden(self, name: str, value: Tensor, info: RoundInfo) -> Tensor:
        std = self.spending.noise * self.clip / self.cohort
        noise = self._drawn(name, value.detach().cpu(), info).to(value.device)
        return (value.double() + std * noise).to(value.dtype)

    def _drawn(self, name: str, value: Tensor, info: RoundInfo) -> Tensor:
        """Standard normal numbers. By a secret they depend on the sum itself: a round that is done again with other
        answers must not have the same."""
        shape = tuple(value.shape)
        if self.secret:
            mark = hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
            return draws.secret(self.secret, "noise", info.round, name, mark, shape=shape)
        return draws.keyed(info.key, name, shape)


def protected(
    algorithm: Algorithm, privacy: Privacy, clients: int, cohort: int, rounds: int, secret: bytes = b""
) -> Algorithm:
    """The algorithm with equal weights and noise; uploads must also be clipped, by the guard `Clip(privacy.clip)`."""
    spending = privacy.of_clients(clients, cohort, rounds)
    whole = undivided(algorithm)
    server = Noised(whole.server, privacy.clip, cohort, spending, secret)
    return Algorithm(whole.client, EqualParts(cohort, spending), server, algorithm.name)
