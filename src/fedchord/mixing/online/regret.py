"""Guarantees as numbers: decision losses, the best fixed decision in hindsight, regret, and the bounds on it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedchord.mixing.online.simplex import minimise
from fedchord.tensors import Tensors

TRACKED = 10_000
"""Regret is tracked by default up to this many clients."""
EXACT = 1_000
"""Where only the linearised regret is asked for, the true one is added (at full participation) up to this many."""
STEPS = 100


def tracks(track: bool | None, num_clients: int) -> bool:
    """Whether a rule tracks its regret: as asked, or for at most TRACKED clients."""
    return num_clients <= TRACKED if track is None else track


def decision_loss(p: Tensor, response: Tensor) -> Tensor:
    """l(p) = -log(1 + <p, r>), convex and 1-exp-concave (departs: E6, not strictly convex)."""
    return -torch.log1p(p @ response)


def decision_gradient(p: Tensor, response: Tensor) -> Tensor:
    """-r / (1 + <p, r>); no entry is above C2 / (1 + C1) (departs: E5, so l is Lipschitz in the 1-norm)."""
    return -response / (1 + p @ response)


def best_fixed(responses: Tensor, start: Tensor | None = None, tolerance: float = 1e-10) -> Tensor:
    """argmin over the simplex of sum_t -log(1 + <p, r_t>), for rows r_t.

    Newton steps, each a quadratic problem on the simplex, halved until they descend; clients without weight whose
    weight need not grow stay out of them. With x_t = 1 + r_t (so that
    1 + <p, r_t> = <p, x_t>), the value at p exceeds the least one by at most max_i sum_t x_ti / <p, x_t> - T; the
    search ends when this is below `tolerance` T.
    """
    rounds, size = responses.shape
    x = 1 + responses.double()
    p = torch.full((size,), 1 / size, dtype=torch.float64) if start is None else start.double()
    if not rounds:
        return p
    for _ in range(STEPS):
        worth = x @ p
        slope = -(1 / worth) @ x
        if -slope.min() - rounds <= tolerance * rounds:
            break
        held = ((p > 0) | (slope < -rounds)).nonzero().flatten()
        scaled = x[:, held] / worth[:, None]
        curve = scaled.t() @ scaled
        curve.diagonal().add_(1e-9 * float(curve.diagonal().mean()))
        move = torch.zeros_like(p)
        move[held] = minimise(curve, slope[held] - curve @ p[held], start=p[held]) - p[held]
        value, length = -worth.log().sum(), 1.0
        while -(x @ (p + length * move)).log().sum() > value and length > 1e-12:
            length /= 2
        if length <= 1e-12:
            break
        p = p + length * move
    return p


def opened(num_clients: int) -> Tensors:
    """What `hindsight` remembers before the first round."""
    even = torch.full((num_clients,), 1 / num_clients, dtype=torch.float64)
    return {"responses": even.new_zeros(0, num_clients), "paid": even.new_zeros(1), "best": even}


def hindsight(state: Tensors, p: Tensor, response: Tensor) -> tuple[float, float, Tensors]:
    """Take in a decision and the response to it: the loss of the best fixed decision so far, the regret, the memory."""
    seen = torch.cat([state["responses"], response[None]])
    best = best_fixed(seen, state["best"])
    after = {"responses": seen, "paid": state["paid"] + decision_loss(p, response), "best": best}
    least = -float(torch.log1p(seen @ best).sum())
    return least, float(after["paid"]) - least, after


def newton_bound(num_clients: int, rounds: int, lipschitz: float, alpha: float, beta: float) -> float:
    """alpha / 2 + K / (2 beta) log(1 + beta T L^2 / alpha), the bound of the online Newton step.

    With alpha = 4 K L and beta = 1 / (4 L) this is the thesis' theorem 1, 2 L K (1 + log(1 + T / (16 K))). It is
    proven for beta <= 1/2 only (departs: E7).
    """
    return alpha / 2 + num_clients / (2 * beta) * math.log1p(beta * rounds * lipschitz**2 / alpha)


def entropic_bound(num_clients: int, rounds: int, lipschitz: float) -> float:
    """2 L sqrt(T log K), the bound of entropic FTRL with zeta_t = L sqrt(t / log K) (theorem 2; departs: E8, E15)."""
    return 2 * lipschitz * math.sqrt(rounds * math.log(num_clients))
