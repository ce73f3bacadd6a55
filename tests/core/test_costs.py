"""What a local step costs, in operations, new tensors and Python calls: counts, which do not depend on the machine.

A step more than the numbers here is a loss of speed that a benchmark may miss on a noisy machine; where it is meant,
change the number, and say why.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedchord.core import captured
from fedchord.core.round import open_round, open_run
from fedchord.engine.work import Work
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts

BUDGET = {  # operations, new tensors, Python and C calls of a step, rounded up: one more of any is above it
    "method=fedavg model=logreg": (9, 4, 18),
    "method=fedavg model=twonn": (23, 10, 40),
    "method=fedprox model=twonn": (28, 13, 67),
    "method=scaffold model=twonn": (27, 12, 65),
    "method=ditto model=twonn": (53, 23, 131),
    "method=superfed-mm model=twonn": (28, 13, 69),
    "method=fedavg model=twocnn": (61, 38, 240),  # channels last, and slopes in their order again
    "method=superfed-mm model=twocnn": (72, 40, 253),
}


class Operations(TorchDispatchMode):
    """Counts the operations below autograd, and the tensors with memory of their own that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.made = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {part.untyped_storage()._cdata for part in tree_leaves((args, kwargs)) if torch.is_tensor(part)}
        made = function(*args, **(kwargs or {}))
        self.count += 1
        self.made += sum(torch.is_tensor(t) and t.untyped_storage()._cdata not in given for t in tree_leaves(made))
        return made


def visits(settings: str) -> tuple[Any, int]:
    """A client's visit of so many epochs, and the steps of an epoch."""
    pairs = ["data=digits", "clients=10", "momentum=0.9", "weight_decay=0.001", *settings.split()]
    parts = Parts.build(RunConfig.from_pairs(pairs))
    work: Work = parts.work
    plan = parts.config.plan()
    state = open_run(work.algorithm, work.task, 10, plan)
    info, ids = open_round(state, plan, work.training)
    steps = work.stream(ids[0], 0)._per_epoch
    return lambda epochs: work.run(ids[0], state.broadcast, None, replace(info, epochs=epochs)), steps


def costs(settings: str) -> tuple[float, float, float]:
    """Operations, new tensors and calls of a step: what four epochs take more than two."""
    visit, steps = visits(settings)
    visit(2)  # what is made once
    found = []
    for epochs in (2, 4):
        with Operations() as operations:
            visit(epochs)
        found.append((operations.count, operations.made, calls(lambda epochs=epochs: visit(epochs))))
    return tuple((more - less) / (2 * steps) for less, more in zip(*found, strict=True))


def calls(work: Any) -> int:
    """How many functions are called, of Python and of C."""
    count = 0

    def note(frame, event, argument) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("settings", BUDGET)
def test_a_step_costs_no_more_than_it_did(settings):
    found, budget = costs(settings), BUDGET[settings]
    named = dict(zip(("operations", "new tensors", "calls"), zip(found, budget, strict=True), strict=True))
    assert all(now <= most for now, most in named.values()), {
        k: f"{n:.1f} > {m}" for k, (n, m) in named.items() if n > m
    }
    for what, (now, most) in list(named.items())[:2]:  # of calls other versions of Python make fewer
        assert now > most - 1, f"{now:.1f} {what} a step now: lower the number {most}"


def test_a_recorded_gradient_makes_fewer_operations_and_calls(monkeypatch):
    before = costs("method=fedavg model=smallconv")
    monkeypatch.setattr(captured, "AFTER", 1)
    after = costs("method=fedavg model=smallconv")
    assert after[0] < before[0] - 10 and after[2] < before[2] / 1.5


def test_the_count_sees_one_more_operation_a_step(monkeypatch):
    from fedchord.core.training import LocalOptimiser

    lean = costs("method=fedavg model=logreg")
    plain = LocalOptimiser.descend

    def wasteful(self, values, *rest, **more):
        values[0].clone()
        plain(self, values, *rest, **more)

    monkeypatch.setattr(LocalOptimiser, "descend", wasteful)
    found = costs("method=fedavg model=logreg")
    assert [now - was for now, was in zip(found[:2], lean, strict=False)] == pytest.approx([1, 1])
    assert found[2] > lean[2] + 1
