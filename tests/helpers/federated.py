"""A federation of digits on this machine, by the commands `fedchord serve` and `fedchord join` in real processes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from fedchord.data import outline
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute
from fedchord.remote.memory import Versions
from fedchord.remote.plan import ELSEWHERE, Plan, facts
from helpers.flower import federation as secured

ROWS = {"data": "digits", "split": "pathological", "clients": 3}
USUAL = {"rounds": 3, "cohort": "all", "seed": 4, "batch": 20, "epochs": 1, "lr": 0.05, "model": "logreg"}
QUICK = {"deadline": 30.0, "minimum": 1.0, "wait": 120.0}


class Federated:
    """Folders of a server and three parties, their processes, and the same run in the simulator, with what is only
    `played` there beside the plan."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        secure: bool = True,
        rows: dict[str, Any] = ROWS,
        played: dict[str, Any] | None = None,
        **server: Any,
    ) -> None:
        self.folder, self.rows, fed = folder, rows, secured(folder, 3)
        self.names, self.port = fed.clients, fed.server.port
        given = {key: value for key, value in (USUAL | settings).items() if value is not None}
        here = {"executor": "serial", "out": str(folder / "simulated")}
        self.config = RunConfig.from_values(rows | given | here | (played or {}))
        known = replace(facts(self.config.federation(), ranges=True), client_names=self.names)
        self.plan = Plan.of({key: value for key, value in given.items() if key not in ELSEWHERE}, known)
        outline.save(known, folder / "data.safetensors")
        (folder / "plan.json").write_text(self.plan.text())
        tls = {name: f"{name}.pem" for name in ("ca",)} | {"certificate": "server.pem", "key": "server.key"}
        file = {"name": "digits", "clients": list(self.names), "plan": given}
        file |= {"server": QUICK | server | {"port": self.port}}
        file |= {"tls": tls | {"nodes": "nodes.toml"}} if secure else {}
        (folder / "fed.toml").write_text(tomli_w.dumps(file))
        for client in range(3):
            self.write_party(client)
        self.processes: list[subprocess.Popen[bytes]] = []

    def write_party(self, client: int, **more: Any) -> Path:
        home = self.folder / self.names[client]
        home.mkdir(exist_ok=True)
        (home / "secret").write_bytes(bytes(32))
        file = {"name": self.names[client], "client": client, "server": f"127.0.0.1:{self.port}", "data": self.rows}
        file |= {"plan": "../plan.json", "outline": "../data.safetensors"} | more
        file |= {"tls": {"ca": "../ca.pem", "key": f"../{self.names[client]}.key"}, "limits": {"log": []}}
        (home / "node.toml").write_text(tomli_w.dumps(file))
        return home / "node.toml"

    # -- processes -------------------------------------------------------------------------------------------------

    def start(self, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [*before, sys.executable, "-m", "fedchord", *words]
        with (self.folder / f"{words[0]}-{len(self.processes)}.log").open("wb") as log:
            made = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        self.processes.append(made)
        return made

    def in_terminal(self, *words: str, columns: int = 80) -> tuple[subprocess.Popen[bytes], Callable[[], str]]:
        """A command in a terminal of its own, and what was written to that."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm-256color"}
        made = subprocess.Popen([sys.executable, "-m", "fedchord", *words], stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        self.processes.append(made)
        seen: list[bytes] = []

        def read() -> None:
            with suppress(OSError):  # the other side is gone
                while data := os.read(ours, 65536):
                    seen.append(data)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()

        def screen() -> str:
            reader.join(5)
            return b"".join(seen).decode(errors="replace")

        return made, screen

    def join(self, client: int) -> subprocess.Popen[bytes]:
        return self.start("join", str(self.folder / self.names[client] / "node.toml"))

    def join_on_small_disk(self, client: int, megabytes: int) -> subprocess.Popen[bytes]:
        """A party whose folder is a file system of its own, which only its processes see; skips where none can be had.

        Others find it under /proc/PID/root.
        """
        home = self.folder / self.names[client]
        mount = f"mount -t tmpfs -o size={megabytes}m tmpfs '{home}'"
        if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False).returncode:
            pytest.skip("no file system can be mounted here")
        copy = f"cp -a '{home}' '{home}-copy' && {mount} && cp -a '{home}-copy'/. '{home}'"
        before = ["unshare", "-m", "sh", "-c", f'{copy} && exec "$@"', "sh"]
        return self.start("join", str(home / "node.toml"), before=before)

    def serve(self, *words: str) -> subprocess.Popen[bytes]:
        return self.start("serve", str(self.folder / "fed.toml"), *words)

    def pid_of(self, process: int, module: str) -> int | None:
        """The process of a party's SuperNode or client, or of a server's SuperLink, by its parent; None if it is not
        there."""
        parent = str(self.processes[process].pid)
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_text().split("\0")
                if module in words and (path / "stat").read_text().rpartition(")")[2].split()[1] == parent:
                    return int(path.name)
            except OSError:
                continue
        return None

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def logs(self) -> str:
        found = [*self.folder.glob("*.log"), *self.folder.glob("*/flower/*.log")]
        return "\n".join(f"== {path}\n{path.read_text()[-1500:]}" for path in sorted(found))

    def wait(self, process: subprocess.Popen[bytes], seconds: float) -> int:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end in {seconds:g} s\n{self.logs()}") from None

    def until(self, ready: Callable[[], Any], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, f"waited {seconds:g} s in vain\n{self.logs()}"
            time.sleep(0.1)

    @property
    def rounds_done(self) -> int:
        path = self.folder / "out" / "rounds.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    # -- what must be equal ----------------------------------------------------------------------------------------

    def simulate(self) -> dict[str, Any]:
        return execute(self.config)

    def assert_same_state(self) -> None:
        """Global state and private models are the simulator's, bit for bit."""
        memory = ClientMemory()
        here = checkpoint.load(self.folder / "out" / "checkpoints", ClientMemory())
        there = checkpoint.load(self.folder / "simulated" / "checkpoints", memory)
        assert here is not None and there is not None
        for group in ("broadcast", "mixing", "server"):
            mine, known = getattr(here.state, group), getattr(there.state, group)
            assert mine.keys() == known.keys()
            assert all(torch.equal(mine[name], known[name]) for name in mine), group
        for client, name in enumerate(self.names):
            kept = Versions(self.folder / name / "memory", self.plan.fingerprint).get(int(here.state.counted[client]))
            known = memory.get(client) or {}
            assert (kept or {}).keys() == known.keys(), name
            assert all(torch.equal(kept[part], known[part]) for part in known), name

    def assert_same(self, summary: dict[str, Any]) -> None:
        """The same, and evaluation and sweep too."""
        self.assert_same_state()
        served = json.loads((self.folder / "out" / "summary.json").read_text())
        known = json.loads(json.dumps(summary))
        assert served["sweep"] == known["sweep"]
        for name, row in known["metrics"].items():  # what does not add up over clients cannot be pooled
            column = {part: value for part, value in row.items() if served["metrics"][name].get(part) is not None}
            assert set(row) - set(column) <= {"pooled"} or all(row[part] is None for part in set(row) - set(column))
            assert column == {part: served["metrics"][name][part] for part in column}, name
        named = {"client": list(self.names)}
        assert served["per_client"] == known["per_client"] | named
