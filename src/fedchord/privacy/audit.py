"""An audit of a claimed epsilon: somebody plays against the real code, and wins no more often than the claim allows.

The game with clients: a client adds a canary, its whole clip along one direction, or the opposite of it (under Poisson
sampling: nothing). Rounds are run, and from the broadcasts alone it is guessed which of the two it was. In the games
with rows (`canaries`) a client has a row, or has not, and from what it releases it is guessed whether the row is there.
Each game is played many times with other seeds. If a mechanism is (epsilon, delta)-private, then for every way to guess

    P(says canary | canary) <= e^epsilon P(says canary | none) + delta,

so that log((TPR - delta) / FPR), with TPR bounded from below and FPR from above by Clopper and Pearson's intervals, is
a lower bound of the true epsilon. It is no proof of the claim: a bound above it would disprove it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from scipy.stats import beta
from torch import Tensor, nn

from fedchord import check, rng
from fedchord.core.inputs import Inputs
from fedchord.core.round import Plan, Results, close_round, open_round, open_run, round_info
from fedchord.core.rules import Algorithm, SamplesRule, ServerState
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.privacy.allowed import refused
from fedchord.privacy.canaries import WIDTH, Gradients, Network, Sums
from fedchord.privacy.clients import Clip, protected
from fedchord.privacy.rows import Hiding, RowTask, course_of
from fedchord.privacy.shield import drawing
from fedchord.privacy.terms import POISSON, Privacy

SURE = 0.95
"""How sure the lower bound is."""
CUTS = 81
"""How many places to cut scores are tried."""


@final
@dataclass(frozen=True)
class Verdict:
    """What a game showed: the lower bound of epsilon, the claim, and how often was guessed right."""

    lower: float
    claimed: float
    right: float
    games: int

    @property
    def holds(self) -> bool:
        """Whether the claim was not disproved."""
        return self.lower <= self.claimed


def lower_bound(hits: int, misses: int, games: int, delta: float, sure: float = SURE) -> float:
    """The epsilon that is shown by `hits` of `games` canaries that were seen, and `misses` of as many games in which
    one was seen that was not there; each of the two intervals errs in half of the cases that are allowed."""
    err = (1 - sure) / 2
    found = beta.ppf(err, hits, games - hits + 1) if hits else 0.0
    wrong = beta.ppf(1 - err, misses + 1, games - misses) if misses < games else 1.0
    return max(0.0, math.log((found - delta) / wrong)) if found > delta else 0.0


def shown(inside: Tensor, outside: Tensor, delta: float) -> float:
    """The lower bound from scores with and without the canary: where to cut is chosen on the first half of the games,
    and the bound found on the second."""
    half = len(inside) // 2
    best, cut = -1.0, 0.0
    for level in torch.cat([inside[:half], outside[:half]]).quantile(torch.linspace(0, 1, CUTS)).tolist():
        hits, misses = (int((part[:half] >= level).sum()) for part in (inside, outside))
        if (found := lower_bound(hits, misses, half, delta)) > best:
            best, cut = found, level
    hits, misses = (int((part[half:] >= cut).sum()) for part in (inside, outside))
    return lower_bound(hits, misses, len(inside) - half, delta)


def audit_clients(
    algorithm: Algorithm,
    task: Task,
    privacy: Privacy,
    clients: int = 10,
    cohort: int = 10,
    rounds: int = 3,
    games: int = 1000,
    seed: int = 0,
) -> Verdict:
    """Play against privacy of clients: through the guard, the draw of the cohort, the weights, the noise and the
    server's step that a run has. The others upload something random of their own."""
    hidden = protected(algorithm, privacy, clients, cohort, rounds)
    begun = open_run(hidden, task, clients, Plan(rounds, cohort, seed))

    def play(there: bool, key: int) -> float:
        return _game(hidden, task, privacy, begun, Plan(rounds, cohort, key, draw=drawing(privacy)), there)

    return _played(play, games, seed, privacy.delta, hidden.server.spending.after(rounds))  # type: ignore[attr-defined]


def audit_rows(
    algorithm: Algorithm,
    privacy: Privacy,
    rows: int = 20,
    rounds: int = 3,
    games: int = 1000,
    seed: int = 0,
    training: Training | None = None,
) -> Verdict:
    """Play against privacy of rows, with a client of so many rows besides the canary; the claim is that of a client
    with the canary. Through the draw of batches, the clipped gradients, the noise and the steps; where a rule trains
    nothing, through its clipped features and the noise on sums and counts."""
    reason = refused(algorithm, privacy.level)
    check.require(not reason, "audit", f"{algorithm.title} cannot be private: {reason}")
    check.whole("audit", "rows", rows, 1)
    rule, used = algorithm.client, algorithm.client.local(training or Training(batch=0))
    infos = [round_info(Plan(rounds), used, 1, round, 1) for round in range(rounds)]
    summed = isinstance(rule, SamplesRule)
    task = Task(Network, inputs=Inputs((WIDTH,), 2)) if summed else Task(lambda: nn.Linear(WIDTH, 2))
    course = course_of(rule, privacy, task, [rows + 1], used, infos)
    hiding = Hiding(privacy.clip, course)
    if isinstance(rule, SamplesRule):
        play = Sums(rule, task, hiding, used, rows, infos).play
    else:
        play = Gradients(rule, RowTask(task, hiding), used, rows, infos).play
    return _played(play, games, seed, privacy.delta, course.after(rounds))


def _played(play: Callable[[bool, int], float], games: int, seed: int, delta: float, claimed: float) -> Verdict:
    """The verdict after so many games on each side; `play` gives a score, by whether the canary is there and a key."""
    check.whole("audit", "games", games, 20)
    scores = torch.empty(2, games)
    for side in (0, 1):
        for game in range(games):
            scores[side, game] = play(bool(side), rng.key(seed, "audit", game, side) >> 1)
    inside, outside = scores[1], scores[0]
    middle = float(scores.median())
    right = float(((inside > middle).double().mean() + (outside <= middle).double().mean()) / 2)
    return Verdict(shown(inside, outside, delta), claimed, right, games)


def _game(algorithm: Algorithm, task: Task, privacy: Privacy, state: ServerState, plan: Plan, there: bool) -> float:
    """How far the broadcasts moved along the canary, in all rounds together. What the others upload is known to whoever
    guesses, and so it is nothing along the canary."""
    size, start, guard = task.layout.size, state.broadcast["theta"], Clip(privacy.clip, told=False)
    canary = torch.zeros(size)
    canary[0] = 2 * privacy.clip  # the guard is part of what is looked at
    other = torch.zeros(size) if privacy.sampling == POISSON else -canary
    for _ in range(plan.rounds):
        info, ids = open_round(state, plan, Training())
        drawn = rng.normal(rng.key(plan.seed, "others", state.round), (len(ids), size))
        drawn[:, 0] = 0
        rows = [(canary if there else other) if client == 0 else drawn[at] for at, client in enumerate(ids)]
        clipped = [guard.clipped({"theta": row})["theta"] for row in rows]
        mix = {"theta": torch.stack(clipped) if clipped else torch.zeros(0, size)}
        results = Results(torch.tensor(ids, dtype=torch.int64), torch.ones(len(ids)), mix)
        state, _ = close_round(algorithm, task, state, results, info)
    return float((state.broadcast["theta"] - start)[0])
