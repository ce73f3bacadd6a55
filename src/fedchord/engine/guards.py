"""What a server does with uploads before they are weighed: what would ruin the model is left out, the rest is bounded.

An upload that holds a number which is not finite, or an update that explodes (it is a million times as long as the
model that the client received), is left out of the round, as if the reply had been lost: the others are weighed without
it, and the client starts again from what it kept before. With `bound` longer updates are scaled down to it. Where too
few are left, or the global model is no longer finite, or its loss has grown beyond all measure, the run ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor

from fedchord import check
from fedchord.core.records import Log
from fedchord.core.round import Combine, Results
from fedchord.core.rules import Algorithm, ServerState
from fedchord.engine.attendance import Terms, TooFew, first
from fedchord.engine.combine import TRIM, check_combine, combiner
from fedchord.tensors import Tensors

EXPLODED = 1e6
"""An update this many times as long as the model that was received (or as 1) explodes."""
GROWN = 1000.0
"""A loss this many times as large as the first that was measured (or as 1) has diverged, unless it is said."""
NOT_FINITE, TOO_LONG = "not finite", "exploded"
FAULTS = (NOT_FINITE, TOO_LONG)
"""How the cause begins for which an update is left out."""
MEDIAN = "median"
ADVICE = "try a lower lr, a limit on gradients (clip=1) or on updates (bound=median)"


class Diverged(TooFew):
    """A run that has no use for further rounds."""


@final
@dataclass(frozen=True)
class Defence:
    """How a server takes uploads.

    `bound`: the longest update that is taken as it is, a length or "median" (that of the cohort's lengths); `combine`:
    mean, median or trimmed (`trim` of the uploads at each end); `terms`: which share of a cohort must be left; `grown`:
    by which factor a loss may grow (0: by any).
    """

    bound: float | str | None = None
    combine: str = "mean"
    trim: float = TRIM
    terms: Terms = field(default_factory=Terms)
    grown: float = GROWN

    def __post_init__(self) -> None:
        if isinstance(self.bound, str):
            good = self.bound == MEDIAN
            check.require(good, "run", f"bound must be a length above 0 or {MEDIAN}, got {self.bound!r}")
        elif self.bound is not None:
            check.positive("run", "bound", self.bound)
        check.at_least("run", "diverged", self.grown, 0)
        _ = self.combiner

    @property
    def combiner(self) -> Combine:
        """What makes one upload of many."""
        return combiner(self.combine, self.trim)

    @property
    def looks(self) -> str:
        """What of it looks at single uploads, in words; "" if nothing."""
        asked = {"bound": self.bound is not None, "combine": self.combine != "mean"}
        return " and ".join(name for name, given in asked.items() if given)

    def check(self, algorithm: Algorithm, hidden: bool = False) -> None:
        """Refuse a method to whose uploads this cannot be done; `hidden`: noise hides a client in their sum."""
        check_combine(self.combine, algorithm)
        summed = not hidden or self.combine == "mean"
        check.require(summed, "privacy", f"noise hides a client in a sum, and combine={self.combine} is none")
        own = not hidden or self.bound != MEDIAN
        told = f"bound={MEDIAN} lets one client change how much the others count; use a length"
        check.require(own, "privacy", told)
        sends = bool(algorithm.client.sends)
        check.require(
            sends or self.bound is None, "run", f"bound limits what is sent, and {algorithm.title} sends nothing"
        )

    def taken(self, algorithm: Algorithm, state: ServerState, results: Results) -> tuple[Results, dict[int, str]]:
        """The uploads that are weighed, and why others are not; the run ends where too few are left."""
        causes = faults(results, state.broadcast)
        if causes:
            asked = len(results.ids)
            least = self.terms.least(algorithm, asked)
            left = asked - len(causes)
            if left < least:
                raise Diverged(_few(state.round + 1, left, asked, least, causes))
            results = without(results, causes)
        return (results if self.bound is None else bounded(results, self.bound)), causes


def faults(results: Results, received: Tensors) -> dict[int, str]:
    """Why an upload cannot be used, by client."""
    causes: dict[int, str] = {}
    ids: list[int] = results.ids.tolist()
    for way, part in (("mix", results.mix), ("mean", results.mean), ("carry", results.carry)):
        for name, stacked in part.items():
            if not stacked.numel() or not stacked.is_floating_point() or _square(stacked) < (EXPLODED / 2) ** 2:
                continue
            rows = stacked.reshape(len(ids), -1)
            low, high = torch.aminmax(rows, dim=1)
            largest = torch.maximum(-low, high)
            for slot in (~largest.isfinite()).nonzero().flatten().tolist():
                causes.setdefault(ids[slot], f"{NOT_FINITE}: {name}")
            if way != "carry" and name in received:  # an update of what was received
                limit = EXPLODED * max(1.0, float(torch.linalg.vector_norm(received[name].double())))
                suspects = largest.double() * math.sqrt(rows.shape[1]) > limit
                for slot in suspects.nonzero().flatten().tolist():
                    length = float(torch.linalg.vector_norm(rows[slot].double()))
                    if length > limit:
                        causes.setdefault(ids[slot], f"{TOO_LONG}: {name} of length {length:.1e}")
    return causes


def _square(tensor: Tensor) -> float:
    """The squared length of all numbers together, to a part in a hundred: one product, much faster than a look at each.

    It is not finite, or not below a bound, wherever a single number is not.
    """
    flat = tensor.reshape(-1)
    return float(torch.dot(flat, flat)) if flat.dtype in (torch.float32, torch.float64) else math.inf


def without(results: Results, clients: Sequence[int] | dict[int, str]) -> Results:
    """What came back, without some clients."""
    kept = torch.tensor([slot for slot, client in enumerate(results.ids.tolist()) if client not in clients])

    def rows(part: Tensors) -> Tensors:
        return {name: stacked[kept.to(stacked.device)] for name, stacked in part.items()}

    return replace(
        results,
        ids=results.ids[kept],
        sizes=results.sizes[kept],
        mix=rows(results.mix),
        carry=rows(results.carry),
        mean=rows(results.mean),
        log=Log(rows(results.log.means), rows(results.log.sums)),
        losses=None if results.losses is None else results.losses[kept],
        reports=None if results.reports is None else results.reports[kept],
    )


def lengths(results: Results) -> Tensor:
    """The length of each upload, of all that is summed or averaged as one vector, in float64; buffers do not count."""
    parts = [rows.reshape(len(results.ids), -1) for part in (results.mix, results.mean) for rows in part.values()]
    squares = [torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square() for rows in parts]
    return torch.stack(squares).sum(0).sqrt()


def bounded(results: Results, bound: float | str) -> Results:
    """Uploads u as u min(1, b / ||u||), with b the bound or the median of all ||u||."""
    if not len(results.ids):
        return results
    found = lengths(results)
    limit = found.quantile(0.5) if isinstance(bound, str) else torch.as_tensor(bound, dtype=torch.float64)
    factors = torch.where(found > limit, limit / found, 1.0)
    if bool((factors == 1).all()):
        return results

    def scaled(part: Tensors) -> Tensors:
        return {n: t * factors.to(t.dtype).reshape(-1, *[1] * (t.ndim - 1)) for n, t in part.items()}

    return replace(results, mix=scaled(results.mix), mean=scaled(results.mean))


def finite(state: ServerState) -> None:
    """End a run whose global state is no longer finite."""
    for name, tensor in state.broadcast.items():
        if not tensor.is_floating_point() or not tensor.numel() or math.isfinite(_square(tensor)):
            continue
        if not bool(torch.stack(torch.aminmax(tensor)).isfinite().all()):
            raise Diverged(f"round {state.round}: diverged, the global {name} is not finite; {ADVICE}")


def outgrown(round: int, losses: Tensor, lines: Sequence[dict[str, Any]], factor: float) -> str:
    """Why a run has diverged by the clients' losses after a round, in words; "" if it has not.

    That is so where the median client's loss is above `factor` times the first mean that was written down (or 1). One
    client's private model may be lost without that.
    """
    if not factor or not len(losses):
        return ""
    means = (((line.get("metrics") or {}).get("loss") or {}).get("mean") for line in lines)
    begun = max(1.0, next((mean for mean in means if mean is not None), 1.0))
    middle = float(losses.double().nan_to_num(math.inf).sort().values[(len(losses) - 1) // 2])
    if middle <= factor * begun:
        return ""
    told = f"the median client's loss is {middle:.3g}, more than {factor:g} times the first ({begun:.3g})"
    return f"round {round}: diverged, {told}; {ADVICE}"


def _few(round: int, left: int, asked: int, least: int, causes: dict[int, str]) -> str:
    told = f"only {left} of {asked} updates can be used, {least} are needed"
    return f"round {round}: {told} ({first(causes)}); {ADVICE}"
