"""Small federations whose nodes live in this process, and what they must equal."""

from __future__ import annotations

from pathlib import Path

import torch

from fedchord import catalog
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.engine.simulate import simulate
from fedchord.remote.asking import Service
from fedchord.remote.direct import Direct, nodes_of
from fedchord.remote.limits import Limits
from fedchord.remote.plan import Plan

SIZES = (13, 20, 7, 11)
CLIENTS, CLASSES, TESTED, HELD = len(SIZES), 3, 6, 3
SHAPE = (1, 8, 8)
OPEN = Limits(log=None)
"""Nothing is held back, so that all of it can be compared."""
QUICK = Service(deadline=5.0, wait=0.0)
SECRET = b"for tests"


def pictures(seed: int = 0) -> Federation:
    """Four clients of tiny grey pictures that can be learnt, with test and validation rows."""
    draw = torch.Generator().manual_seed(seed)
    each = [size + TESTED + HELD for size in SIZES]
    x = torch.randint(0, 256, (sum(each), *SHAPE), dtype=torch.uint8, generator=draw)
    y = (x.float().flatten(1) @ torch.randn(64, CLASSES, generator=draw)).argmax(1)
    rows = torch.arange(sum(each)).split(each)
    train, test, held = zip(
        *(part.split([size, TESTED, HELD]) for part, size in zip(rows, SIZES, strict=True)), strict=True
    )
    names = tuple(f"party {i}" for i in range(CLIENTS))
    return Federation("toy", {"x": x, "y": y}, CLASSES, Ragged.of(train), Ragged.of(held), Ragged.of(test), names)


FEDERATION = pictures()


def plan_of(method: str = "fedavg", federation: Federation = FEDERATION, **settings: object) -> Plan:
    """A short plan; half of the clients take part in a round, where the rule does not need all."""
    full = catalog.build(method, mixing=settings.get("mixing")).mixing.full  # type: ignore[arg-type]
    usual = {
        "method": method,
        "rounds": 3,
        "cohort": "all" if full else 2,
        "seed": 3,
        "batch": 5,
        "lr": 0.05,
        "eval_every": 0,
    }
    model = {} if catalog.METHODS[method].model in ("cvae", "cgan") else {"model": "twonn"}
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return Plan.of(usual | model | given, federation)


def direct(plan: Plan, folder: Path, federation: Federation = FEDERATION, limits: Limits = OPEN) -> Direct:
    """All clients of a plan as nodes in this process."""
    return Direct(nodes_of(plan, federation, folder, SECRET, limits))


def simulated(plan: Plan, federation: Federation = FEDERATION, **more: object):
    """The last round of the same plan in the simulator."""
    work, course = plan.work(federation), plan.course
    settings = {"rounds": course.rounds, "cohort": course.cohort, "seed": course.seed}
    *_, last = simulate(
        work.algorithm,
        work.task,
        federation,
        training=plan.config.training(),
        executor="serial",
        **(settings | more),
    )
    return last


def states(state) -> dict[str, torch.Tensor]:
    """All that a server's state holds, by name."""
    flat = {f"{g} {n}": t for g in ("broadcast", "mixing", "server") for n, t in getattr(state, g).items()}
    return flat | {"visits": state.visits.tensor(), "counted": state.counted.tensor()}


def assert_same_state(a, b) -> None:
    """Two server states are equal to the bit."""
    left, right = states(a), states(b)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def assert_same_memory(nodes, last) -> None:
    """Every node keeps what the simulator's client keeps."""
    for client, node in nodes.items():
        counted = int(last.state.counted[client])
        kept = node.versions.get(counted) or {}
        known = last.memory.get(client) or {}
        assert kept.keys() == known.keys(), client
        assert all(torch.equal(kept[name], known[name]) for name in kept), client
