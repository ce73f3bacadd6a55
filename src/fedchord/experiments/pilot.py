"""Pilots: short runs of a few methods on rows cut from the training rows, to find out what a long run is worth.

Validation and test rows are not touched. The rows that pilots are measured on carry the labels that training sees,
wrong ones included: who has wrong labels has no others to measure by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedchord.check import require
from fedchord.data.federation import Federation
from fedchord.data.hold import hold_out
from fedchord.data.ragged import Ragged
from fedchord.experiments.config import RunConfig
from fedchord.experiments.parts import Parts, headline
from fedchord.experiments.session import Run
from fedchord.metrics import HIGHER_IS_BETTER

MEASURED = 0.25
"""The share of the training rows that pilots are measured on."""
ALONE = 40
"""The fewest rounds of clients that learn alone, all of them in each; what they had when it was best counts."""
CURVE = 8
"""How often FedAvg and clients that learn alone are measured on their way, about; the others at the end only."""
LOCAL, FEDAVG, CENTRAL, TUNED, CHOSEN = "local", "FedAvg", "central", "fine-tuned", "chosen together"
JOINT = {"choose": "both", "choose.held": 0.05, "choose.within": 2.0}
"""How clients choose together: few rows held out, and no step away from the global model that is not seen to help."""
UNIFORM, POWER, ONLINE = "uniform", "q-FedAvg", "AAggFF"
RESERVED = ("method", "mixing", "server", "choose", "central", "average", "newcomers", "out", "log", "synthetic")
"""Keys that pilots set themselves, or that make no sense in them."""


@dataclass(frozen=True)
class Pilot:
    """One kind of run: its name, what it is, and its settings."""

    label: str
    about: str
    config: RunConfig


@dataclass(frozen=True)
class Piloted:
    """What came of a pilot: the metric of every client by seed, its means over rounds by seed, and what it took."""

    pilot: Pilot
    metric: str
    values: tuple[Tensor, ...]
    curves: tuple[tuple[tuple[int, float], ...], ...]
    seconds: float
    bytes: float


def pilots(base: RunConfig, clients: int) -> list[Pilot]:
    """The kinds of runs, on top of some settings, for a federation of so many clients."""
    for key in base.given():
        name = key.split(".")[0]
        asked = name in RESERVED and (key != "method" or base.method != RunConfig.method)
        require(not asked, "advise", f"{key} is what the pilots set or leave out; give data, split, model and training")
    plan = base.plan()
    cohort = plan.size(clients)
    share = cohort / clients
    visits = max(1, math.ceil(base.rounds * share - 1e-9))
    online = "aaggff-s" if cohort == clients else "aaggff-a"
    alone = {"method": "local", "cohort": "all", "rounds": max(ALONE, visits)}
    power = {"method": "q-fedavg", "method.form": "coefficients", "method.q": 1.0}
    rows: list[tuple[str, str, dict[str, object]]] = [
        (LOCAL, "every client alone, at its best of some rounds", alone),
        (FEDAVG, "one model for all", {"method": "fedavg"}),
        (CENTRAL, "all rows in one place, as many steps", {"central": True, "rounds": visits}),
        (TUNED, "FedAvg, then 5 local epochs", {"method": "fedavg-ft", "method.tune_epochs": 5}),
        (CHOSEN, "the same, how far is chosen jointly", {"method": "fedavg-ft", **JOINT}),
        (UNIFORM, "equal weights", {"method": "uniform"}),
        (POWER, "weights by losses, q = 1", power),
        (ONLINE, f"fair weights, {online}", {"method": online}),
    ]
    made = [Pilot(label, about, base.with_values(**changes)) for label, about, changes in rows]
    often = [max(1, one.config.rounds // CURVE) if one.label in (FEDAVG, LOCAL) else 0 for one in made]
    return [replace(one, config=one.config.with_values(eval_every=n)) for one, n in zip(made, often, strict=True)]


def cut(federation: Federation, seed: int) -> Federation:
    """The federation of a pilot: a part of the training rows stands for the test rows, and nothing else is there."""
    held = hold_out(federation, MEASURED, seed)
    assert held.held is not None
    none = Ragged.of([torch.zeros(0, dtype=torch.int64)] * held.num_clients)
    return replace(held, test=held.held, validation=none, held=None, holdout=None, notes=())


def fly(
    rows: Sequence[Pilot], federations: dict[int, Federation], say: Callable[[str], None] = lambda line: None
) -> Iterator[Piloted]:
    """Run every pilot on the federation of every seed."""
    total, done = len(rows) * len(federations), 0
    for pilot in rows:
        values, curves, start, sent, metric = [], [], time.perf_counter(), 0.0, ""
        for seed, federation in federations.items():
            done += 1
            say(f"[{done}/{total}] {pilot.label}, seed {seed}")
            config = pilot.config.with_values(seed=seed)
            here = hold_out(federation, config.held(), seed) if config.held() else federation
            run = Run(Parts.build(config, federation=here))
            curve = [(r.round, r.evaluation) for r in run if r.evaluation is not None]
            assert run.evaluation is not None and run.summary is not None
            metric = headline(tuple(run.evaluation.metrics))
            seen = [found for _, found in curve] if pilot.label == LOCAL else []
            best = max([run.evaluation, *seen], key=lambda found: _good(metric, found.mean(metric)))
            values.append(_everyone(best.per_client[metric], best.clients, federation.num_clients))
            curves.append(tuple((round, found.mean(metric)) for round, found in curve))
            sent += float(run.summary["bytes"]["up_total"]) + float(run.summary["bytes"]["down_total"])
        count = len(federations)
        yield Piloted(pilot, metric, tuple(values), tuple(curves), (time.perf_counter() - start) / count, sent / count)


def _good(metric: str, value: float) -> float:
    """More is better."""
    return value if metric in HIGHER_IS_BETTER else -value


def _everyone(values: Tensor, clients: Sequence[int], total: int) -> Tensor:
    """A value for every client, NaN for those that were not measured."""
    found = torch.full((total,), torch.nan, dtype=torch.float64)
    found[list(clients)] = values.double()
    return found
