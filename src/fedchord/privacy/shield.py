"""From what is asked for to what a run is made of: rules that hide, and what clients do before anything leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

from torch import Tensor

from fedchord.check import require
from fedchord.core.local import Guard
from fedchord.core.records import Log
from fedchord.core.round import Plan, round_info
from fedchord.core.rules import Algorithm, SamplesRule, Upload, Visit
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.privacy.accounting import WORDS
from fedchord.privacy.allowed import Rows, refused, refused_data, refused_model
from fedchord.privacy.clients import Clip, EqualParts, protected
from fedchord.privacy.rows import Course, Hiding, Metered, RowTask, course_of
from fedchord.privacy.terms import CLIENTS, ROWS, Privacy

SAMPLED = (
    "Poisson sampling of rows, of known numbers, kept secret; neighbours: one row added or removed; Renyi divergence "
    "of the sampled Gaussian mechanism (Mironov et al., 2019)"
)
WHOLE = "every row in every step; neighbours: one row added or removed; exact for the Gaussian mechanism"


@final
@dataclass(frozen=True)
class Unlogged:
    """A guard: what is worth writing down of a visit stays with the client."""

    def __call__(self, upload: Upload, visit: Visit) -> Upload:
        return replace(upload, log=Log())


@final
@dataclass(frozen=True)
class Shield:
    """An algorithm and a task as they are run, the guards of clients, and how they hide rows."""

    algorithm: Algorithm
    task: Task
    guards: tuple[Guard, ...] = ()
    hiding: Hiding | None = None


def shield(
    algorithm: Algorithm,
    privacy: Privacy | None,
    task: Task,
    data: Rows,
    plan: Plan,
    training: Training,
    secret: bytes = b"",
) -> Shield:
    """The parts of a run with what privacy asks for; as they are where nothing is asked for. A `secret` is the
    server's, or, for rows, the client's own."""
    if privacy is None:
        return Shield(algorithm, task)
    reason = refused(algorithm, privacy.level) or refused_model(task) or refused_data(data, privacy.level)
    require(not reason, "privacy", f"{algorithm.title} cannot be private: {reason}")
    sizes: Tensor = data.train.sizes
    clients = len(sizes)
    cohort = plan.size(clients)
    if privacy.level == ROWS:
        used = algorithm.client.local(training)
        infos = [round_info(plan, used, clients, round, cohort) for round in range(plan.rounds)]
        course = course_of(algorithm.client, privacy, task, sizes.tolist(), used, infos)
        hiding = Hiding(privacy.clip, course, secret)
        metered = replace(algorithm, mixing=Metered(algorithm.mixing, course))
        if isinstance(algorithm.client, SamplesRule):  # it hides rows itself, and reads each once
            return Shield(replace(metered, client=algorithm.client.hiding(hiding)), task, (Unlogged(),))
        return Shield(metered, RowTask(task, hiding), (Unlogged(),), hiding)
    hidden = protected(algorithm, privacy, clients, cohort, plan.rounds, secret)
    return Shield(hidden, task, (Clip(privacy.clip, told=False),))


def drawing(privacy: Privacy | None) -> str:
    """Whom cohorts are drawn from (`Plan.draw`)."""
    if privacy is None or privacy.level != CLIENTS:
        return "here"
    return "poisson" if privacy.sampling == "poisson" else "all"


def told(algorithm: Algorithm, privacy: Privacy, rounds: int) -> dict[str, Any]:
    """The guarantee of a run after so many rounds, as facts for its summary."""
    if isinstance(algorithm.mixing, Metered):
        return _told_of_rows(algorithm.mixing.course, privacy, rounds)
    assert isinstance(algorithm.mixing, EqualParts)
    spending = algorithm.mixing.spending
    return {
        "level": privacy.level,
        "epsilon": _finite(spending.after(rounds)),
        "delta": privacy.delta,
        "noise": spending.noise,
        "clip": privacy.clip,
        "sampling": WORDS[spending.draw.way],
        "trusted": "the server, which sees single updates and adds the noise",
        "covers": "every broadcast and the last model; not the metrics on test rows, nor who took part",
    }


def _told_of_rows(course: Course, privacy: Privacy, rounds: int) -> dict[str, Any]:
    return {
        "level": privacy.level,
        "epsilon": _finite(course.after(rounds)),
        "by_client": [_finite(one) for one in course.by_client()],
        "delta": privacy.delta,
        "noise": course.noise,
        "clip": privacy.clip,
        "sampling": f"{SAMPLED if course.sampled else WHOLE}, for a client in every round",
        "trusted": "nobody but the client whose row it is, which adds the noise",
        "covers": "all that leaves a client in training; not its metrics, nor models that stay with it",
    }


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
