"""AAggFF with a step set by what was seen, and responses that are forgotten: what counts is who is behind now."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online import ledger
from fedchord.mixing.online.responses import CENTRES, family, responses, usable
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class AAggFFAdaptive(MixingRule):
    """Entropic FTRL on decaying sums of responses, with AdaHedge's step (de Rooij et al., 2014) under a ceiling.

    With u_i = CDF(F_i / mean F) over the cohort S, d_i = u_i - mean of u over S (0 outside S) and c = keep^(|S| / K),

        S_{t, i} = c S_{t-1, i} + d_{t, i},   p_{t+1, i} ~ exp(eta_{t+1} S_{t, i}),
        eta_{t+1} = log K / max(log K / step, D_t),   D_t = c D_{t-1} + gap_t.

    Between two visits of a client, K / |S| rounds on average, its old response shrinks to the part `keep`: 0 forgets it
    at once, 1 never. gap_t bounds how much worse the decision p_t did than its mixed gain: with w = max d - min d,

        gap_t = min(w, (c / eta_t) sum over S of q_i phi(eta_t d_i / c)),   phi(x) = e^x - 1 - x,
        q_i = min(1, exp(eta_t S_{t-1, i}) / K) >= p_{t, i},

    since the sums of all clients add up to 0, and so the normaliser of p is at least K. Nothing here looks beyond the
    cohort. The regret that forgets at the same pace is bounded (`bound` in the log): for every client i

        sum_t c^(T - t) (d_{t, i} - <p_t, d_t>)  <=  c max(log K / step, D_{T-1}) + D_T,

    because these are AdaHedge's decisions on the gains c^(-t) d_t, whose step never grows. With keep = 1 it is the
    regret against the best client, at most log K / step + 2 D_T. The weights are the new p over the cohort, made to sum
    to one. The step's ceiling matters more than the bound, which a higher one would improve: see docs/fairness.md.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})

    cdf: str = "normal"
    step: float = 1.0
    keep: float = 0.01
    centre: str = "mean"

    def __post_init__(self) -> None:
        family("AAggFFAdaptive", self.cdf)
        check.positive("AAggFFAdaptive", "step", self.step)
        check.between("AAggFFAdaptive", "keep", self.keep, 0, 1)
        check.one_of("AAggFFAdaptive", "centre", self.centre, CENTRES)

    def init(self, num_clients: int) -> Tensors:
        sums = {f"sum.{name}": table for name, table in ledger.empty().items()}
        times = {f"time.{name}": table for name, table in ledger.empty().items()}
        return sums | times | {"gaps": torch.zeros(1, dtype=torch.float64)}

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        losses, log = usable("AAggFFAdaptive", cohort, signed=False)
        size, clients, t = len(losses), info.num_clients, info.round + 1
        response = responses(losses, self.cdf, 0.0, 1.0, self.centre)
        change = [value - sum(response) / size for value in response]
        fade, spread = self.keep ** (info.cohort / clients), math.log(clients)
        before, after = _decayed(state, cohort.ids.tolist(), change, t, fade)
        total = float(state["gaps"])
        gap = self._gap(before, change, self._rate(total, spread), fade, clients)
        bound = fade * max(spread / self.step, total) + fade * total + gap
        total = fade * total + gap
        rate = self._rate(total, spread)
        sums = [fade * old + new for old, new in zip(before, change, strict=True)]
        shares = torch.softmax(rate * torch.tensor(sums, dtype=torch.float64), 0)
        log |= {"bound": bound, "step": rate}
        return Mix(shares, shares, log), after | {"gaps": torch.tensor([total], dtype=torch.float64)}

    def _rate(self, total: float, spread: float) -> float:
        """eta = log K / max(log K / step, D); one client has log K = 0 and nothing to decide."""
        return min(self.step, spread / total) if total > 0 else self.step

    def _gap(self, sums: list[float], change: list[float], rate: float, fade: float, clients: int) -> float:
        width = max(0.0, *change) - min(0.0, *change)
        if fade == 0 or rate == 0:
            return width
        scaled = rate / fade
        if scaled * width > 50:  # the second part is then far above the first
            return width
        powers = [math.expm1(scaled * value) - scaled * value for value in change]
        most = [min(1.0, math.exp(min(rate * value, 700.0)) / clients) for value in sums]
        return min(width, sum(q * power for q, power in zip(most, powers, strict=True)) / scaled)


def _decayed(state: Tensors, ids: list[int], change: list[float], t: int, fade: float) -> tuple[list[float], Tensors]:
    """The sums of these clients before round t, as they have faded until round t - 1, and the ledgers after it.

    The sum of a client is written down when it changes, with the round; what it is later follows.
    """
    sums, times = ({name: state[f"{kind}.{name}"] for name in ledger.empty()} for kind in ("sum", "time"))
    written, since = ledger.sums(sums, ids), ledger.sums(times, ids)
    before = [value * fade ** (t - 1 - last) if last else 0.0 for value, last in zip(written, since, strict=True)]
    news = [fade * old + new - value for old, new, value in zip(before, change, written, strict=True)]
    _, sums = ledger.add(sums, ids, news)
    _, times = ledger.add(times, ids, [t - last for last in since])
    after = {f"sum.{name}": table for name, table in sums.items()}
    return before, after | {f"time.{name}": table for name, table in times.items()}
