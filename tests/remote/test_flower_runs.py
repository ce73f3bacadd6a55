"""Whole federations over Flower by the commands, in real processes: equal to the simulator bit for bit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")
if not os.environ.get("FEDCHORD_FLOWER"):
    pytest.skip("processes of Flower: FEDCHORD_FLOWER=1 asks for them", allow_module_level=True)

from helpers.federated import ROWS, Federated
from helpers.flower import Joined, joined
from helpers.small_disk import free, leave

from fedchord.attacks.attack import Attack
from fedchord.experiments.run import execute
from fedchord.remote.settings import read_party

ALL = {
    "superfed-mm": {"method": "superfed-mm"},
    "aaggff-s-fedadam": {"method": "aaggff-s", "server": "fedadam"},
    "aaggff-d": {"method": "aaggff-d", "cohort": 2},
    "scaffold": {"method": "scaffold"},
    "fedevg": {"method": "fedevg", "model": None},
}
SHORT = ["superfed-mm"]
LONG = os.environ["FEDCHORD_FLOWER"] == "all"
long = pytest.mark.skipif(not LONG, reason="FEDCHORD_FLOWER=all asks for it")


@pytest.mark.parametrize("name", ALL if LONG else SHORT)
def test_a_federation_over_tls_is_the_simulation(name, tmp_path):
    made = Federated(tmp_path, ALL[name], present=1.0)
    try:
        for client in range(3):
            made.join(client)
        server = made.serve()
        summary = made.simulate()
        assert made.wait(server, 300) == 0, made.logs()
        made.assert_same(summary)
    finally:
        made.end()


@long
def test_a_hostile_party_over_tls_is_the_simulated_one_and_a_defence_holds(tmp_path):
    """A party's own process turns its update round, five times as long: the bits of the simulation in the same attack,
    with a model that is good behind the geometric median and useless without."""
    attack = {"attack": "sign-flip", "attack.share": 0.34, "attack.scale": 5.0}
    plan = {"method": "fedavg", "mixing": "geometric-median", "rounds": 5, "lr": 0.3}
    made = Federated(tmp_path, plan, present=1.0, rows=ROWS | {"split": "iid"}, played=attack)
    (wrong,) = Attack("sign-flip", 0.34).hostile(made.config.seed, 3)
    client = ["helpers.hostile_node", "sign-flip", "5"]
    hostile = Joined(read_party(tmp_path / made.names[wrong] / "node.toml"), client=client)
    try:
        for other in {0, 1, 2} - {wrong}:
            made.join(other)
        with joined(hostile):
            server = made.serve()
            good = made.simulate()["metrics"]["top1"]["mean"]
            assert made.wait(server, 300) == 0, made.logs()
        made.assert_same_state()
        bare = execute(made.config.with_values(mixing="by-size", out=None))["metrics"]["top1"]["mean"]
        assert good > 0.8 and bare < 0.4, (good, bare)
    finally:
        made.end()


@long
def test_nodes_and_server_killed_on_the_way(tmp_path):
    """kill -9 of a client process, of a SuperNode, of the SuperLink and of the server: the same bits in the end."""
    made = Federated(tmp_path, {"method": "scaffold", "rounds": 8}, deadline=100.0)
    try:
        for client in range(3):
            made.join(client)
        server = made.serve()
        made.until(lambda: made.rounds_done >= 1, 150)
        os.kill(made.pid_of(0, "fedchord.remote.attending"), signal.SIGKILL)
        made.until(lambda: made.rounds_done >= 2, 150)
        os.kill(made.pid_of(1, "fedchord.remote.flower_node"), signal.SIGKILL)
        made.until(lambda: made.rounds_done >= 3, 200)
        os.kill(made.pid_of(3, "fedchord.remote.flower_link"), signal.SIGKILL)
        made.until(lambda: made.rounds_done >= 5, 200)
        server.kill()
        made.wait(server, 10)
        assert made.rounds_done < 8
        summary = made.simulate()
        assert made.wait(made.serve("--resume"), 250) == 0, made.logs()
        assert made.rounds_done == 8
        made.assert_same(summary)
    finally:
        made.end()


def cohorts(made):
    path = made.folder / "out" / "rounds.jsonl"
    return [json.loads(line)["cohort"] for line in path.read_text().splitlines()] if path.exists() else []


@long
def test_a_late_node_and_one_that_cannot_write_do_not_stop_the_others(tmp_path):
    """A party that comes late takes part from then on; one that cannot write says so and does not begin."""
    made = Federated(tmp_path, {"method": "scaffold", "rounds": 200}, minimum=0.6, deadline=40.0)
    full = tmp_path / made.names[1] / "memory"
    full.write_text("a file in its place: nothing can be written there")
    try:
        made.join(0)
        refused = made.join(1)
        server = made.serve()
        assert made.wait(refused, 100) == 2
        assert "cannot be written" in (tmp_path / "join-1.log").read_text()
        full.unlink()
        made.join(1)
        made.until(lambda: made.rounds_done >= 2, 200)
        made.join(2)
        made.until(lambda: [0, 1, 2] in cohorts(made), 300)
        server.terminate()  # after its round, with a checkpoint
        assert made.wait(server, 60) == 130, made.logs()
        assert "stopped after round" in (tmp_path / "serve-2.log").read_text()
        assert cohorts(made)[0] == [0, 1] and len(list((tmp_path / "out" / "checkpoints").iterdir())) > 0
    finally:
        made.end()


@long
def test_a_full_disk_at_a_node_and_a_server_whose_nodes_are_gone(tmp_path):
    """A node on a real file system that fills up is left out, says so, and is back when there is room. In the end the
    nodes go first: the server, which waits for them, ends soon when it is told to."""
    made = Federated(tmp_path, {"method": "scaffold", "rounds": 500}, minimum=0.6, deadline=40.0)
    try:
        others = [made.join(0), made.join(2)]
        small = made.join_on_small_disk(1, megabytes=4)
        server = made.serve()
        made.until(lambda: cohorts(made)[-1:] == [[0, 1, 2]], 200)
        disk = Path(f"/proc/{small.pid}/root{tmp_path / made.names[1]}")
        leave(disk, 0)
        begun = made.rounds_done
        made.until(lambda: cohorts(made)[begun:].count([0, 2]) >= 2, 200)
        log = tmp_path / "join-2.log"
        assert "cannot be written (No space left on device)" in log.read_text(), made.logs()
        free(disk)
        begun = made.rounds_done
        made.until(lambda: [0, 1, 2] in cohorts(made)[begun:], 200)
        assert all("\n" not in line and json.loads(line) for line in (disk / "audit.jsonl").read_text().splitlines())
        assert small.poll() is None and "started again" not in log.read_text()
        for node in (*others, small):
            node.terminate()
        for node in (*others, small):
            made.wait(node, 60)
        told = time.monotonic()
        server.terminate()
        assert made.wait(server, 60) == 130, made.logs()
        assert time.monotonic() - told < 30  # ten seconds for the round, and what the processes need to end
        last = (tmp_path / "serve-3.log").read_text().splitlines()[-1]
        at_once = f"stopped at once; the last checkpoint is of round {made.rounds_done};"
        assert last.startswith((at_once, f"stopped after round {made.rounds_done} of 500;")), last
    finally:
        made.end()


@long
def test_the_plain_app_runs_by_flwr_run(tmp_path):
    """For people who run Flower: their SuperLink and SuperNodes, and `flwr run` on our app folder."""
    from helpers.plain_flower import commands, flower_of_others

    from fedchord.remote.flower_app import write_app

    made = Federated(tmp_path, {"method": "superfed-mm", "rounds": 1}, secure=False, deadline=120.0, wait=300.0)
    summary = made.simulate()
    with flower_of_others(made) as env:
        write_app(tmp_path / "app")
        settings = f'federation="{tmp_path}/fed.toml"'
        words = [f"{commands()}/flwr", "run", str(tmp_path / "app"), "ours", "--run-config", settings]
        started = subprocess.run(words, env=env, capture_output=True, text=True, timeout=90)
        assert "Successfully started run" in started.stdout + started.stderr, started
        made.until(lambda: (tmp_path / "out" / "summary.json").exists(), 600)
    made.assert_same(summary)


@long
def test_without_keys_where_it_is_asked_for_and_the_table_in_a_terminal(tmp_path):
    """`serve --insecure` in a terminal of 80 columns and `join --insecure`: the simulator's bits, and a table."""
    made = Federated(tmp_path, {"method": "aaggff-s", "rounds": 2}, secure=False)
    try:
        for client in range(3):
            made.start("join", str(tmp_path / made.names[client] / "node.toml"), "--insecure")
        server, screen = made.in_terminal("serve", str(tmp_path / "fed.toml"), "--insecure")
        summary = made.simulate()
        assert made.wait(server, 300) == 0, made.logs()
        made.assert_same(summary)
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen())
        last = shown[shown.rindex("aaggff-s: round 2 of 2") :].splitlines()
        rows = [line for line in last if "party" in line and "│" in line]
        assert len(rows) == 3 and all("here" in row and "took part" in row for row in rows)
        assert sum("(worst)" in row for row in rows) == 1 and "kB up" in last[0]
        assert all(len(line) <= 80 for line in last if "│" in line or "━" in line)
        assert re.search(r"party\d │ here │ +│ +│ +│\r?\n", shown)  # who came was seen before the first round
    finally:
        made.end()
