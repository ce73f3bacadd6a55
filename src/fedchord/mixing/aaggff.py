"""AAggFF: mixing weights as the decisions of an online player, for few clients (Silo) and for many (Device)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fedchord import check
from fedchord.mixing import regret
from fedchord.mixing.responses import CENTRES, family, reported, respond
from fedchord.mixing.simplex import minimise, project, residual
from fedchord.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.tensors import Tensors

IMPUTATIONS = ("in-sample", "leave-one-out")


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
    others) and `cap` (no weight above cap / K). `fitted` estimates the CDF's parameters anew in each round. `track`
    logs regret and bound (default: up to 10,000 clients).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})
    full: ClassVar[bool] = True
    instead: ClassVar[str] = "aaggff-d"

    cdf: str = "normal"
    safe: bool = False
    low: float = 0.0
    high: float | None = None
    fitted: bool = False
    centre: str = "mean"
    cap: float | None = None
    track: bool | None = None

    def __post_init__(self) -> None:
        _check("AAggFFSilo", self.cdf, self.low, self.high, self.centre, self.cap)

    def constants(self, num_clients: int) -> tuple[float, float, float]:
        """L, alpha, beta."""
        top = 1 / num_clients if self.high is None else self.high
        lipschitz = top / (1 + self.low)
        beta = 1 / (4 * lipschitz)
        return lipschitz, 4 * num_clients * lipschitz, min(0.5, beta) if self.safe else beta

    def init(self, num_clients: int) -> Tensors:
        _, alpha, _ = self.constants(num_clients)
        even = torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)
        state = {"matrix": alpha * torch.eye(num_clients, dtype=torch.float64), "linear": 0 * even, "p": even}
        if regret.tracks(self.track, num_clients):
            state |= {"responses": even.new_zeros(0, num_clients), "paid": even.new_zeros(1), "best": even.clone()}
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
        response[ids] = respond(losses, self.cdf, self.low, top, self.centre, self.fitted)
        gradient = regret.decision_gradient(p, response)
        matrix = state["matrix"] + beta * torch.outer(gradient, gradient)
        linear = state["linear"] + gradient * (1 - beta * (gradient @ p))
        new = minimise(matrix, linear, start=p)
        after = {"matrix": matrix, "linear": linear, "p": new}
        loss = regret.decision_loss(p, response)
        log |= {"objective": float(p[ids] @ losses), "decision": float(loss), "kkt": residual(matrix, linear, new)}
        if "paid" in state:
            seen = torch.cat([state["responses"], response[None]])
            best = regret.best_fixed(seen, state["best"])
            after |= {"responses": seen, "paid": state["paid"] + loss, "best": best}
            log["regret"] = float(after["paid"] + torch.log1p(seen @ best).sum())
            log["bound"] = regret.newton_bound(len(p), len(seen), lipschitz, alpha, beta)
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
    clients is added up: memory and work grow with the clients seen so far, never with K. The weights are the new
    p over the cohort, made to sum to one.

    `imputation`: in-sample (thesis), where rbar includes client i itself and the estimate is shrunk towards the
    mean by (K - m) / (m (K - 1)), m = |S| (departs: E9); or leave-one-out, where the sampled client is imputed by the
    mean of the others and the estimate of a fixed response vector is unbiased: d_i times m (K - 1) / (K (m - 1)), and
    (K - 1) / m in place of 1 / C in Lbreve. A cohort of one tells nothing about differences: the weights stay uniform.

    `centre`, `cap`, `fitted` and `track` as for AAggFFSilo; regret is that of the linearised losses.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})

    cdf: str = "normal"
    imputation: str = "in-sample"
    low: float = 0.0
    high: float | None = None
    fitted: bool = False
    centre: str = "mean"
    cap: float | None = None
    track: bool | None = None

    def __post_init__(self) -> None:
        _check("AAggFFDevice", self.cdf, self.low, self.high, self.centre, self.cap)
        check.one_of("AAggFFDevice", "imputation", self.imputation, IMPUTATIONS)

    def lipschitz(self, num_clients: int, cohort: int) -> float:
        """Lbreve, which no entry of the linearised gradient exceeds."""
        top = cohort / num_clients if self.high is None else self.high
        scale = (num_clients - (self.imputation == "leave-one-out")) / cohort
        return (top + 2 * (top - self.low) * scale) / (1 + self.low)

    def innovation(self, response: Tensor, num_clients: int) -> Tensor:
        """d_i = (rbreve_i - rbar) / (1 + rbar) of the sampled clients; it is 0 for all others."""
        size, mean = len(response), response.mean()
        if size == 1:
            return torch.zeros_like(response)
        scale = (num_clients - 1) / (size - 1) if self.imputation == "leave-one-out" else num_clients / size
        return scale * (response - mean) / (1 + mean)

    def init(self, num_clients: int) -> Tensors:
        state = {"ids": torch.zeros(0, dtype=torch.int64), "sums": torch.zeros(0, dtype=torch.float64)}
        state["lipschitz"] = torch.zeros(1, dtype=torch.float64)
        if regret.tracks(self.track, num_clients):
            state["paid"] = torch.zeros(1, dtype=torch.float64)
        return state

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        losses, log = reported("AAggFFDevice", cohort, signed=False)
        size, clients, t = len(losses), info.num_clients, info.round + 1
        top = size / clients if self.high is None else self.high
        check.require(top > self.low, "AAggFFDevice", f"low must be below |S| / K = {top:g}, got {self.low:g}")
        order = cohort.ids.cpu().argsort()
        ids = cohort.ids.cpu()[order]
        response = respond(losses, self.cdf, self.low, top, self.centre, self.fitted)[order]
        change = self.innovation(response, clients)
        seen, before, at = _insert(state["ids"], state["sums"], ids)
        sums = before.index_add(0, at, change)
        constant = torch.maximum(state["lipschitz"], torch.full_like(state["lipschitz"], self.lipschitz(clients, size)))
        after = {"ids": seen, "sums": sums, "lipschitz": constant}
        played = _entropic(before[at], clients, t, float(state["lipschitz"]))
        log["objective"] = float(played @ losses[order])
        if "paid" in state:
            whole = _mass(before, at, clients, t, float(state["lipschitz"]))
            after["paid"] = state["paid"] + whole @ change
            best = torch.cat([sums, sums.new_zeros(int(len(sums) < clients))]).max()
            log["regret"] = float(best - after["paid"])
            log["bound"] = regret.entropic_bound(clients, t, float(constant))
        shares = torch.empty_like(change)
        shares[order] = _entropic(sums[at], clients, t + 1, float(constant))
        shares = _capped(shares, self.cap)
        return Mix(shares, shares, log), after


def _check(owner: str, cdf: str, low: float, high: float | None, centre: str, cap: float | None) -> None:
    family(owner, cdf)
    check.at_least(owner, "low", low, 0)
    if high is not None:
        check.positive(owner, "high", high)
        check.require(high > low, owner, f"high must be above low, got {high!r} and {low!r}")
    check.one_of(owner, "centre", centre, CENTRES)
    if cap is not None:
        check.at_least(owner, "cap", cap, 1)


def _capped(shares: Tensor, cap: float | None) -> Tensor:
    """The nearest weights of which none is above cap / |S|."""
    limit = 1.0 if cap is None else min(1.0, cap / len(shares))
    return shares if float(shares.max()) <= limit else project(shares, 0.0, limit)


def _exponents(sums: Tensor, num_clients: int, t: int, lipschitz: float) -> Tensor:
    """sum d / zeta_t with zeta_t = Lbreve sqrt(t) / sqrt(log K)."""
    return sums * (math.sqrt(math.log(num_clients) / t) / lipschitz if lipschitz else 0.0)


def _entropic(sums: Tensor, num_clients: int, t: int, lipschitz: float) -> Tensor:
    """p_t over the cohort, made to sum to one, from the sums of its clients."""
    return torch.softmax(_exponents(sums, num_clients, t, lipschitz), 0)


def _mass(sums: Tensor, at: Tensor, num_clients: int, t: int, lipschitz: float) -> Tensor:
    """p_t of the clients at these places among all K: clients never seen have the sum 0."""
    exponents = _exponents(sums, num_clients, t, lipschitz)
    peak = exponents.max().clamp_min(0)
    powers = (exponents - peak).exp()
    return powers[at] / (powers.sum() + (num_clients - len(sums)) * (-peak).exp())


def _insert(known: Tensor, sums: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sorted client numbers and sums with clients seen for the first time put in (sum 0), and where `ids` are."""
    at = torch.searchsorted(known, ids)
    fresh = torch.ones_like(ids, dtype=torch.bool)
    inside = at < len(known)
    fresh[inside] = known[at[inside]] != ids[inside]
    places = at + fresh.cumsum(0) - fresh.long()
    if not fresh.any():
        return known, sums, places
    old = torch.ones(len(known) + int(fresh.sum()), dtype=torch.bool)
    old[places[fresh]] = False
    merged, values = known.new_empty(len(old)), sums.new_zeros(len(old))
    merged[old], values[old], merged[places[fresh]] = known, sums, ids[fresh]
    return merged, values, places
