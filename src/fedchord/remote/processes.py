"""Processes that belong to one of ours: started, watched, ended by their id, and gone when ours is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PREFIX = "fedchord: "
"""Lines of a child that begin with this are meant for people; the rest of what it prints stays in its log."""
MANY = 1000
"""Lines of a child's output that are kept in memory from its beginning, and as many from its end."""
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""So that Flower neither calls home nor installs anything."""


def tell(line: str) -> None:
    """A line for people, from within a child."""
    print(PREFIX + " ".join(line.split()), flush=True)


def live_with_parent() -> None:
    """End this process (SIGTERM) when the one that started it is gone: its pipe to our standard input ends then."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="parent").start()


class Child:
    """A Python module in a process of its own. What it prints is heard here and, as long as there is room, kept in a
    log: a disk that is full neither ends it nor keeps it from being heard."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        self.module, self.log = module, log
        self._printed: list[str] = []
        self._said: deque[str] = deque()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | OFFLINE | {"PYTHONUNBUFFERED": "1"} | dict(env or {}),
            start_new_session=True,  # Ctrl-C is for us; we end our children in order
        )
        self._listener = threading.Thread(target=self._listen, daemon=True, name=f"hears {module}")
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode(errors="replace")
            self._printed.append(text)
            del self._printed[MANY:-MANY]  # a long run prints much: its beginning and its end are kept
            if text.startswith(PREFIX):
                self._said.append(text.removeprefix(PREFIX).rstrip("\r\n"))
            with suppress(OSError), self.log.open("ab") as kept:
                kept.write(line)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended; None while it lives."""
        found = self._process.poll()
        if found is not None:
            self._listener.join(1.0)  # its last words
        return found

    def lines(self) -> list[str]:
        """What it said to people since this was asked last."""
        return [self._said.popleft() for _ in range(len(self._said))]

    def printed(self) -> str:
        """What it printed since it was started: the first lines and the last ones."""
        return "".join(self._printed)

    def end(self, seconds: float = 10.0) -> None:
        """End it: politely, and after so many seconds at once."""
        if self.code is None:
            self._process.terminate()
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._listener.join(1.0)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not self._listener.is_alive():
                stream.close()


def end_all(children: Sequence[Child | None], seconds: float = 10.0) -> None:
    """End them side by side."""
    threads = [threading.Thread(target=child.end, args=(seconds,)) for child in children if child is not None]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now."""
    import socket

    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def listens(host: str, port: int) -> bool:
    """Whether somebody answers there."""
    import socket

    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def wait_until(ready: object, seconds: float, every: float = 0.1) -> bool:
    """Whether something came true in time."""
    assert callable(ready)
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True
