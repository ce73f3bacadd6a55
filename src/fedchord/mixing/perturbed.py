"""AAggFF on noisy reports: the losses that clients report are differentially private, and so are the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fedchord import check, rng
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online import ledger
from fedchord.mixing.online.responses import HUGE, cdf, distinct, family
from fedchord.privacy.gaussian import spent
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class AAggFFPrivate(MixingRule):
    """Entropic FTRL on responses to which each client adds noise before it reports them.

    A client of the cohort S reports y_i = CDF(F_i / scale) + noise z_i with z_i ~ N(0, 1). `scale` is fixed before the
    run, so that the report depends on nothing but the client's own data. From the reports alone,

        p_{t+1, i} ~ exp(eta_{t+1} sum_s d_{s, i}),   d_i = y_i - mean of y over S (0 outside S),
        eta_t = 2 step sqrt(log K / ((1 + 4 noise^2) t)),

    the leader perturbed by a random walk, with entropy in place of the plain maximum. The weights are the new p over
    the cohort, made to sum to one.

    Privacy: changing all data of a client moves its report by at most 1, so that one report is the Gaussian mechanism
    with sensitivity 1, and everything made of it (weights, logs) has the same guarantee; `epsilon` in the log is that
    of one report, `epsilon_total` that of a client that reported in every round so far (`spent`, at `delta`). It
    covers the losses and not the updates, which need their own protection. In a simulation the noise comes from the
    run's seed; over a network every client draws it in secret and sends its report alone.

    Regret: with c the d without noise, the expected regret against any client, E sum_t c_{t, i} - <p_t, c_t>, is at
    most (step + 1 / step) / 2 sqrt((1 + 4 noise^2) T log K) (`bound` in the log), since
    E log sum_i p_i exp(eta (d_i - <p, c>)) is at most eta^2 / 8 + eta^2 noise^2 / 2. A `step` of 1 has the least bound;
    a small one keeps noisy weights near uniform.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"loss"})
    secret: ClassVar[bool] = True

    noise: float = 1.0
    scale: float = 1.0
    step: float = 1.0
    cdf: str = "normal"
    delta: float = 1e-5

    def __post_init__(self) -> None:
        check.positive("AAggFFPrivate", "noise", self.noise)
        check.positive("AAggFFPrivate", "scale", self.scale)
        check.positive("AAggFFPrivate", "step", self.step)
        family("AAggFFPrivate", self.cdf)
        check.number("AAggFFPrivate", "delta", self.delta)
        check.require(0 < self.delta < 1, "AAggFFPrivate", f"delta must be above 0 and below 1, got {self.delta!r}")

    def init(self, num_clients: int) -> Tensors:
        return ledger.empty()

    def report(self, losses: Tensor, noise: Tensor) -> Tensor:
        """What clients tell, given standard normal noise; a loss that is no number is told as the scale."""
        known = losses.double().nan_to_num(self.scale, HUGE).clamp_max(HUGE)
        return cdf(self.cdf, known / self.scale) + self.noise * noise

    def rate(self, num_clients: int, t: int) -> float:
        """eta_t."""
        return 2 * self.step * math.sqrt(math.log(num_clients) / ((1 + 4 * self.noise**2) * t))

    def _simulated(self, cohort: Cohort, info: RoundInfo) -> Tensor:
        """The reports of clients whose losses are known, with noise from the round's key."""
        assert cohort.losses is not None
        ids, losses = cohort.ids.cpu(), cohort.losses.cpu()
        least = int(losses.nan_to_num(0.0).argmin())
        good = not losses[least] < 0
        check.require(
            good, "AAggFFPrivate", f"losses must be at least 0, got {losses[least]:g} from client {ids[least]}"
        )
        order, reports = ids.argsort(), torch.empty(len(ids), dtype=torch.float64)
        reports[order] = self.report(losses[order], rng.normal(info.key, (len(ids),)).double())
        return reports

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        distinct("AAggFFPrivate", cohort)
        ids, clients, t = cohort.ids.cpu(), info.num_clients, info.round + 1
        reports = self._simulated(cohort, info) if cohort.reports is None else cohort.reports.cpu().double()
        sums, after = ledger.add(state, ids.tolist(), (reports - reports.mean()).tolist())
        shares = torch.softmax(self.rate(clients, t + 1) * torch.tensor(sums, dtype=torch.float64), 0)
        log = {
            "epsilon": spent(self.noise, 1, self.delta),
            "epsilon_total": spent(self.noise, t, self.delta),
            "bound": (self.step + 1 / self.step) / 2 * math.sqrt((1 + 4 * self.noise**2) * t * math.log(clients)),
        }
        return Mix(shares, shares, log), after
