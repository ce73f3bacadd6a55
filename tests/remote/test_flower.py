"""Parcels over Flower between real processes on this machine, with TLS and node keys."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import time
from dataclasses import replace

import pytest
import torch

pytest.importorskip("flwr")
if not os.environ.get("FEDCHORD_FLOWER"):
    pytest.skip("processes of Flower: FEDCHORD_FLOWER=1 asks for them", allow_module_level=True)

from flwr.proto.message_pb2 import PushObjectResponse
from helpers.flower import FACTS, Joined, federation, joined, party, until

from fedchord.remote.parcel import Parcel
from fedchord.remote.serving import flower_transport

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
SECONDS = 60.0
EXPIRY = 80.0
"""Seconds after which a SuperNode has answered a task that nobody works at (two heartbeats of 30)."""


def test_three_nodes_failures_and_intruders(tmp_path):
    fed = federation(tmp_path, 3)
    lines: list[str] = []
    others = [Joined(party(fed, 0)), Joined(party(fed, 1)), Joined(party(fed, 2))]
    with joined(*others), flower_transport(fed, FACTS, say=lines.append) as transport:
        until(lambda: transport.clients() == {0, 1, 2}, SECONDS, f"three clients, {lines}")
        model = {"theta": torch.randn(50_000, generator=torch.Generator().manual_seed(0))}
        pids = []
        for turn in range(2):
            answers = transport.ask("add", {i: Parcel(model, {"by": turn}) for i in range(3)}, SECONDS)
            assert not answers.missing
            for client, parcel in answers.parcels.items():
                assert torch.equal(parcel.tensors["theta"], model["theta"] + (client + turn))
            pids.append({client: parcel.facts["pid"] for client, parcel in answers.parcels.items()})
        assert pids[0] == pids[1]  # the client process lived on

        failing = {0: Parcel({}, {"how": "disk"}), 1: Parcel({}, {"how": "no"})}
        answers = transport.ask("fail", failing, SECONDS)
        assert "No space left" in answers.missing[0] and answers.missing[1] == "refused: not mine"

        large = {"theta": torch.zeros(4_000_000)}  # the toy's limit is 10 MB
        answers = transport.ask("add", {2: Parcel(large)}, SECONDS)
        assert "larger than the limit" in answers.missing[2]

        assert transport.ask("slow", {0: Parcel({}, {"seconds": 4.0})}, 2.0).missing == {0: "late"}
        answers = transport.ask("add", {0: Parcel({"x": torch.ones(2)}, {"by": 5})}, SECONDS)
        assert answers.parcels[0].tensors["x"].tolist() == [6.0, 6.0]  # not the late one

        _kill_a_client(transport, others[1], tmp_path / "died")
        _intruders(fed, transport, lines)


def _kill_a_client(transport, other, mark):
    """A client process that dies in the middle of a message: it comes back, and is asked again."""
    answers = transport.ask("die", {1: Parcel({"x": torch.ones(1)}, {"mark": str(mark)})}, SECONDS)
    assert mark.exists() and answers.parcels[1].tensors["x"].tolist() == [2.0], answers.missing
    assert other.said("has ended (code -9)")


def _intruders(fed, transport, lines):
    """Whoever may not come is told so, and the server says it."""
    _speaks_plain_text(fed, transport, lines)
    _steers(fed)
    stranger = Joined(party(fed, 0, "stranger"))
    with joined(stranger):
        until(lambda: stranger.said("not registered"), SECONDS, f"the stranger's line, {stranger.lines}")
        until(lambda: transport.clients() and _said(lines, "its key is not registered"), 5, f"a line, {lines}")
    assert transport.clients() == {0, 1, 2}


def _speaks_plain_text(fed, transport, lines):
    with socket.create_connection(("127.0.0.1", fed.server.port), timeout=5) as plain:
        plain.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert not plain.recv(64).startswith(b"HTTP/1.1 200")
    until(lambda: transport.clients() and _said(lines, "plain text"), 10, f"a line about plain text, {lines}")


def _steers(fed):
    """Nobody without the secret of the run folder may register keys or stop runs, though TLS lets everybody in."""
    context = ssl.create_default_context(cafile=fed.tls.ca)
    raw = socket.create_connection(("127.0.0.1", fed.server.port))
    with raw, context.wrap_socket(raw, server_hostname="127.0.0.1") as secure:
        secure.sendall(b"POST /v1/control/list-nodes HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert b" 403 " in secure.recv(200)


def _said(lines, text):
    return any(text in line for line in lines)


def test_wrong_plan_wrong_client_and_a_second_one_are_refused(tmp_path):
    fed = federation(tmp_path, 3)
    lines: list[str] = []
    plan = Joined(party(fed, 0), {"plan": "xyz"})
    client = Joined(replace(party(fed, 1), client=2))
    good = Joined(party(fed, 2))
    with joined(plan, client, good), flower_transport(fed, FACTS, say=lines.append) as transport:
        until(lambda: transport.clients() == {2}, SECONDS, f"client 2, {lines}")
        until(lambda: transport.clients() and plan.error and client.error, SECONDS, f"two refusals, {lines}")
        assert plan.said("client 0 has another plan (xyz) than the server (abc)") and _said(lines, "another plan")
        assert client.said("it says it is client 2, but its key is that of client 1")
        twice = Joined(party(fed, 2, "party2"))  # the same key a second time
        with joined(twice):
            until(lambda: twice.said("old session has not ended"), SECONDS, f"a line, {twice.lines}")
        assert transport.clients() == {2}


@pytest.mark.skipif(os.environ["FEDCHORD_FLOWER"] != "all", reason="FEDCHORD_FLOWER=all asks for it")
def test_a_superlink_that_was_killed_is_started_again_and_nodes_come_back(tmp_path):
    from fedchord.remote.flower_server import LinkLost

    fed = federation(tmp_path, 2)
    with joined(Joined(party(fed, 0)), Joined(party(fed, 1))):
        with pytest.raises(LinkLost), flower_transport(fed, FACTS) as transport:
            until(lambda: transport.clients() == {0, 1}, SECONDS, "two clients")
            os.kill(transport.child.pid, signal.SIGKILL)
            transport.ask("add", {0: Parcel()}, SECONDS)
        with flower_transport(fed, FACTS) as transport:
            until(lambda: transport.clients() == {0, 1}, SECONDS, "two clients again")
            answers = transport.ask("add", {i: Parcel({"x": torch.ones(1)}) for i in range(2)}, SECONDS)
            assert {i: parcel.tensors["x"].tolist() for i, parcel in answers.parcels.items()} == {0: [1.0], 1: [2.0]}


@pytest.mark.skipif(os.environ["FEDCHORD_FLOWER"] != "all", reason="FEDCHORD_FLOWER=all asks for it")
def test_a_message_that_was_never_whole_does_not_hold_a_node(tmp_path, monkeypatch):
    """A server ends while a node receives a message: the node waits for its pieces, and then serves the next one."""
    fed = federation(tmp_path, 1)
    node = Joined(party(fed, 0))
    with joined(node):
        with flower_transport(fed, FACTS) as transport:
            until(lambda: transport.clients() == {0}, SECONDS, "a client")
            runtime = transport._grid._grid._runtime_client
            monkeypatch.setattr(runtime, "PushObject", lambda request: PushObjectResponse(stored=True))
            assert transport.ask("add", {0: Parcel({"x": torch.ones(1)})}, 6.0).missing == {0: "late"}
        with flower_transport(fed, FACTS) as transport:
            until(lambda: transport.clients() == {0}, SECONDS, f"the client again, {node.lines}")
            answers = transport.ask("add", {0: Parcel({"x": torch.ones(1)}, {"by": 1})}, SECONDS)
            assert answers.parcels[0].tensors["x"].tolist() == [2.0]
            end, by = time.monotonic() + EXPIRY, 1
            while time.monotonic() < end:  # and no answer comes one question too late
                by += 1
                answers = transport.ask("add", {0: Parcel({"x": torch.ones(1)}, {"by": by})}, SECONDS / 4)
                assert answers.parcels[0].tensors["x"].tolist() == [1.0 + by], (by, node.lines)
                time.sleep(2)
        assert node.said("a message was given up")
