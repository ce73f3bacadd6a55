"""The transport over a Grid whose nodes are in this process: who is asked, what is believed, what is dropped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedchord.check import FedchordError
from fedchord.remote import flower
from fedchord.remote.flower import GridTransport, pack, unpack
from fedchord.remote.flower_client import reply
from fedchord.remote.parcel import Parcel

EXPECTED = {"plan": "abc", "version": "1"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(flower, "POLL", 0.01)
    monkeypatch.setattr(flower, "LOOK", 0.03)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class Grid:
    """Nodes by id; each answers by a function of kind and parcel, or with None not at all."""

    def __init__(self) -> None:
        self.nodes: dict[int, SimpleNamespace] = {}
        self.replies: dict[str, list[Message]] = {}
        self.count = 0
        self.told: list[tuple[int, str, Parcel]] = []

    def add(self, node, answer, since="today", key=b""):
        info = SimpleNamespace(node_id=node, last_activated_at=since, public_key=key)
        self.nodes[node] = SimpleNamespace(info=info, answer=answer)

    def get_nodes(self):
        return [node.info for node in self.nodes.values()]

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def _push(self, message):
        self.count += 1
        identity = f"message-{self.count}"
        message.metadata.__dict__["_message_id"] = identity
        kind, parcel = unpack(message.content, 2**30)
        node = message.metadata.dst_node_id
        self.told.append((node, kind, parcel))
        answer = self.nodes[node].answer(kind, parcel)
        if answer is not None:
            made = answer if isinstance(answer, Error | RecordDict) else pack(kind, answer)
            self.replies.setdefault(identity, []).append(Message(made, reply_to=message))
        return identity

    def pull_messages(self, message_ids):
        return [reply for identity in message_ids for reply in self.replies.pop(identity, [])]


def says(client, **facts):
    def answer(kind, parcel):
        return (
            Parcel({}, {"client": client} | EXPECTED | facts)
            if kind == "hello"
            else Parcel(parcel.tensors, {"by": client})
        )

    return answer


def settled(transport):
    transport.clients()
    return transport.clients()


def test_a_parcel_travels_whole_small_or_large(monkeypatch):
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([True, False]), "empty": torch.zeros(0)}
    parcel = Parcel(tensors | {"half": torch.ones(3, dtype=torch.bfloat16)}, {"round": 2, "key": 2**63})
    for whole in (flower.WHOLE, 10):
        monkeypatch.setattr(flower, "WHOLE", whole)
        kind, found = unpack(pack("train", parcel), 10_000)
        assert kind == "train" and found.facts == parcel.facts and found.tensors.keys() == parcel.tensors.keys()
        assert all(torch.equal(found.tensors[name], tensor) for name, tensor in parcel.tensors.items())
        with pytest.raises(FedchordError, match="larger than the limit of 100"):
            unpack(pack("train", parcel), 100)


@pytest.mark.parametrize(
    "record",
    [
        RecordDict({}),
        RecordDict({"parcel": ConfigRecord({"kind": "train"})}),
        RecordDict({"parcel": ConfigRecord({"kind": "train", "facts": "{", "tensors": b""})}),
        RecordDict({"parcel": ConfigRecord({"kind": "train", "facts": "[1]", "tensors": b"\0" * 8})}),
        RecordDict({"parcel": ConfigRecord({"kind": "train", "facts": "{}", "tensors": b"\xff" * 40})}),
    ],
)
def test_a_damaged_message_is_one_line(record):
    with pytest.raises(FedchordError, match="damaged") as caught:
        unpack(record, 1000)
    assert "\n" not in str(caught.value)


def test_clients_are_asked_by_their_number_and_refusals_reach_both_sides():
    grid, lines = Grid(), []
    grid.add(70, says(1))
    grid.add(80, says(0))
    grid.add(90, says(0))  # the second that says so
    grid.add(91, says(2, plan="xyz"))
    grid.add(92, says(5))
    transport = GridTransport(grid, 3, EXPECTED, say=lines.append)
    assert settled(transport) == {0, 1}
    assert len(lines) == 3 and any("another plan (xyz)" in line for line in lines)
    refused = {node: parcel.facts for node, kind, parcel in grid.told if kind == "refused"}
    assert set(refused) == {90, 91, 92} and [refused[node]["final"] for node in (90, 91, 92)] == [False, True, True]
    answers = transport.ask("train", {c: Parcel({"x": torch.full((2,), float(c))}) for c in (0, 1)}, 1.0)
    assert {c: p.facts["by"] for c, p in answers.parcels.items()} == {0: 0, 1: 1} and not answers.missing
    assert transport.received == transport.sent == 16


def test_a_key_decides_which_client_a_node_may_be():
    grid, lines = Grid(), []
    grid.add(7, says(1), key=b"key of 1")
    grid.add(8, says(1), key=b"key of 0")
    grid.add(9, says(0), key=b"nobody's")
    transport = GridTransport(grid, 2, EXPECTED, {b"key of 0": 0, b"key of 1": 1}, say=lines.append)
    assert settled(transport) == {1}
    assert sorted(lines) == [
        "refused a node: it says it is client 1, but its key is that of client 0",
        "refused a node: its key is not registered",
    ]
    assert not [1 for node, kind, _ in grid.told if node == 9 and kind == "hello"]


def test_who_went_and_came_again_is_asked_anew():
    grid = Grid()
    grid.add(7, says(0))
    transport = GridTransport(grid, 2, EXPECTED)
    assert settled(transport) == {0}
    grid.add(7, says(1), since="tomorrow")
    assert settled(transport) == {1}


def test_lost_clients_are_asked_again_and_late_answers_dropped():
    grid = Grid()
    tries: list[str] = []

    def shaky(kind, parcel):
        tries.append(kind)
        return says(0)(kind, parcel) if kind == "hello" or len(tries) > 3 else Error(5, "gone")

    grid.add(7, shaky)
    grid.add(8, lambda kind, parcel: says(1)(kind, parcel) if kind == "hello" else None)
    transport = GridTransport(grid, 2, EXPECTED)
    assert settled(transport) == {0, 1}
    first = transport.ask("train", {0: Parcel(), 1: Parcel()}, 0.5)
    assert set(first.parcels) == {0} and first.missing == {1: "late"} and tries.count("train") == 3
    late = next(iter(transport._late))
    grid.nodes[8].answer = says(1, which="new")
    old = Message(pack("train", Parcel({}, {"by": "old"})), dst_node_id=8, message_type="query")
    old.metadata.__dict__["_message_id"] = late
    grid.replies[late] = [Message(pack("train", Parcel({}, {"by": "old"})), reply_to=old)]
    second = transport.ask("train", {1: Parcel()}, 0.5)
    assert second.parcels[1].facts["by"] == 1 and not transport._late


def test_refusals_and_garbage_are_not_asked_again():
    grid = Grid()
    asked = {"refused": 0, "garbage": 0}

    def refuses(kind, parcel):
        asked["refused"] += kind == "train"
        return says(0)(kind, parcel) if kind == "hello" else pack("refused", Parcel({}, {"reason": "not mine"}))

    def damaged(kind, parcel):
        asked["garbage"] += kind == "train"
        return says(1)(kind, parcel) if kind == "hello" else RecordDict({})

    grid.add(7, refuses)
    grid.add(8, damaged)
    transport = GridTransport(grid, 3, EXPECTED)
    assert settled(transport) == {0, 1}
    answers = transport.ask("train", {0: Parcel(), 1: Parcel(), 2: Parcel()}, 0.3)
    assert answers.missing[0] == "refused: not mine" and answers.missing[1].startswith("garbage: a message is damaged")
    assert answers.missing[2] == "lost" and asked == {"refused": 1, "garbage": 1}


def test_a_node_that_comes_back_within_the_round_is_asked_again():
    grid = Grid()

    def dies(kind, parcel):
        if kind != "hello":
            grid.add(7, says(0), since="later")  # killed with the message, and here again with another session
            return None
        return says(0)(kind, parcel)

    grid.add(7, dies)
    transport = GridTransport(grid, 1, EXPECTED)
    assert settled(transport) == {0}
    assert transport.ask("train", {0: Parcel()}, 2.0).parcels[0].facts["by"] == 0


def test_where_files_are_is_said_at_home_alone():
    class Full:
        def hello(self):
            return Parcel()

        def answer(self, kind, parcel):
            raise FedchordError("/srv/ward 7/memory/after-1.safetensors cannot be written (No space left on device)")

    lines = []
    kind, answer = reply(Full(), "train", Parcel(), lines.append)
    assert lines[0].startswith("not answered: /srv/ward 7/memory/after-1.safetensors cannot")
    assert kind == "refused" and "srv" not in answer.facts["reason"] and "memory" not in answer.facts["reason"]
    assert answer.facts["reason"].endswith("after-1.safetensors cannot be written (No space left on device)")
