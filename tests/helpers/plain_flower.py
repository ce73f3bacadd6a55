"""Flower as others run it: a SuperLink and SuperNodes of its own commands, that start a process for every message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import flwr

from fedchord.remote.processes import OFFLINE, free_port, listens, wait_until
from helpers.federated import Federated

SOURCE = Path(__file__).parents[2] / "src"


def commands() -> str:
    """The folder of Flower's commands: that of this Python, or of the environment where Flower is."""
    places = [Path(sys.executable).parent, Path(flwr.__file__).parents[4] / "bin"]
    return next(str(place) for place in places if (place / "flwr").exists())


@contextmanager
def flower_of_others(made: Federated) -> Iterator[dict[str, str]]:
    """A SuperLink that Flower's settings call "ours", a SuperNode for every party; the environment for `flwr`."""
    home = made.folder / "flwr-home"
    home.mkdir()
    address = f"127.0.0.1:{made.port}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "ours"\n\n[superlink.ours]\naddress = "{address}"\ninsecure = true\n'
    )
    place = commands()
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | OFFLINE | {"FLWR_HOME": str(home), "PATH": path, "PYTHONPATH": str(SOURCE)}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> None:
        with (made.folder / f"{name}.log").open("wb") as log:
            where = {"stdout": log, "stderr": log, "env": env, "start_new_session": True}
            started.append(subprocess.Popen([f"{place}/{words[0]}", *words[1:]], **where))

    try:
        host = ["--insecure", "--host", "127.0.0.1", "--port"]
        start("link", "flower-superlink", *host, str(made.port), "--database", str(made.folder / "others.db"))
        assert wait_until(lambda: listens("127.0.0.1", made.port), 90), made.logs()
        for name in made.names:
            config = f'party="{made.folder / name / "node.toml"}"'
            words = [*host, str(free_port()), "--superlink", address, "--node-config", config]
            start(f"node-{name}", "flower-supernode", *words)
        yield env
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
