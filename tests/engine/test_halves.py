"""Visits in two pieces: the bits of whole ones, and no process that waits longer than it must."""

import heapq
import random

import pytest
import torch
from helpers.federations import make_federation
from torch import nn

from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.clients.plain import Plain
from fedchord.core.local import Begun
from fedchord.core.round import Plan, open_round, open_run
from fedchord.core.rules import Algorithm
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.engine import halves, processes
from fedchord.engine.halves import Halves, pieces
from fedchord.engine.simulate import simulate
from fedchord.engine.work import Work
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step

FEDERATION = make_federation([13, 20, 7, 31, 10, 5])


def finished(costs, order, count):
    """When the last of some processes ends that take pieces in this order; a second piece may not come too early."""
    free, ends, done = [0.0] * count, [], {}
    for piece in order:
        start = heapq.heappop(free)
        share = piece.until if piece.until is not None else 1 - (piece.since or 0.0)
        if piece.since is not None:
            assert done[piece.slot] <= start + 1e-9
        end = start + share * costs[piece.slot]
        done[piece.slot] = end
        heapq.heappush(free, end)
        ends.append(end)
    return max(ends)


def test_five_equal_clients_on_two_processes_take_two_and_a_half():
    order = pieces([8, 8, 8, 8, 8], 2)
    assert finished([8] * 5, order, 2) == 20
    assert [piece.slot for piece in order if piece.until is not None] == [2]


@pytest.mark.parametrize(("clients", "count", "expected"), [(5, 4, 1.25), (10, 8, 1.25), (3, 2, 1.5), (7, 3, 7 / 3)])
def test_equal_clients_end_together(clients, count, expected):
    assert finished([1.0] * clients, pieces([1.0] * clients, count), count) == pytest.approx(expected)


@pytest.mark.parametrize(("clients", "count"), [(2, 2), (4, 2), (1, 4), (3, 8), (0, 2), (5, 1)])
def test_what_is_even_or_too_few_stays_whole(clients, count):
    order = pieces([3.0] * clients, count)
    assert sorted(piece.slot for piece in order) == list(range(clients))
    assert all(piece.until is None and piece.since is None for piece in order)


def test_every_visit_is_made_once_and_all_is_done_when_it_can_be_at_the_earliest():
    draw = random.Random(3)
    for _ in range(300):
        count, costs = draw.randint(2, 6), [draw.randint(1, 40) for _ in range(draw.randint(2, 20))]
        order = pieces(costs, count)
        cut = [piece for piece in order if piece.until is not None]
        assert len(cut) < count
        assert sorted(p.slot for p in order if p.since is None) == list(range(len(costs)))
        assert {(p.slot, p.until) for p in cut} == {(p.slot, p.since) for p in order if p.since is not None}
        assert all(0 < p.until < 1 for p in cut)
        assert sorted(p.place for p in cut) == list(range(len(cut)))
        earliest = max(sum(costs) / count, max(costs))  # no schedule ends before
        assert finished(costs, order, count) <= (1.0 + 1e-9 if cut else halves.GAIN) * earliest


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.drop(torch.relu(self.norm(self.a(x)))))


@pytest.mark.parametrize(
    ("name", "make", "training"),
    [
        ("fedavg", lambda: TwoNN(6, 5, 3), Training(epochs=2, batch=4, lr=0.1, momentum=0.5, weight_decay=0.01)),
        ("fedavg", Normed, Training(epochs=2, batch=4, lr=0.1, momentum=0.5)),
        ("fedavg", Normed, Training(epochs=2, batch=4, lr=0.1, optimiser="adam")),
        ("fedrep", lambda: TwoNN(6, 5, 3), Training(epochs=2, batch=4, lr=0.1, momentum=0.5)),
        ("superfed-lm", lambda: TwoNN(6, 5, 3), Training(epochs=2, batch=4, lr=0.1, momentum=0.5)),
    ],
    ids=["dense", "normed", "adam", "two phases", "two models"],
)
def test_a_visit_cut_after_any_step_has_the_bits_of_a_whole_one(name, make, training):
    algorithm, task = catalog.build(name), Task(make)
    work = Work.of(algorithm, task, FEDERATION, training, 1)
    plan = Plan(3, 4, 1)
    state = open_run(algorithm, work.task, 6, plan)
    info, ids = open_round(state, plan, work.training)
    client, shared = ids[0], state.broadcast
    whole, kept, _ = work.run(client, shared, None, info)
    steps = work.steps(client, shared, None, info)
    assert steps > 3
    for cut in range(steps + 1):
        begun, _ = work.begin(client, shared, None, info, cut)
        assert begun.steps == cut
        places = Halves(1, 1 << 20)
        assert places.put(0, begun)
        upload, own, _ = work.run(client, shared, None, info, begun=places.get(0))
        for one, other in (
            (whole.mix, upload.mix),
            (whole.carry, upload.carry),
            (whole.mean, upload.mean),
            (kept, own),
        ):
            assert one.keys() == other.keys()
            assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_begun_visit_is_told_as_it_is_or_not_at_all():
    begun = Begun({"a": torch.tensor(3), "b": torch.randn(2, 3).half()}, {"b": torch.rand(7).double()}, 5)
    places = Halves(2, 4096)
    assert places.put(1, begun)
    back = places.get(1)
    assert back.steps == 5 and list(back.trained) == ["a", "b"] and list(back.memory) == ["b"]
    for one, other in ((begun.trained, back.trained), (begun.memory, back.memory)):
        assert all(torch.equal(one[key], other[key]) and one[key].dtype == other[key].dtype for key in one)
    assert all(tensor.data_ptr() % 64 == 0 for tensor in (*back.trained.values(), *back.memory.values()))
    assert not places.put(0, Begun({"a": torch.zeros(2000)}, {}, 1))


def model(executor, name="fedavg", **settings):
    settings = {"cohort": 3, "seed": 1, "training": Training(2, 4, 0.1, 0.5), "workers": 2} | settings
    *_, result = simulate(
        catalog.build(name), Task(lambda: TwoNN(6, 5, 3)), FEDERATION, rounds=4, executor=executor, **settings
    )
    return result.state.broadcast["theta"]


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(processes, "WORTH", -1.0)
    monkeypatch.setattr(halves, "GAIN", 0.0)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("how", ["in time", "no room", "nobody comes"])
def test_processes_that_share_a_visit_give_the_bits_of_serial(monkeypatch, how):
    if how == "no room":
        monkeypatch.setattr(Halves, "put", lambda *given: False)
    if how == "nobody comes":  # whoever came for the second piece came before the first was done
        monkeypatch.setattr(
            processes.Processes, "_stands", lambda self, slot, state, otherwise: state == processes.DROPPED
        )
    assert torch.equal(model("serial"), model("processes"))
    assert torch.equal(model("serial", "q-fedavg"), model("processes", "q-fedavg"))  # with losses


class Breaks(Plain):
    """Fails in the middle of one client's visit."""

    def step(self, trained, memory, visit, batch, key, optimiser):
        if visit.client == 3:
            raise FedchordError("this client has had enough")
        return super().step(trained, memory, visit, batch, key, optimiser)


@pytest.mark.usefixtures("always")
def test_a_first_piece_that_fails_is_told_and_nobody_waits():
    algorithm = Algorithm(Breaks(), BySize(), Step())
    with pytest.raises(FedchordError, match="has had enough"):
        for _ in simulate(
            algorithm, Task(lambda: TwoNN(6, 5, 3)), FEDERATION, rounds=2, cohort=5, executor="processes", workers=2
        ):
            pass
