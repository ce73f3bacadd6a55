"""Fair mixing: what a decision costs. AAggFF-D against its O(K) form (W5) and over K; AAggFF-S against QP solvers.

    python benchmarks/fair.py [--rounds 300] [--silo 40] [--cpu]   # osqp is timed where it is installed

Contenders take turns in one process, on the same losses; medians and ratios are printed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import quadprog
import torch
from torch import Tensor

from fedchord.core.rules import Cohort, Mix, MixingRule, RoundInfo
from fedchord.mixing.aaggff import AAggFFDevice, AAggFFSilo
from fedchord.mixing.online import simplex
from fedchord.tensors import Tensors

COHORT = 10
TURN = 25
"""Decisions in a row of one contender, so that the caches are its own."""
SIZES = (1_000, 10_000, 100_000, 1_000_000, 1_500_000)
CLOCK: list[Callable[[], float]] = [time.perf_counter]
ALONE = ("problem alone, by rows", "problem alone, as a matrix")
TARGETS = {"W5": 300, "flat": 2, "silo": 10}


def rounds_of(clients: int, cohort: int, rounds: int, seed: int = 0) -> Iterator[tuple[Cohort, RoundInfo]]:
    """What a mixing rule sees of a run: clients drawn without replacement, losses of different heights."""
    generator = np.random.default_rng(seed)
    for t in range(rounds):
        ids = np.sort(generator.choice(clients, cohort, replace=False))
        losses = torch.from_numpy(generator.gamma(2.0, size=cohort) * (1 + ids % 7))
        info = RoundInfo(t, rounds, clients, cohort, 0.1, 1, 0)
        yield Cohort(torch.from_numpy(ids), torch.ones(cohort, dtype=torch.int64), losses), info


class Dense:
    """AAggFF-D as the formulas stand, with vectors of K numbers; `lean` changes them in place, as no rule may."""

    def __init__(self, clients: int, lean: bool) -> None:
        self.clients, self.lean = clients, lean
        self.total = torch.zeros(clients, dtype=torch.float64)
        self.p = torch.full((clients,), 1 / clients, dtype=torch.float64)

    def weigh(self, cohort: Cohort, info: RoundInfo) -> Tensor:
        """p over the cohort after its losses were seen."""
        assert cohort.losses is not None
        share = len(cohort.ids) / self.clients
        response = share * torch.special.ndtr(cohort.losses / cohort.losses.mean() - 1)
        mean = float(response.mean())
        estimate = torch.full_like(self.total, mean)
        estimate[cohort.ids] += (response - mean) / share
        worth = 1 + mean  # 1 + <p, r0> for r0 = mean 1
        if self.lean:
            shared = mean * (float(self.p @ estimate) - mean) / worth**2
            self.total.sub_(estimate.div_(worth)).add_(shared)
        else:
            gradient = -estimate / worth + mean * (self.p @ (estimate - mean)) / worth**2
            self.total = self.total + gradient
        zeta = (share + 2) * math.sqrt(info.round + 2) / math.sqrt(math.log(self.clients))
        self.p = torch.softmax(-self.total / zeta, 0)
        return self.p[cohort.ids] / self.p[cohort.ids].sum()


class Run:
    """A rule with its memory, one decision after another."""

    def __init__(self, rule: MixingRule, clients: int) -> None:
        self.rule, self.state = rule, rule.init(clients)

    def weigh(self, cohort: Cohort, info: RoundInfo) -> Mix:
        mix, self.state = self.rule.weigh(self.state, cohort, info)
        return mix


def clock(work: Callable[[], object], seconds: list[float]) -> object:
    """Do it and write the time down."""
    start = CLOCK[-1]()
    made = work()
    seconds.append(CLOCK[-1]() - start)
    return made


def dense_form(rounds: int) -> None:
    """W5: K = 1.5 million, 10 sampled, against the O(K) form."""
    clients, apart = SIZES[-1], 0.0
    runs = {
        "fedchord": Run(AAggFFDevice(), clients),
        "O(K) form": Dense(clients, lean=False),
        "O(K) form, in place": Dense(clients, lean=True),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    feed = list(rounds_of(clients, COHORT, rounds))
    for first in range(0, rounds, TURN):
        made: dict[str, list[Tensor]] = {}
        for name, run in runs.items():
            mixes = [clock(lambda: run.weigh(*seen), times[name]) for seen in feed[first : first + TURN]]  # noqa: B023
            made[name] = [mix.shares if isinstance(mix, Mix) else torch.as_tensor(mix) for mix in mixes]
        for name in runs:
            pairs = zip(made["fedchord"], made[name], strict=True)
            apart = max(apart, *(float((ours - other).abs().max()) for ours, other in pairs))
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"W5, K = {clients:,}: {medians['fedchord'] * 1e3:.4f} ms a decision")
    for name in list(runs)[1:]:
        ratio, target = medians[name] / medians["fedchord"], f" (target {TARGETS['W5']}x)"
        print(f"    {name}: {medians[name] * 1e3:.3f} ms, {ratio:.0f}x{'' if 'place' in name else target}")
    print(f"    largest difference of a weight: {apart:.1e}")


def over_sizes(rounds: int) -> None:
    """The same decision for more and more clients, taking turns; without and (up to 10,000) with the regret tracker."""
    runs = {clients: Run(AAggFFDevice(track=False), clients) for clients in SIZES}
    tracked = {clients: Run(AAggFFDevice(), clients) for clients in SIZES if clients <= 10_000}
    feeds = {clients: list(rounds_of(clients, COHORT, rounds, 1)) for clients in SIZES}
    times: dict[int, list[float]] = {clients: [] for clients in SIZES}
    slower: dict[int, list[float]] = {clients: [] for clients in tracked}
    for t in range(rounds):
        for clients, run in runs.items():
            clock(lambda: run.weigh(*feeds[clients][t]), times[clients])  # noqa: B023
        for clients, run in tracked.items():
            clock(lambda: run.weigh(*feeds[clients][t]), slower[clients])  # noqa: B023
    print("\n| K | ms a decision | mean | last tenth | with regret tracked |\n|---|---|---|---|---|")
    medians = {}
    for clients, seconds in times.items():
        medians[clients] = statistics.median(seconds)
        last = statistics.median(seconds[-max(1, rounds // 10) :])
        extra = f"{statistics.median(slower[clients]) * 1e3:.4f}" if clients in slower else ""
        cells = [f"{value * 1e3:.4f}" for value in (medians[clients], statistics.fmean(seconds), last)]
        print(f"| {clients:,} | {' | '.join(cells)} | {extra} |")
    print(f"flat within {max(medians.values()) / min(medians.values()):.2f}x (target {TARGETS['flat']}x)")


def with_quadprog(matrix: Tensor, linear: Tensor) -> np.ndarray:
    size = len(linear)
    sides = np.concatenate([np.ones((1, size)), np.eye(size)]).T
    limits = np.concatenate([[1.0], np.zeros(size)])
    found: np.ndarray = quadprog.solve_qp(matrix.numpy(), -linear.numpy(), sides, limits, meq=1)[0]
    return found


def with_osqp(matrix: Tensor, linear: Tensor) -> np.ndarray:
    import osqp
    from scipy import sparse

    size = len(linear)
    sides = sparse.vstack([np.ones((1, size)), sparse.identity(size)], format="csc")
    low, high = np.concatenate([[1.0], np.zeros(size)]), np.concatenate([[1.0], np.ones(size)])
    solver = osqp.OSQP()
    upper = sparse.csc_matrix(np.triu(matrix.numpy()))
    solver.setup(
        upper,
        linear.numpy(),
        sides,
        low,
        high,
        eps_abs=1e-8,
        eps_rel=1e-8,
        max_iter=100_000,
        polishing=True,
        verbose=False,
    )
    found: np.ndarray = solver.solve().x
    return found


def silo(clients: int, rounds: int) -> None:
    """AAggFF-S: the whole decision, and the quadratic problem alone, against solvers of the same problems."""
    torch.set_num_threads(1)
    solvers: dict[str, Callable[[Tensor, Tensor], object]] = {"quadprog": with_quadprog}
    try:
        import osqp  # noqa: F401

        solvers["osqp"] = with_osqp
    except ImportError:
        print("osqp is not installed")
    rule = AAggFFSilo(track=False)
    _, alpha, _ = rule.constants(clients)
    tracked, run = Run(AAggFFSilo(), clients), Run(rule, clients)
    names = ["decision", "decision, regret tracked", *ALONE, *solvers]
    times: dict[str, list[float]] = {name: [] for name in names}
    faces, falls = counted()
    worst: dict[str, float] = dict.fromkeys((*ALONE, *solvers), 0.0)
    for cohort, info in rounds_of(clients, clients, rounds, 2):
        before: Tensors = run.state
        clock(lambda: run.weigh(cohort, info), times["decision"])  # noqa: B023
        clock(lambda: tracked.weigh(cohort, info), times["decision, regret tracked"])  # noqa: B023
        linear, spread = run.state["linear"], simplex.Spread(alpha, run.state["rows"])
        matrix = run.state["matrix"] if len(run.state["matrix"]) else spread.whole()
        contenders: dict[str, Callable[[Tensor, Tensor], object]] = {
            "problem alone, by rows": lambda a, b: simplex.minimise(spread, b, start=before["p"]),  # noqa: B023
            "problem alone, as a matrix": lambda a, b: simplex.minimise(a, b, start=before["p"]),  # noqa: B023
        }
        for name, solve in (contenders | solvers).items():
            found = clock(lambda: solve(matrix, linear), times[name])  # noqa: B023
            p = torch.as_tensor(found)
            worst[name] = max(worst[name], simplex.residual(matrix, linear, p))
    print(f"\nAAggFF-S, K = {clients}, {rounds} decisions, one thread\n")
    print("| contender | ms | decision is faster by | largest KKT residual |\n|---|---|---|---|")
    ours = statistics.median(times["decision"])
    for name, seconds in times.items():
        median = statistics.median(seconds)
        ratio = f"{median / ours:.1f}x (target {TARGETS['silo']}x)" if name in solvers else ""
        print(f"| {name} | {median * 1e3:.3f} | {ratio} | {f'{worst[name]:.1e}' if name in worst else ''} |")
    print(f"faces solved: {faces[0]} in {4 * rounds} problems and their hindsight; fallbacks: {falls[0]}")


def counted() -> tuple[list[int], list[int]]:
    """From here on, the faces that the quadratic solver visits and the times its second method takes over."""
    faces, falls, on_face, primal = [0], [0], simplex._on_face, simplex._primal_sets

    def count_face(*args: object) -> object:
        faces[0] += 1
        return on_face(*args)  # type: ignore[arg-type]

    def count_fall(*args: object) -> object:
        falls[0] += 1
        return primal(*args)  # type: ignore[arg-type]

    simplex._on_face, simplex._primal_sets = count_face, count_fall  # type: ignore[assignment]
    return faces, falls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="decisions of AAggFF-D")
    parser.add_argument("--silo", type=int, default=40, help="decisions of AAggFF-S")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds on one thread, for a machine that is busy")
    options = parser.parse_args()
    if options.cpu:
        torch.set_num_threads(1)
        CLOCK.append(time.process_time)
    dense_form(options.rounds)
    over_sizes(options.rounds)
    silo(500, options.silo)


if __name__ == "__main__":
    main()
