"""A rehearsal: a plan is played in this process, on rows that are made up, before anyone deploys it.

Model, rules, messages, checks and memory are the real ones, and so are sizes and bytes; the weather is as bad as asked
for. Rows have the shapes, types, ranges and numbers that the outline tells and no meaning, and so neither have metrics.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedchord import rng
from fedchord.attacks.attack import Attack
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.engine.attendance import TooFew
from fedchord.engine.weather import Weather
from fedchord.experiments.round import Round
from fedchord.remote.asking import Service
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.hostile import Hostile
from fedchord.remote.plan import Plan
from fedchord.remote.serve import serve

PARTS = ("train", "validation", "test")


def made_up(known: Federation, seed: int = 0) -> Federation:
    """A federation with rows that nobody has: of the shapes, types, ranges and numbers of an outline."""
    sizes = [known.part(part).sizes for part in PARTS]
    count = sum(int(part.sum()) for part in sizes)
    draw = rng.generator(rng.key(seed, "rehearsal"))
    columns = {name: _column(known, name, column, count, draw) for name, column in known.columns.items()}
    first, parts = 0, []
    for each in sizes:
        parts.append(Ragged.of((torch.arange(int(each.sum())) + first).split(each.tolist())))
        first += int(each.sum())
    train, validation, test = parts
    return replace(known, columns=columns, train=train, validation=validation, test=test)


def _column(known: Federation, name: str, like: Tensor, count: int, draw: np.random.Generator) -> Tensor:
    shape = (count, *like.shape[1:])
    if name == "y":
        if known.target is not None:
            mean, std = known.target
            return torch.from_numpy(draw.normal(mean, std, shape)).to(like.dtype)
        return torch.from_numpy(draw.integers(0, known.classes, shape)).to(like.dtype)
    if name != "x" or like.dtype == torch.bool:
        return torch.ones(shape, dtype=like.dtype)  # masks and weights
    if like.is_floating_point():
        inputs = known.declared
        if inputs is None:
            return torch.from_numpy(draw.standard_normal(shape)).to(like.dtype)
        return inputs.from_unit(torch.from_numpy(draw.random(shape)).to(like.dtype)).to(like.dtype)
    if like.dtype in (torch.uint8, torch.int16):
        ends = torch.iinfo(like.dtype)
        return torch.from_numpy(draw.integers(ends.min, ends.max + 1, shape)).to(like.dtype)
    return torch.from_numpy(draw.integers(0, 2, shape)).to(like.dtype)  # tokens: every vocabulary has two


@final
@dataclass(frozen=True)
class Rehearsed:
    """How a rehearsal went: its rounds, and why it ended early where it did."""

    rounds: tuple[Round, ...]
    problem: str = ""

    @property
    def missing(self) -> dict[str, int]:
        """How often clients did not take part, by cause."""
        causes = Counter(cause.partition(":")[0] for done in self.rounds for cause in done.missing.values())
        return dict(sorted(causes.items()))


def rehearse(
    plan: Plan,
    service: Service | None = None,
    weather: Weather | None = None,
    rounds: int | None = None,
    attack: Attack | None = None,
    tell: Callable[[Round], None] = lambda done: None,
) -> Rehearsed:
    """Play the first `rounds` rounds of a plan (None: all) with nodes in this process, some of them hostile in an
    `attack`; `tell` hears of each."""
    asked = service or Service()
    terms = asked.terms if weather is None else weather.terms
    quick = replace(asked, wait=0.0, terms=terms)
    found: list[Round] = []
    with TemporaryDirectory(prefix="fedchord-rehearsal-") as folder:
        rows = made_up(plan.outline, plan.course.seed)
        rows = rows if attack is None else attack.poisoned(rows, plan.course.seed)
        nodes = nodes_of(plan, rows, Path(folder), os.urandom(32))
        transport = Direct(nodes) if attack is None else Hostile(nodes, plan, attack)
        try:
            for done in serve(plan, transport, service=quick, weather=weather):
                found.append(done)
                tell(done)
                if len(found) == rounds:
                    break
        except TooFew as error:
            return Rehearsed(tuple(found), str(error))
    return Rehearsed(tuple(found))
