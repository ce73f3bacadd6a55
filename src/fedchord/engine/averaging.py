"""Averaged iterates: the mean of the global models of the last rounds, which is what clients then deploy.

With theta_t the global model after round t, T rounds and n = max(1, floor(average T)), clients deploy

    (theta_{T-n+1} + ... + theta_T) / n,

and on the way, within these rounds, the mean of those so far. Training is not touched: the next round starts from
theta_t. Buffers are averaged too; whole-number counters are those of the last model. Sums are kept in float64 and in
checkpoints, so that a run which is interrupted goes on to the same bits.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from fedchord.core.round import Plan
from fedchord.core.rules import ServerState
from fedchord.core.task import Task

ENTRIES = ("theta", "buffers")


def added(state: ServerState, plan: Plan) -> ServerState:
    """The state after a round, its model added to the sums where it is one of those that are averaged."""
    if not plan.averages(state.round):
        return state
    model = {name: state.broadcast[name].double() for name in ENTRIES} | {"count": torch.ones((), dtype=torch.float64)}
    before = state.sums
    return replace(state, sums={name: before[name] + part if before else part for name, part in model.items()})


def averaged(state: ServerState, task: Task) -> ServerState:
    """The state with the mean in place of the last model, where there are sums; of them only the count stays."""
    if "theta" not in state.sums:
        return state
    count = state.sums["count"]
    means = {name: (state.sums[name] / count).to(state.broadcast[name].dtype) for name in ENTRIES}
    counters = task.buffers.counters.to(means["buffers"].device)
    if counters.any():
        means["buffers"] = torch.where(counters, state.broadcast["buffers"], means["buffers"])
    return replace(state, broadcast=state.broadcast | means, sums={"count": count})
