"""`simulate`: a generator of round results. The caller's `for` body is the callback system."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedchord import check
from fedchord.core.round import Plan, close_round, open_round, open_run
from fedchord.core.rules import Algorithm, ServerState
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.engine import checkpoint
from fedchord.engine.executors import Work, make_executor
from fedchord.engine.memory import ClientMemory
from fedchord.evaluation.evaluate import Evaluation, evaluate
from fedchord.synthetic.learn import Judge
from fedchord.tensors import num_bytes

EXECUTORS = ("auto", "processes", "serial", "vectorised")


@dataclass(frozen=True)
class RoundResult:
    """One finished round. `round` counts from 1; `evaluation` is there in the rounds that were evaluated."""

    round: int
    cohort: tuple[int, ...]
    shares: Tensor
    losses: Tensor | None
    log: dict[str, float]
    seconds: float
    bytes_up: int
    bytes_down: int
    evaluation: Evaluation | None
    state: ServerState
    memory: ClientMemory


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often to write checkpoints, and whether to go on from one that is there."""

    folder: Path
    every: int = 0
    resume: bool = False
    fingerprint: str = ""


def pick_device(device: str) -> torch.device:
    """The device by name; "auto" takes CUDA where it is present."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise check.fail("run", f"device must be auto, cpu or cuda, got {device!r}") from None
    check.require(
        chosen.type != "cuda" or torch.cuda.is_available(),
        "run",
        f"device {device} asked for, but no CUDA device is here",
    )
    return chosen


def simulate(
    algorithm: Algorithm,
    task: Task,
    federation: Federation,
    *,
    rounds: int = 10,
    cohort: int | float = 1.0,
    seed: int = 0,
    training: Training | None = None,
    executor: str = "processes",
    workers: int | None = None,
    device: str = "auto",
    eval_every: int = 0,
    metrics: tuple[str, ...] | None = None,
    memory: ClientMemory | None = None,
    checkpoints: Checkpoints | None = None,
    judge: Judge | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Iterator[RoundResult]:
    """Run an algorithm on a federation, one `RoundResult` per round.

    `cohort` is a number of clients or a share of them; `eval_every=0` evaluates after the last round only. With
    `checkpoints` the run can be continued to the bit-identical result. `judge` is the recipe of the classifier that
    measures synthetic samples. Nothing runs until the generator is advanced.
    """
    check.one_of("run", "executor", executor, EXECUTORS)
    check.whole("run", "eval_every", eval_every)
    if workers is not None:
        check.whole("run", "workers", workers, 1)
    plan = Plan(rounds, cohort, seed)
    training = algorithm.client.local(training or Training())
    place = pick_device(device)
    federation = federation.to(place)
    task = task.to(place)
    memory = memory or ClientMemory(device=place)
    state = open_run(algorithm, task, federation.num_clients, plan)
    if checkpoints and checkpoints.resume:
        found = checkpoint.load(checkpoints.folder, memory, checkpoints.fingerprint)
        for problem in found.problems if found else ():
            report(f"{problem}; going on from the one before")
        state = found.state if found else state
    state = state.to(place)
    work = Work(algorithm, task, federation, training, seed)
    size = plan.size(federation.num_clients)
    runner = make_executor(executor, work, state.broadcast, size, workers, report)
    warned = False
    try:
        while state.round < rounds:
            start = time.perf_counter()
            info, ids = open_round(state, plan, training)
            down = num_bytes(state.broadcast) * len(ids) if algorithm.client.mixes else 0
            results = runner.run(state.broadcast, ids, info, memory)
            state, mix = close_round(algorithm, task, state, results, info)
            up = sum(num_bytes(part) for part in (results.mix, results.carry, results.mean, results.stats))
            up += 0 if results.losses is None else 4 * len(ids)
            due = state.round == rounds or (eval_every > 0 and state.round % eval_every == 0)
            seconds = time.perf_counter() - start
            measured = None
            if due:
                measured = evaluate(algorithm, task, federation, state, memory, "test", metrics, work.tune, judge, seed)
            if checkpoints and (state.round == rounds or (checkpoints.every and state.round % checkpoints.every == 0)):
                checkpoint.save(checkpoints.folder, state, memory, checkpoints.fingerprint)
            losses, log = results.losses, dict(mix.log) | _watch(algorithm, memory, ids)
            log |= {name: float(numbers.sum()) for name, numbers in results.stats.items()}
            if not warned and (alarm := algorithm.client.alarm(log)):
                report(f"round {state.round}: {alarm}")
                warned = True
            yield RoundResult(
                state.round, tuple(ids), mix.shares, losses, log, seconds, up, down, measured, state, memory
            )
    finally:
        runner.close()


def _watch(algorithm: Algorithm, memory: ClientMemory, ids: list[int]) -> dict[str, float]:
    """The cohort's means of the numbers that the client rule wants to be seen."""
    if not algorithm.client.watched:
        return {}
    kept = [memory.get(client) or {} for client in ids]
    return {name: float(torch.cat([own[name] for own in kept]).mean()) for name in algorithm.client.watched}
