"""FedMGDA+: weights whose mixed update is the shortest, so that it harms no client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fedchord import check
from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.online.responses import distinct
from fedchord.mixing.online.simplex import minimise
from fedchord.tensors import Tensors

RESCALES = ("mean", "unit")
RIDGE = 1e-9
"""How strongly ties are broken towards the static weights, relative to unit updates."""


@final
@dataclass(frozen=True)
class FedMgda(MixingRule):
    """The shortest convex combination of normalised updates, near the static weights (Hu et al., 2022, FedMGDA+).

    With u_i = update_i / ||update_i|| and static weights s_i = n_i / sum n_j,

        lam = argmin ||sum_i lam_i u_i||^2   over the simplex with |lam_i - s_i| <= epsilon,

    and theta moves by sum_i lam_i u_i, times the mean norm of the updates (`rescale` = "mean") or as it is ("unit", the
    paper; its length is then the server's learning rate). epsilon = 0 are the static weights on normalised updates.
    A client whose update is zero or not finite keeps its static weight.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"gram"})

    epsilon: float = 0.5
    rescale: str = "mean"

    def __post_init__(self) -> None:
        check.between("FedMgda", "epsilon", self.epsilon, 0, 1)
        check.one_of("FedMgda", "rescale", self.rescale, RESCALES)

    def weigh(self, state: Tensors, cohort: Cohort, info: RoundInfo) -> tuple[Mix, Tensors]:
        assert cohort.gram is not None
        distinct("FedMgda", cohort)
        gram, static = cohort.gram.double().cpu(), cohort.sizes.double().cpu() / cohort.sizes.sum().cpu()
        norms = gram.diagonal().clamp_min(0).sqrt()
        moving = ((norms > 0) & norms.isfinite()).nonzero().flatten()
        shares = static.clone()
        if len(moving) > 1:
            shares[moving] = self._shortest(gram[moving][:, moving], norms[moving], static[moving])
        scale = torch.ones_like(norms)
        scale[moving] = (norms[moving].mean() if self.rescale == "mean" else 1.0) / norms[moving]
        return Mix(shares * scale, shares), state

    def _shortest(self, gram: Tensor, norms: Tensor, static: Tensor) -> Tensor:
        angles = gram / torch.outer(norms, norms) + RIDGE * torch.eye(len(norms), dtype=gram.dtype)
        low, high, total = (static - self.epsilon).clamp_min(0), static + self.epsilon, float(static.sum())
        return minimise(angles, -RIDGE * static, low, high.clamp_max(total), total, static)
