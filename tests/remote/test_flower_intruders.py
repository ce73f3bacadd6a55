"""Who may not take part, and what may not be sent: refused by real processes, with a line on both sides."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl

import pytest

pytest.importorskip("flwr")
if os.environ.get("FEDCHORD_FLOWER") != "all":
    pytest.skip("processes of Flower: FEDCHORD_FLOWER=all asks for them", allow_module_level=True)

from helpers.federated import Federated
from helpers.flower import FACTS, Joined, federation, joined, party, until

from fedchord.remote.parcel import Parcel
from fedchord.remote.processes import Child, free_port
from fedchord.remote.serving import flower_transport
from fedchord.remote.settings import read_party

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
SECONDS = 120.0
MEGABYTE = 2**20


def said(lines, text):
    return any(text in line for line in lines)


def test_no_key_another_version_and_too_much_at_once(tmp_path):
    """A node without a key, one of another version, and messages larger than any that is expected."""
    fed = federation(tmp_path, 2, largest=2.0)
    lines: list[str] = []
    good, old = Joined(party(fed, 0)), Joined(party(fed, 1), {"version": "0.0.1"})
    with joined(good, old), flower_transport(fed, FACTS, say=lines.append) as transport:
        until(lambda: transport.clients() == {0} and old.error, SECONDS, f"a client and a refusal, {lines}")
        told = "client 1 has another version (0.0.1) than the server (1)"
        assert old.said(told) and said(lines, f"refused a node: {told}")
        _no_key(fed, transport, lines)
        _large_request(fed, transport, lines)
        _large_answers(transport, good, lines)
        assert transport.clients() == {0}


def _no_key(fed, transport, lines):
    options = ["--superlink", fed.server.address, "--root-certificates", str(fed.tls.ca), "--isolation", "process"]
    options += ["--host", "127.0.0.1", "--port", str(free_port())]
    child = Child("fedchord.remote.flower_node", options, fed.folder / "nobody.log")
    try:
        until(lambda: child.code is not None, SECONDS, f"the end of a node without a key, {child.printed()}")
    finally:
        child.end()
    assert "Failed to initialize the connection" in child.printed()
    until(lambda: transport.clients() and said(lines, "it has no key that was registered"), 10, f"a line, {lines}")


def _large_request(fed, transport, lines):
    context = ssl.create_default_context(cafile=fed.tls.ca)
    raw = socket.create_connection(("127.0.0.1", fed.server.port))
    with raw, context.wrap_socket(raw, server_hostname="127.0.0.1") as secure:
        secure.sendall(b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in secure.recv(200)
    until(lambda: transport.clients() and said(lines, "a message of 99999999999 bytes"), 10, f"a line, {lines}")


def _large_answers(transport, node, lines):
    """One that is larger than `largest`, which the server throws away, and one that the door does not let in."""
    answers = transport.ask("grow", {0: Parcel({}, {"bytes": 3 * MEGABYTE})}, SECONDS)
    assert answers.missing[0].startswith("garbage: a message of 31") and "the limit of 2097152" in answers.missing[0]
    transport.tell("notice", {0: Parcel({}, {"reason": answers.missing[0]})})
    until(lambda: node.said("the server did not take an answer: garbage: a message of"), 30, f"a line, {node.lines}")
    answers = transport.ask("grow", {0: Parcel({}, {"bytes": 40 * MEGABYTE})}, 20.0)
    assert answers.missing == {0: "late"}
    until(
        lambda: transport.clients() and said(lines, "an answer of more than the 2097152 bytes"), 10, f"a line, {lines}"
    )
    until(lambda: node.said("it is larger than the server allows"), 30, f"a line, {node.lines}")
    assert transport.ask("add", {0: Parcel({}, {})}, SECONDS).parcels.keys() == {0}  # and goes on


def test_an_answer_of_an_old_round_is_not_taken(tmp_path):
    """A party that replays its first answer is left out of every later round, and both sides say so."""
    made = Federated(tmp_path, {"method": "fedavg"}, minimum=0.6, present=1.0, attempts=1)
    replaying = Joined(read_party(tmp_path / made.names[2] / "node.toml"), client=["helpers.replaying_node"])
    try:
        for client in range(2):
            made.join(client)
        with joined(replaying):
            assert made.wait(made.serve(), 400) == 0, made.logs()
            until(lambda: replaying.said("the server did not take an answer: another round: 1"), 30, "a line")
        lines = [json.loads(line) for line in (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()]
        late = [line["missing"] for line in lines if 2 not in line["cohort"]]
        assert late and set(late[-1].values()) == {"another round: 1"}
        log = (tmp_path / "serve-2.log").read_text()
        assert "round 3: the answer of party2 is not taken (another round: 1)" in log
    finally:
        made.end()


def test_an_old_round_that_is_asked_again_is_refused(tmp_path):
    """A server with an old checkpoint asks for rounds whose memory nodes no longer have: they refuse, and say so."""
    made = Federated(tmp_path, {"method": "scaffold", "rounds": 7, "eval_every": 0}, attempts=1, deadline=60.0)
    out, old = tmp_path / "out", tmp_path / "old"
    try:
        for client in range(3):
            made.join(client)
        first = made.serve()
        made.until(lambda: made.rounds_done >= 1, 300)
        first.kill()
        made.wait(first, 10)
        shutil.copytree(out, old)
        assert made.wait(made.serve("--resume"), 500) == 0, made.logs()
        shutil.rmtree(out)
        old.rename(out)
        begun = made.rounds_done
        assert begun < 4
        again = made.serve("--resume")
        assert made.wait(again, 400) == 2, made.logs()
        told = f"the client's memory after round {begun} is gone (kept: after rounds 5, 6, 7)"
        log = (tmp_path / "serve-5.log").read_text()
        assert told in log.splitlines()[-1] and f"round {begun + 1}: only 0 of 3 clients answered" in log
        for client in range(3):
            assert f"not answered: memory: {told}" in (tmp_path / f"join-{client}.log").read_text()
            refused = (tmp_path / made.names[client] / "audit.jsonl").read_text().splitlines()[-1]
            assert json.loads(refused)["way"] == "refused"
    finally:
        made.end()
