"""What every method must do, as tests that pytest collects: for a rule of your own, inherit from `Contract`.

    from fedchord.testing import Contract

    class TestMine(Contract):
        def algorithm(self):
            return Algorithm(Mine(), BySize(), Step())

Every executor finds the same, and so do clients apart, each with its own rows and disk. A run can stop and go on, seeds
count, the order of clients does not, nothing looks ahead, a longer run begins as a shorter one, and rules are frozen
records. Nothing here imports pytest; `tmp_path` is its fixture.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from fedchord import catalog, rng
from fedchord.core.inputs import Inputs
from fedchord.core.local import local_round
from fedchord.core.round import Plan, Results, close_round, open_round, open_run
from fedchord.core.rules import LINE, Algorithm, Line, Log, Mix, ServerState
from fedchord.core.stream import ClientStream
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data.federation import Federation
from fedchord.data.ragged import Ragged
from fedchord.engine import halves, processes
from fedchord.engine.checkpoint import Checkpoints
from fedchord.engine.memory import ClientMemory
from fedchord.engine.simulate import RoundResult, simulate
from fedchord.evaluation.fitted import Fitted
from fedchord.models import GENERATIVE, TwoNN
from fedchord.testing.apart import Handed, run_apart

TRAINING = Training(epochs=2, batch=4, lr=0.1, momentum=0.5)
SIZES = (13, 20, 7, 31, 10, 5)
SHAPE, CLASSES, TESTED = (1, 2, 3), 3, 4
CLIENTS = len(SIZES)


def toy() -> Federation:
    """Six clients of tiny pictures that can be learnt, with four test rows each."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(sum(SIZES) + TESTED * CLIENTS, 6, generator=draw)
    y = (x @ torch.randn(6, CLASSES, generator=draw)).argmax(1)
    ends = torch.tensor([size + TESTED for size in SIZES]).cumsum(0).tolist()
    train = [torch.arange(end - size - TESTED, end - TESTED) for end, size in zip(ends, SIZES, strict=True)]
    test = [torch.arange(end - TESTED, end) for end in ends]
    nothing = Ragged.of([torch.zeros(0, dtype=torch.int64)] * CLIENTS)
    names = tuple(f"client {i}" for i in range(CLIENTS))
    columns = {"x": x.reshape(-1, *SHAPE), "y": y}
    return Federation("toy", columns, CLASSES, Ragged.of(train), nothing, Ragged.of(test), names)


FEDERATION = toy()
_USUAL: dict[str, RoundResult] = {}


def states(result: RoundResult) -> dict[str, torch.Tensor]:
    """Everything a run ends with, by name."""
    state = result.state
    flat = {f"broadcast {n}": t for n, t in state.broadcast.items()}
    flat |= {f"mixing {n}": t for n, t in state.mixing.items()} | {f"server {n}": t for n, t in state.server.items()}
    for client in result.memory.clients():
        flat |= {f"client {client} {n}": t for n, t in (result.memory.get(client) or {}).items()}
    return flat | {"visits": state.visits.tensor()}


def assert_same(a: RoundResult, b: RoundResult, tolerance: float = 0.0) -> None:
    """Two runs end with the same, to the bit or within a tolerance."""
    left, right = states(a), states(b)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        if tolerance:
            assert torch.allclose(tensor, right[name], atol=tolerance, rtol=tolerance), name
        else:
            assert torch.equal(tensor, right[name]), name


