"""From what is asked for to what a run is made of: rules that hide, and what clients do before anything leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from fedchord.check import require
from fedchord.core.local import Guard
from fedchord.core.round import Plan
from fedchord.core.rules import Algorithm
from fedchord.core.task import Task
from fedchord.privacy.accounting import WORDS
from fedchord.privacy.allowed import refused, refused_model
from fedchord.privacy.clients import Clip, EqualParts, protected
from fedchord.privacy.terms import CLIENTS, Privacy


@final
@dataclass(frozen=True)
class Shield:
    """An algorithm as it is run, and the guards of its clients."""

    algorithm: Algorithm
    guards: tuple[Guard, ...] = ()


def shield(
    algorithm: Algorithm, privacy: Privacy | None, task: Task, clients: int, plan: Plan, secret: bytes = b""
) -> Shield:
    """The rules of a run with what privacy asks for; the algorithm itself where nothing is asked for."""
    if privacy is None:
        return Shield(algorithm)
    reason = refused(algorithm, privacy.level) or refused_model(task)
    require(not reason, "privacy", f"{algorithm.title} cannot be private: {reason}")
    cohort = plan.size(clients)
    hidden = protected(algorithm, privacy, clients, cohort, plan.rounds, secret)
    return Shield(hidden, (Clip(privacy.clip, told=False),))


def drawing(privacy: Privacy | None) -> str:
    """Whom cohorts are drawn from (`Plan.draw`)."""
    if privacy is None or privacy.level != CLIENTS:
        return "here"
    return "poisson" if privacy.sampling == "poisson" else "all"


def told(algorithm: Algorithm, privacy: Privacy, rounds: int) -> dict[str, Any]:
    """The guarantee of a run after so many rounds, as facts for its summary."""
    assert isinstance(algorithm.mixing, EqualParts)
    spending = algorithm.mixing.spending
    return {
        "level": privacy.level,
        "epsilon": None if math.isinf(bound := spending.after(rounds)) else bound,
        "delta": privacy.delta,
        "noise": spending.noise,
        "clip": privacy.clip,
        "sampling": WORDS[spending.draw.way],
        "trusted": "the server, which sees single updates and adds the noise",
        "covers": "every broadcast and the last model; not the metrics on test rows, nor who took part",
    }
