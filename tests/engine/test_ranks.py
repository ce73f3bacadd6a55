"""The executor ranks in real jobs of torchrun, on this machine."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from helpers import ranked
from helpers.torchrun import TESTS, done, job

from fedchord.check import FedchordError
from fedchord.engine.group import Group
from fedchord.engine.ranks import RankMemory
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute

SETTINGS = ["method=superfed-mm", "clients=8", "cohort=4", "model=logreg", "checkpoint_every=1", "seed=3"]


def test_methods_end_with_the_bits_of_serial(tmp_path):
    done(2, TESTS / "helpers" / "ranked.py", tmp_path, *ranked.METHODS)
    ranks = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(2)]
    for name in ranked.METHODS:
        serial = ranked.ended(name, "serial")
        private = [{key for key in rank[name] if key.startswith("client ")} for rank in ranks]
        assert not private[0] & private[1]  # a private state is at one rank only
        assert {key.split()[1] for key in private[1]} <= {"1", "3", "5", "7", "9"}
        assert all(private) or not any(key.startswith("client ") for key in serial)
        for rank in ranks:
            assert serial.keys() - private[0] - private[1] <= rank[name].keys() <= serial.keys(), name
            for key, value in rank[name].items():
                assert torch.equal(value, serial[key]), (name, key)
        assert ranks[0][name].keys() | ranks[1][name].keys() == serial.keys()


def test_a_process_closes_its_connections_before_it_ends(tmp_path):
    """Left open, the threads behind them aborted one process in four on a busy machine."""
    program = tmp_path / "leaves.py"
    program.write_text(
        "import atexit, os, torch.distributed\n"
        "from fedchord.engine.group import group_of\n"
        "def say(line):\n"
        "    os.write(1, f'{line}\\n'.encode())  # in one piece, whatever the other process says\n"
        "atexit.register(lambda: say(f'open: {torch.distributed.is_initialized()}'))  # runs after what came later\n"
        "say(f'processes: {group_of(\"ranks\").size}')\n"
    )
    said = done(2, program)
    assert said.count("processes: 2") == 2 and said.count("open: False") == 2


def results(folder: Path) -> dict[str, object]:
    """What a run measured, and digests of all it would go on from."""
    summary = json.loads((folder / "summary.json").read_text())
    manifest = json.loads((folder / "checkpoints" / "round-000004" / "manifest.json").read_text())
    kept = {client: digest for client, (_, digest) in manifest["memory"].items()}
    return {"metrics": summary["metrics"], "sweep": summary.get("sweep"), "state": manifest["state"], "memory": kept}


def test_a_run_goes_on_with_other_numbers_of_ranks(tmp_path):
    """On two ranks, then its last round again on one and on two; the folder is always that of a serial run."""
    serial, other = tmp_path / "serial", tmp_path / "other"
    execute(RunConfig.from_pairs([*SETTINGS, "rounds=4", "executor=serial", f"out={serial}"]))
    run = ["-m", "fedchord", "run", *SETTINGS, "rounds=4"]
    said = done(2, *run, "executor=ranks", f"out={other}")
    assert said.count("round 4 of 4") == 1  # one process prints
    assert results(other) == results(serial)
    for processes in (1, 2):
        (other / "summary.json").unlink()
        shutil.rmtree(other / "checkpoints" / "round-000004")
        assert "going on after round 3" in done(processes, "-m", "fedchord", "resume", other)
        assert results(other) == results(serial)


def test_a_lost_process_is_one_line_and_the_checkpoint_stays(tmp_path):
    out = tmp_path / "run"
    settings = [*SETTINGS, "rounds=100000", "executor=ranks", f"out={out}"]
    running = job(2, "-m", "fedchord", "run", *settings)
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoints/round-*")) and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        (victim,) = [child for child in children(running.pid) if rank_of(child) == "1"]
        os.kill(victim, signal.SIGKILL)
        _, told = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    assert running.returncode != 0
    (line,) = [line for line in told.splitlines() if line.startswith("error: ")]
    assert "ranks lost a process of the job" in line and f"fedchord resume {out}" in line
    assert "the last checkpoint is of round" in line and list(out.glob("checkpoints/round-*"))


def children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def rank_of(process: int) -> str:
    given = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return dict(entry.split(b"=", 1) for entry in given if b"=" in entry).get(b"RANK", b"").decode()


def test_without_torchrun_it_says_how_to_start():
    with pytest.raises(FedchordError, match=r"^executor: ranks needs torchrun, .*torchrun --nproc-per-node 2 -m fedch"):
        execute(RunConfig.from_pairs([*SETTINGS, "executor=ranks"]))


def test_torchrun_without_ranks_is_refused(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FedchordError, match=r"^run: torchrun started 2 processes, which would all do the same"):
        execute(RunConfig.from_pairs([*SETTINGS, "executor=serial"]))


def test_what_another_rank_keeps_is_not_here():
    memory = RankMemory(Group(1, 2), "cpu")
    memory.scattered = True
    memory.put(3, {"theta": torch.ones(2)}, 0)
    assert memory.clients() == [3] and torch.equal(memory.get(3)["theta"], torch.ones(2)) and memory.get(5) is None
    with pytest.raises(FedchordError, match=r"^executor: what client 4 keeps is at rank 0; this is rank 1$"):
        memory.get(4)
