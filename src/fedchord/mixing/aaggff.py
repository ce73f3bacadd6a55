"""AAggFF: mixing weights as the decisions of an online player, for few clients (Silo) and for many (Device)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import mul, sub
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online import ledger, regret
from fedchord.mixing.online.responses import CENTRES, ESTIMATES, family, reported, respond, responses, usable
from fedchord.mixing.online.simplex import Spread, minimise, project, residual
from fedchord.tensors import Tensors

IMPUTATIONS = ("in-sample", "leave-one-out")
FEW = 50
"""Below so many clients the matrix of the Newton step is kept whole from the start."""


@final
@dataclass(frozen=True)
class AAggFFSilo(MixingRule):
    """Online Newton step on the clients' responses; every client takes part in every round (thesis, section 3.3).

    r_i = C1 + (C2 - C1) CDF(F_i / mean F), with C1 = `low` and C2 = `high` (1 / K unless given). The decision loss
    -log(1 + <p, r>) has the gradient g = -r / (1 + <p, r>), and with L = C2 / (1 + C1), alpha = 4 K L, beta = 1 / (4 L)

        p_{t+1} = argmin over the simplex of 1/2 p'A p + b'p,
        A = alpha I + beta sum_s g_s g_s',   b = sum_s g_s (1 - beta <g_s, p_s>),   s = 1..t,   p_1 = 1 / K.

    The new decision weighs this round's updates. For C2 = 1 / K and K >= 3 the thesis' beta = K / 4 lies outside its
    own proof, and the printed bound can fail: K = 10, T = 800, r = e_1 / K in the first 320 rounds and e_2 / K in the
    others gives a regret of 6.08 against a bound of 5.58. `safe` takes beta = min(1/2, 1 / (4 L)), for which the
    bound is proven (departs: E7).

    Against clients that lie about their loss: `centre` = "median" (one client cannot move the responses of the
    others) and `cap` (no weight above cap / K). `fitted` estimates the CDF's parameters anew in each round, by
    quantiles or by maximum spacing (`estimate`). `track` logs the loss of each decision, that of the best fixed one in
    hindsight over all rounds so far, regret and bound (default: up to 10,000 clients).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})
    full: ClassVar[bool] = True
    instead: ClassVar[str] = "aaggff-d"

    cdf: str = "normal"
    safe: bool = False
    low: float = 0.0
    high: float | None = None
    fitted: bool = False
    estimate: str = "quantile"
    centre: str = "mean"
    cap: float | None = None
    track: bool | None = None

    def __post_init__(self) -> None:
        _check("AAggFFSilo", self.cdf, self.low, self.high, self.centre, self.cap, self.estimate)

    def constants(self, num_clients: int) -> tuple[float, float, float]:
        """L, alpha, beta."""
        top = 1 / num_clients if self.high is None else self.high
        lipschitz = top / (1 + self.low)
        beta = 1 / (4 * lipschitz)
        return lipschitz, 4 * num_clients * lipschitz, min(0.5, beta) if self.safe else beta

    def init(self, num_clients: int) -> Tensors:
        _, alpha, _ = self.constants(num_clients)
        even = torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)
        state = {"matrix": even.new_zeros(0, 0), "rows": even.new_zeros(0, num_clients), "linear": 0 * even, "p": even}
        if num_clients < FEW:
            state["matrix"] = alpha * torch.eye(num_clients, dtype=torch.float64)
        if regret.tracks(self.track, num_clients):
            state |= regret.opened(num_clients)
        return state

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        p = state["p"]
        losses, log = reported("AAggFFSilo", cohort, signed=False)
        check.require(
            len(losses) == len(p),
            "AAggFFSilo",
            f"needs every client in every round, got {len(losses)} of {len(p)}; use aaggff-d",
        )
        lipschitz, alpha, beta = self.constants(len(p))
        top = 1 / len(p) if self.high is None else self.high
        check.require(top > self.low, "AAggFFSilo", f"low must be below 1 / K = {top:g}, got {self.low:g}")
        response, ids = torch.empty_like(p), cohort.ids.cpu()
        estimate = self.estimate if self.fitted else None
        response[ids] = respond(losses, self.cdf, self.low, top, self.centre, estimate)
        gradient = regret.decision_gradient(p, response)
        matrix, rows = _grown(state["matrix"], state["rows"], gradient, alpha, beta)
        quadratic = matrix if len(matrix) else Spread(alpha, rows)
        linear = state["linear"] + gradient * (1 - beta * (gradient @ p))
        new = minimise(quadratic, linear, start=p)
        after = {"matrix": matrix, "rows": rows, "linear": linear, "p": new}
        log["objective"] = float(p[ids] @ losses)
        log["decision"] = float(regret.decision_loss(p, response))
        log["kkt"] = residual(quadratic, linear, new)
        if "paid" in state:
            log["best"], log["regret"], seen = regret.hindsight(state, p, response)
            log["bound"] = regret.newton_bound(len(p), len(seen["responses"]), lipschitz, alpha, beta)
            after |= seen
        shares = _capped(new[ids], self.cap)
        return Mix(shares, shares, log), after