class Contract:
    """The tests; a subclass says which algorithm they are about."""

    def algorithm(self) -> Algorithm:
        """The method under test, made anew."""
        raise NotImplementedError

    def task(self) -> Task:
        """The model it is tested with; a rule that makes examples is told what one is."""
        name = self.algorithm().name.partition(" ")[0]
        network = GENERATIVE.get(catalog.METHODS[name].model if name in catalog.METHODS else "")
        make = (lambda: TwoNN(6, 5, CLASSES)) if network is None else lambda: network(SHAPE, 3, width=4, latent=3)
        return Task(make, inputs=Inputs(SHAPE, CLASSES, -3.0, 3.0))

    def cohort(self) -> int:
        """Half of the clients, or all where the mixing rule needs them."""
        return CLIENTS if self.algorithm().mixing.full else CLIENTS // 2

    def run(self, rounds: int = 4, **settings: Any) -> RoundResult:
        """The last round of a run."""
        usual: dict[str, Any] = {"seed": 1, "cohort": self.cohort(), "training": TRAINING, "executor": "serial"}
        *_, last = simulate(self.algorithm(), self.task(), FEDERATION, rounds=rounds, **(usual | settings))
        return last

    def usual(self) -> RoundResult:
        """The run that others are compared with, made once."""
        key = repr((type(self), self.algorithm()))
        if key not in _USUAL:
            _USUAL[key] = self.run()
        return _USUAL[key]

    def test_serial_and_processes_agree_bit_for_bit(self) -> None:
        assert_same(self.usual(), self.run(executor="processes", workers=2))

    def test_visits_in_two_pieces_agree_bit_for_bit(self) -> None:
        """One process begins a visit and another goes on with it: between steps nothing is kept elsewhere."""
        with (
            patch.object(processes, "WORTH", -1.0),
            patch.object(halves, "GAIN", 0.0),
        ):  # in rounds as short as these too
            assert_same(self.usual(), self.run(executor="processes", workers=2))

    def test_clients_apart_agree_bit_for_bit(self, tmp_path: Path) -> None:
        """Each a node with its own rows and memory on disk, as over a network; noise of private reports is its own."""
        algorithm = self.algorithm()
        if not algorithm.mixing.secret:
            handed = Handed(algorithm, self.task(), TRAINING, Plan(4, self.cohort(), 1), FEDERATION)
            last, memory = run_apart(handed, tmp_path)
            assert_same(self.usual(), dataclasses.replace(last, memory=memory))

    def test_vectorised_agrees_within_tolerance(self) -> None:
        assert_same(self.usual(), self.run(executor="vectorised"), tolerance=1e-4)

    def test_two_and_two_rounds_are_four(self, tmp_path: Path) -> None:
        checkpoints = Checkpoints(tmp_path, every=1, fingerprint="x")
        settings: dict[str, Any] = {"rounds": 4, "cohort": self.cohort(), "seed": 1, "training": TRAINING}
        running = simulate(self.algorithm(), self.task(), FEDERATION, executor="serial", **settings)
        for _ in range(2):
            result = next(running)
            checkpoints.save(result.state, result.memory)
        running.close()  # type: ignore[attr-defined]
        memory = ClientMemory()
        found = checkpoints.load(memory)
        assert found is not None
        assert_same(self.usual(), self.run(state=found.state, memory=memory))

    def test_memory_on_disk_changes_nothing(self, tmp_path: Path) -> None:
        assert_same(self.usual(), self.run(memory=ClientMemory(tmp_path / "memory")))

    def test_another_seed_gives_another_run(self) -> None:
        a, b = self.usual().state.broadcast, self.run(seed=2).state.broadcast
        assert not all(torch.equal(tensor, b[entry]) for entry, tensor in a.items())

    def test_local_round_leaves_its_inputs_alone(self) -> None:
        algorithm, task = self.algorithm(), self.task()
        plan = Plan(4, self.cohort(), 1)
        state = open_run(algorithm, task, CLIENTS, plan)
        training = algorithm.client.local(TRAINING)
        info, ids = open_round(state, plan, training)
        own = algorithm.client.init(task, state.broadcast, 7)
        before = {n: t.clone() for n, t in (state.broadcast | own).items()}
        stream = ClientStream(FEDERATION, ids[0], 4, 5)
        upload, kept, _ = local_round(algorithm.client, task, training, state.broadcast, own, stream, info, ids[0], 3)
        assert all(torch.equal(before[n], t) for n, t in (state.broadcast | own).items())
        sent = dict.fromkeys(upload.mix, "mix") | dict.fromkeys(upload.mean, "mean")
        assert sent == dict(algorithm.client.sends) and len(sent) == len(upload.mix) + len(upload.mean)
        assert not kept or kept.keys() == own.keys()  # a rule may keep nothing and start anew in every round

    def test_the_order_of_clients_does_not_matter(self) -> None:
        order = [3, 0, 5, 1, 4, 2]
        (a, mix_a), (b, mix_b) = self._round(sorted(order)), self._round(order)
        for entry, tensor in a.broadcast.items():
            assert torch.allclose(tensor, b.broadcast[entry], atol=1e-6), entry
        assert torch.allclose(mix_a.shares[order], mix_b.shares)

    def test_shares_lie_on_the_simplex(self) -> None:
        shares = self.usual().shares
        assert abs(float(shares.sum()) - 1) <= 1e-12 and (shares >= 0).all()

    def test_rules_are_frozen_records(self) -> None:
        algorithm = self.algorithm()
        for rule in (algorithm.client, algorithm.mixing, algorithm.server):
            assert dataclasses.is_dataclass(rule) and (type(rule).__doc__ or "").strip(), "and say what they do"
            for field in dataclasses.fields(rule):
                try:
                    setattr(rule, field.name, 0)
                except dataclasses.FrozenInstanceError:
                    continue
                raise AssertionError(f"{type(rule).__name__}.{field.name} can be changed: make the dataclass frozen")

    def test_no_look_ahead(self) -> None:
        """The weights of round t depend on rounds up to t only: a longer run starts with the same weights."""
        assert all(torch.equal(a, b) for a, b in zip(self._first_shares(2), self._first_shares(5), strict=True))

    def test_a_longer_run_begins_as_a_shorter_one(self) -> None:
        """To the bit, unless a rule says by `horizon` that it asks for the number of all rounds."""
        if not self.algorithm().horizon:
            assert_same(self.run(rounds=2), self._second(5))

    def test_what_is_deployed_is_of_the_kind_that_is_told(self) -> None:
        result = self.usual()
        rule = result.work.algorithm.client
        if result.work.algorithm.outcome == "samples":
            assert rule.deploys.kind == "samples"
            return
        fitted, clients = Fitted.of(result), range(CLIENTS)
        points = [fitted.point(client) for client in clients]
        assert any(isinstance(point, Line) for point in points) == (rule.deploys.kind == LINE)
        theta = result.state.broadcast["theta"]
        alike = all(torch.equal(fitted.deployed(client)["theta"], theta) for client in clients)
        assert alike == (rule.deploys.kind == "global")

    def _first_shares(self, rounds: int) -> list[torch.Tensor]:
        return [result.shares for result in self._first_two(rounds)]

    def _second(self, rounds: int) -> RoundResult:
        return self._first_two(rounds)[1]

    def _first_two(self, rounds: int) -> list[RoundResult]:
        """The first two rounds of a run."""
        settings: dict[str, Any] = {"rounds": rounds, "cohort": self.cohort(), "seed": 1, "training": TRAINING}
        running = simulate(self.algorithm(), self.task(), FEDERATION, executor="serial", **settings)
        first = [next(running), next(running)]
        running.close()  # type: ignore[attr-defined]
        return first

    def _round(self, order: list[int]) -> tuple[ServerState, Mix]:
        """One round of all clients, reported in a given order."""
        algorithm, task, plan, parts = self.algorithm(), self.task(), Plan(4, CLIENTS, 1), []
        state = open_run(algorithm, task, CLIENTS, plan)
        training = algorithm.client.local(TRAINING)
        info, _ = open_round(state, plan, training)
        for client in order:
            own = algorithm.client.init(task, state.broadcast, rng.key(1, "own", client))
            stream = ClientStream(FEDERATION, client, 4, rng.key(1, "batches", client, 0))
            args = (training, state.broadcast, own, stream, info, client, 3, True)
            parts.append(local_round(algorithm.client, task, *args))
        uploads = [upload for upload, _, _ in parts]
        groups = {
            group: {n: torch.stack([getattr(u, group)[n] for u in uploads]) for n in getattr(uploads[0], group)}
            for group in ("mix", "carry", "mean")
        }
        means, sums = (
            {n: torch.stack([getattr(u.log, kind)[n] for u in uploads]) for n in getattr(uploads[0].log, kind)}
            for kind in ("means", "sums")
        )
        losses = torch.stack([loss for _, _, loss in parts if loss is not None])
        ids, sizes = torch.tensor(order), FEDERATION.train.sizes[order]
        sent = groups["mix"], groups["carry"], groups["mean"]
        results = Results(ids, sizes, *sent, Log(means, sums), losses)
        return close_round(algorithm, task, state, results, info)
