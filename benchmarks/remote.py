"""Seconds and bytes of a round over Flower, beside the simulator's, and where the time goes.

    .venv/bin/python benchmarks/remote.py [--rounds 10] [--models twonn,twocnn]

A server and three parties are real processes on this machine, with TLS and node keys. Parties hold synthetic pictures
of MNIST's shape, 200 rows each, one epoch in batches of 20. Needs Flower (extra `flower`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedchord.data import outline
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute
from fedchord.remote import certificates, flower, serving
from fedchord.remote.live import Live
from fedchord.remote.plan import ELSEWHERE, Plan, facts
from fedchord.remote.processes import free_port
from fedchord.remote.settings import read_fed

PARTIES = ("a", "b", "c")
ROWS = 250


def write(folder: Path, model: str, rounds: int) -> tuple[RunConfig, Path]:
    """A federation's files; the same run for the simulator."""
    draw = np.random.default_rng(0)
    owner = np.repeat(np.arange(3), ROWS)
    x = draw.integers(0, 256, (3 * ROWS, 1, 28, 28), dtype=np.uint8)
    np.savez(folder / "rows.npz", x=x, y=draw.integers(0, 10, 3 * ROWS), client=owner)
    plan = {"method": "fedavg", "model": model, "rounds": rounds, "cohort": "all", "seed": 1, "epochs": 1, "batch": 20}
    plan |= {"lr": 0.01, "eval_every": rounds}
    data = {"data": str(folder / "rows.npz"), "split": "natural"}
    config = RunConfig.from_values(data | plan | {"executor": "serial", "out": str(folder / "simulated")})
    known = replace(facts(config.federation()), client_names=PARTIES)
    outline.save(known, folder / "data.safetensors")
    given = {key: value for key, value in plan.items() if key not in ELSEWHERE}
    (folder / "plan.json").write_text(Plan.of(given, known).text())
    ca = certificates.authority("bench")
    own = certificates.server_certificate(ca, "127.0.0.1")
    keys = {name: certificates.node_key(name) for name in PARTIES}
    for name, content in {"ca.pem": ca.shown, "server.pem": own.shown, "server.key": own.key}.items():
        (folder / name).write_bytes(content)
    nodes = {name: {"key": " ".join(pair.shown.decode().split()[:2])} for name, pair in keys.items()}
    (folder / "nodes.toml").write_text(tomli_w.dumps(nodes))
    port = free_port()
    tls = {"ca": "ca.pem", "certificate": "server.pem", "key": "server.key", "nodes": "nodes.toml"}
    server = {"port": port, "minimum": 1.0, "deadline": 120.0}
    fed = {"name": "bench", "clients": list(PARTIES), "plan": given, "server": server, "tls": tls}
    (folder / "fed.toml").write_text(tomli_w.dumps(fed))
    for client, name in enumerate(PARTIES):
        home = folder / name
        home.mkdir()
        (home / "node.key").write_bytes(keys[name].key)
        (home / "node.key").chmod(0o600)
        mine = owner == client
        np.savez(home / "rows.npz", x=x[mine], y=np.load(folder / "rows.npz")["y"][mine])
        party = {"name": name, "client": client, "server": f"127.0.0.1:{port}", "data": {"data": "rows.npz"}}
        party |= {
            "plan": "../plan.json",
            "outline": "../data.safetensors",
            "tls": {"ca": "../ca.pem", "key": "node.key"},
        }
        (home / "node.toml").write_text(tomli_w.dumps(party))
    return config, folder / "fed.toml"


