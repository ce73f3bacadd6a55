"""FedEvg: what a local step costs beside a plain classifier step of the same network and batch (at most 4.5 times).

    python benchmarks/energy.py [--turns 5]

A FedEvg step with one chain step is a pass over the chain for its gradient in x, and one pass over [real, chain,
synthetic] for the gradient in theta. Contenders take turns in one process, on one thread; medians of processor time
and their ratios are printed. The last column is the pass over all 100 samples that ends a visit, in plain steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from fedchord import Task, Training, rng
from fedchord.clients.energy import Energy
from fedchord.clients.plain import Plain
from fedchord.core.local import train
from fedchord.core.rules import ClientRule, Phase, RoundInfo, Visit
from fedchord.core.stream import ClientStream
from fedchord.data import Inputs
from fedchord.data.federation import Federation, Ragged
from fedchord.engine.executors import keep_freed_memory
from fedchord.models import build

BATCH, STEPS = 64, 8
MODELS = {"smallconv": (1, 28, 28), "resnet10:8": (3, 32, 32)}


def data(shape: tuple[int, ...]) -> Federation:
    """One client with random images."""
    generator = torch.Generator().manual_seed(0)
    rows = BATCH * STEPS
    x = torch.randint(0, 256, (rows, *shape), dtype=torch.uint8, generator=generator)
    y = torch.randint(0, 10, (rows,), generator=generator)
    own, none = Ragged.of([torch.arange(rows)]), Ragged.of([torch.zeros(0, dtype=torch.int64)])
    return Federation("random", {"x": x, "y": y}, 10, own, none, none, ("0",))


def contenders(name: str, shape: tuple[int, ...]) -> dict[str, Callable[[], None]]:
    """The steps of a visit, plain and FedEvg, and the pass that ends FedEvg's."""
    federation, energy = data(shape), Energy(iterations=STEPS, batch=BATCH, chain=BATCH, sgld=1)
    task = Task(lambda: build(name, shape, 10, energy.options()), inputs=Inputs(shape, 10), dense=False)
    training = energy.local(Training())
    info = RoundInfo(0, 1, 1, 1, training.lr, 1, 0)
    samples = energy.opening(task, 1)
    own = energy.init(task, samples, 2)

    def steps(
        rule: ClientRule, shared: dict[str, torch.Tensor], kept: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        stream = ClientStream(federation, 0, BATCH, 3)
        visit = Visit(task, shared, kept, info, 0, stream.size)
        return train(rule, training, visit, stream, (Phase(steps=STEPS),), rng.key(0, "local"))

    trained = steps(energy, samples, own)
    end = Visit(task, samples, own, info, 0, BATCH * STEPS)
    return {
        "plain": lambda: steps(Plain(), task.init(1), {}) and None,
        "fedevg": lambda: steps(energy, samples, own) and None,
        "end": lambda: energy.finish(trained, end) and None,
    }


def clocked(contenders: dict[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """Median processor milliseconds of each contender; the first turn is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, work in contenders.items():
            start = time.process_time()
            work()
            if turn:
                times[name].append(1e3 * (time.process_time() - start))
    return {name: statistics.median(spent) for name, spent in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    keep_freed_memory()
    print("| network | plain step (ms) | FedEvg step (ms) | ratio | end of a visit (plain steps) |")
    print("|---|---|---|---|---|")
    for name, shape in MODELS.items():
        spent = clocked(contenders(name, shape), turns)
        plain, fedevg, end = (spent[part] for part in ("plain", "fedevg", "end"))
        ratio = fedevg / plain
        print(f"| {name} | {plain / STEPS:.1f} | {fedevg / STEPS:.1f} | {ratio:.2f}x | {end * STEPS / plain:.1f} |")


if __name__ == "__main__":
    main()