@final
@dataclass(frozen=True)
class AAggFFDevice(MixingRule):
    """Entropic FTRL on doubly robust responses of a sample of the clients (thesis, section 3.4).

    With C = |S| / K, C1 = `low`, C2 = `high` (C unless given), r_i as for AAggFFSilo and rbar its mean over S, the
    response of every client is estimated by rbreve_i = (1 - I_i / C) rbar + (I_i / C) r_i, the gradient of
    -log(1 + <p, r>) is linearised at rbar 1, and

        p_{t+1, i} ~ exp(-sum_s gbreve_{s, i} / zeta),   zeta = Lbreve sqrt(t + 1) / sqrt(log K),
        Lbreve = (C2 + 2 (C2 - C1) / C) / (1 + C1).

    What all clients share cancels in the softmax, so that only d_i = (rbreve_i - rbar) / (1 + rbar) of the sampled
    clients is added up (`ledger`): memory grows with the clients seen so far, the work of a round with the cohort, and
    nothing with K. The weights are the new p over the cohort, made to sum to one.

    `imputation`: in-sample (thesis), where rbar includes client i itself and the estimate is shrunk towards the
    mean by (K - m) / (m (K - 1)), m = |S| (departs: E9); or leave-one-out, where the sampled client is imputed by the
    mean of the others and the estimate of a fixed response vector is unbiased: d_i times m (K - 1) / (K (m - 1)), and
    (K - 1) / m in place of 1 / C in Lbreve. A cohort of one tells nothing about differences: the weights stay uniform.

    `centre`, `cap`, `fitted`, `estimate` and `track` as for AAggFFSilo; decision losses, the best one in hindsight and
    regret are those of the linearised losses, of which the best fixed decision is one client. Where all clients took
    part in every round so far and there are at most 1,000, `true_regret` is that of -log(1 + <p, r>). Tracking looks at
    all clients seen.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})

    cdf: str = "normal"
    imputation: str = "in-sample"
    low: float = 0.0
    high: float | None = None
    fitted: bool = False
    estimate: str = "quantile"
    centre: str = "mean"
    cap: float | None = None
    track: bool | None = None

    def __post_init__(self) -> None:
        _check("AAggFFDevice", self.cdf, self.low, self.high, self.centre, self.cap, self.estimate)
        check.one_of("AAggFFDevice", "imputation", self.imputation, IMPUTATIONS)

    def lipschitz(self, num_clients: int, cohort: int) -> float:
        """Lbreve, which no entry of the linearised gradient exceeds."""
        top = cohort / num_clients if self.high is None else self.high
        scale = (num_clients - (self.imputation == "leave-one-out")) / cohort
        return (top + 2 * (top - self.low) * scale) / (1 + self.low)

    def innovation(self, response: list[float], num_clients: int) -> list[float]:
        """d_i = (rbreve_i - rbar) / (1 + rbar) of the sampled clients; it is 0 for all others."""
        size, mean = len(response), sum(response) / len(response)
        if size == 1:
            return [0.0]
        scale = (num_clients - 1) / (size - 1) if self.imputation == "leave-one-out" else num_clients / size
        return [scale * (value - mean) / (1 + mean) for value in response]

    def init(self, num_clients: int) -> Tensors:
        state = ledger.empty() | {"lipschitz": torch.zeros(1, dtype=torch.float64)}
        if regret.tracks(self.track, num_clients):
            state["linear"] = torch.zeros(2, dtype=torch.float64)
            state |= regret.opened(num_clients) if num_clients <= regret.EXACT else {}
        return state

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        """On plain numbers: for the few clients of a cohort they are quicker than tensors."""
        losses, log = usable("AAggFFDevice", cohort, signed=False)
        size, clients, t = len(losses), info.num_clients, info.round + 1
        top = size / clients if self.high is None else self.high
        if top <= self.low:
            raise check.fail("AAggFFDevice", f"low must be below |S| / K = {top:g}, got {self.low:g}")
        ids: list[int] = cohort.ids.tolist()
        order = None if ids == sorted(ids) else sorted(range(size), key=ids.__getitem__)
        if order:
            ids, losses = [ids[at] for at in order], [losses[at] for at in order]
        estimate = self.estimate if self.fitted else None
        response = responses(losses, self.cdf, self.low, top, self.centre, estimate)
        change = self.innovation(response, clients)
        before, constant = float(state["lipschitz"]), self.lipschitz(clients, size)
        sums, after = ledger.add(state, ids, change)
        after["lipschitz"] = state["lipschitz"] if constant <= before else torch.tensor([constant], dtype=torch.float64)
        played = _entropic(list(map(sub, sums, change)), _rate(clients, t, before))
        log["objective"] = sum(map(mul, played, losses))
        if "linear" in state:
            tracked, kept = self._track(state, after, ids, response, change, clients, t)
            log, after = log | tracked, after | kept
        weights = np.array(_entropic(sums, _rate(clients, t + 1, max(before, constant))))
        if order:
            weights[order] = weights.copy()
        shares = _capped(torch.from_numpy(weights), self.cap)
        return Mix(shares, shares, log), after

    def _track(
        self,
        state: Tensors,
        after: Tensors,
        ids: list[int],
        response: list[float],
        change: list[float],
        clients: int,
        t: int,
    ) -> tuple[dict[str, float], Tensors]:
        """Regret of the linearised losses gbreve_i = shared - d_i, and what to remember.

        shared = (rbar / (1 + rbar)) (<p, d> - 1), so the decision cost shared - <p, d>; the best fixed decision is the
        client with the largest sum of d.
        """
        numbers, sums = ledger.written(state)
        p = _mass(numbers, sums, clients, _rate(clients, t, float(state["lipschitz"])))
        mean = sum(response) / len(response)
        gained = sum(p(client) * step for client, step in zip(ids, change, strict=True))
        shared = mean / (1 + mean) * (gained - 1)
        kept = {"linear": state["linear"] + torch.tensor([shared - gained, shared], dtype=torch.float64)}
        paid, common = kept["linear"].tolist()
        numbers, sums = ledger.written(after)
        best = common - max(sums.max(), 0.0 if len(sums) < clients else -math.inf)
        log = {"decision": shared - gained, "best": best, "regret": paid - best}
        log["bound"] = regret.entropic_bound(clients, t, float(after["lipschitz"]))
        if "responses" in state:
            seen = {name: state[name] for name in ("responses", "paid", "best")}
            if len(ids) == clients and len(seen["responses"]) == t - 1:
                whole = torch.tensor([p(client) for client in range(clients)], dtype=torch.float64)
                _, log["true_regret"], seen = regret.hindsight(state, whole, whole.new_tensor(response))
            kept |= seen
        return log, kept


def _grown(matrix: Tensor, rows: Tensor, gradient: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """A with one gradient more: by its rows sqrt(beta) g_s while they are few and K is large, as a matrix later on."""
    if len(matrix):
        return matrix.addr(gradient, gradient, alpha=beta), rows
    rows = torch.cat([rows, math.sqrt(beta) * gradient[None]])
    return (matrix, rows) if 2 * len(rows) <= len(gradient) else (Spread(alpha, rows).whole(), rows[:0])


def _check(owner: str, cdf: str, low: float, high: float | None, centre: str, cap: float | None, estimate: str) -> None:
    family(owner, cdf)
    check.at_least(owner, "low", low, 0)
    if high is not None:
        check.positive(owner, "high", high)
        check.require(high > low, owner, f"high must be above low, got {high!r} and {low!r}")
    check.one_of(owner, "centre", centre, CENTRES)
    check.one_of(owner, "estimate", estimate, ESTIMATES)
    if cap is not None:
        check.at_least(owner, "cap", cap, 1)


def _capped(shares: Tensor, cap: float | None) -> Tensor:
    """The nearest weights of which none is above cap / |S|."""
    if cap is None:
        return shares
    limit = min(1.0, cap / len(shares))
    return shares if float(shares.max()) <= limit else project(shares, 0.0, limit)


def _rate(num_clients: int, t: int, lipschitz: float) -> float:
    """1 / zeta_t with zeta_t = Lbreve sqrt(t) / sqrt(log K); 0 before the first round."""
    return math.sqrt(math.log(num_clients) / t) / lipschitz if lipschitz else 0.0


def _entropic(sums: list[float], rate: float) -> list[float]:
    """p over the cohort, made to sum to one, from the sums of its clients: the softmax of rate x sum."""
    peak = max(sums)
    powers = [math.exp(rate * (value - peak)) for value in sums]
    whole = sum(powers)
    return [power / whole for power in powers]


def _mass(numbers: ledger.Numbers, sums: ledger.Numbers, num_clients: int, rate: float) -> Callable[[int], float]:
    """p of a client among all K: clients never seen have the sum 0."""
    peak = max(sums.max(initial=-math.inf), 0.0 if len(sums) < num_clients else -math.inf)
    powers = np.exp(rate * (sums - peak))
    rest = math.exp(-rate * peak) if len(sums) < num_clients else 0.0
    whole = float(powers.sum()) + (num_clients - len(sums)) * rest

    def of(client: int) -> float:
        at = int(numbers.searchsorted(client))
        return (float(powers[at]) if at < len(numbers) and numbers[at] == client else rest) / whole

    return of