class Clock:
    """Seconds by what they were spent on, at the server."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.laps: list[dict[str, float]] = []

    def lap(self, line: dict[str, Any]) -> None:
        """A round has ended."""
        self.laps.append(dict(self.spent))

    def rounds(self) -> dict[str, float]:
        """The median of a round, without the first, which waits for the nodes, and the last, which evaluates."""
        pairs = list(zip(self.laps[:-2], self.laps[1:-1], strict=True))
        names = self.laps[-1].keys()
        each = {name: [after.get(name, 0.0) - before.get(name, 0.0) for before, after in pairs] for name in names}
        parts = zip(*(seconds for name, seconds in each.items() if name != "asking"), strict=True)
        each["outside sleeps"] = [sum(part) for part in parts]
        each["sleeping"] = [whole - out for whole, out in zip(each["asking"], each["outside sleeps"], strict=True)]
        return {name: statistics.median(seconds) for name, seconds in each.items()}

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                self.spent[name] += time.perf_counter() - start

        return timed


@contextmanager
def parties(folder: Path) -> Iterator[None]:
    """Three `fedchord join`."""
    made = []
    for name in PARTIES:
        with (folder / f"{name}.log").open("wb") as log:
            words = [sys.executable, "-m", "fedchord", "join", str(folder / name / "node.toml")]
            env = os.environ | {"OMP_NUM_THREADS": "1"}
            made.append(subprocess.Popen(words, stdout=log, stderr=log, env=env))
    try:
        yield
    finally:
        for process in made:
            process.send_signal(signal.SIGTERM)
        for process in made:
            process.wait(30)


def measure(model: str, rounds: int) -> dict[str, Any]:
    """One federation and its simulation."""
    with tempfile.TemporaryDirectory() as place:
        folder, clock = Path(place), Clock()
        config, file = write(folder, model, rounds)
        flower.GridTransport._push = clock.around("sending", flower.GridTransport._push)  # type: ignore[method-assign]
        flower.GridTransport._come = clock.around("looking and receiving", flower.GridTransport._come)  # type: ignore[method-assign]
        flower.GridTransport._here = clock.around("who is here", flower.GridTransport._here)  # type: ignore[method-assign]
        flower.GridTransport.ask = clock.around("asking", flower.GridTransport.ask)  # type: ignore[method-assign]
        with parties(folder):
            start = time.perf_counter()
            live = Live(PARTIES, (folder / "serve.log").open("w"))
            live.round = lambda line: clock.lap(line)  # type: ignore[method-assign]
            serving.serve_fed(read_fed(file), live=live)
            whole = time.perf_counter() - start
        lines = [json.loads(line) for line in (folder / "out" / "rounds.jsonl").read_text().splitlines()]
        execute(config)
        known = [json.loads(line) for line in (folder / "simulated" / "rounds.jsonl").read_text().splitlines()]
        audit = [json.loads(line) for line in (folder / "a" / "audit.jsonl").read_text().splitlines()]
        return {
            "model": model,
            "flower": [line["seconds"] for line in lines],
            "simulator": [line["seconds"] for line in known],
            "bytes": (lines[-1]["bytes_up"], lines[-1]["bytes_down"]),
            "simulated bytes": (known[-1]["bytes_up"], known[-1]["bytes_down"]),
            "whole": whole,
            "spent": clock.rounds(),
            "audit": len(audit),
        }


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=10, help="at least 3")
    given.add_argument("--models", default="twonn,twocnn")
    asked = given.parse_args()
    print("| model | Flower, median s a round | 10 to 90 % | simulator, median | bytes up, down a round | simulator |")
    print("|---|---|---|---|---|---|")
    for model in asked.models.split(","):
        found = measure(model, asked.rounds)
        later = found["flower"][1:] or found["flower"]
        low, high = np.quantile(later, [0.1, 0.9])
        up, down = found["bytes"]
        same = "the same" if found["bytes"] == found["simulated bytes"] else str(found["simulated bytes"])
        simulated = statistics.median(found["simulator"])
        print(
            f"| {model} | {statistics.median(later):.2f} (first {found['flower'][0]:.1f}) | {low:.2f} to {high:.2f} "
            f"| {simulated:.3f} | {up:,}, {down:,} | {same} |",
            flush=True,
        )
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found["spent"].items())
        print(f"  a round of {model} at the server: {told}", file=sys.stderr)
        print(f"  start to end {found['whole']:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
