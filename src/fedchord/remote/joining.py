"""A party's half on Flower, supervised: the SuperNode that talks to the server, and the client process beside it."""

from __future__ import annotations

import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedchord.check import FedchordError, require
from fedchord.remote.processes import Child, end_all, free_port
from fedchord.remote.settings import Party

REFUSED, WAITS = 3, 4
"""How a client process ends when the server refuses it for good, or as long as another is there."""
OLD_SESSION = 90.0
"""Seconds after which a refused key cannot be refused for its old session any more; Flower ends one after 60."""
PAUSE = 3.0
TOO_LARGE = "413 Request Entity Too Large"
"""What a SuperNode prints when the server's door did not let an answer in."""
HASTY = 5
"""How often a client process may end as soon as it was started before the supervisor gives up."""


@dataclass
class Joining:
    """One party's processes. `client` is the module and the arguments of the client process; the address of the
    SuperNode and the file of their secret are added."""

    party: Party
    client: Sequence[str]
    insecure: bool = False
    say: Callable[[str], None] = print
    pause: float = PAUSE
    _node: Child | None = field(default=None, init=False)
    _client: Child | None = field(default=None, init=False)
    _refused_since: float | None = field(default=None, init=False)
    _hasty: int = field(default=0, init=False)
    _told: str = field(default="", init=False)
    _large: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        require(self.insecure or self.party.tls is not None, "join", "[tls] is missing; --insecure must be asked for")
        self.folder = self.party.folder / "flower"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.secret = self.folder / "secret"
        write_secret(self.secret)
        self.address = f"127.0.0.1:{self.party.port or free_port()}"

    def run(self, stopped: Callable[[], bool]) -> None:
        """Keep both processes alive until it is told to stop, or the server refuses the party for good."""
        try:
            while not stopped():
                self._start()
                time.sleep(0.5)
                self._relay()
                self._look()
        finally:
            end_all([self._client, self._node])
            self._relay()

    @property
    def pids(self) -> dict[str, int]:
        """The processes that live."""
        children = {"node": self._node, "client": self._client}
        return {name: child.pid for name, child in children.items() if child is not None and child.code is None}

    def _start(self) -> None:
        env = {"FLWR_HOME": str(self.folder / "home")}
        if self._client is None:
            module, *arguments = self.client
            self._began = time.monotonic()
            self._client = Child(module, [*arguments, self.address, str(self.secret)], self.folder / "client.log", env)
        if self._node is None:
            self._large = 0
            self._node = Child("fedchord.remote.flower_node", self._options(), self.folder / "node.log", env)

    def _options(self) -> list[str]:
        host, _, port = self.address.rpartition(":")
        tls = None if self.insecure else self.party.tls
        secure = (
            ["--insecure"]
            if tls is None
            else ["--root-certificates", str(tls.ca), "--auth-supernode-private-key", str(tls.key)]
        )
        own = ["--isolation", "process", "--host", host, "--port", port]
        return [*secure, "--superlink", self.party.server, *own, "--superexec-auth-secret-file", str(self.secret)]

    def _relay(self) -> None:
        """Pass on what the client says, and once what the SuperNode waits for."""
        for line in self._client.lines() if self._client is not None else []:
            self.say(line)
        if self._node is None or self._node.code is not None:
            return
        printed = self._node.printed()
        if "SuperNode ID:" in printed:
            self._refused_since = None
            self._tell(f"joined {self.party.server}")
            if (refused := printed.count(TOO_LARGE)) > self._large:
                self.say("the server did not take an answer: it is larger than the server allows")
            self._large = refused
        elif "Connection attempt failed" in printed:
            self._tell(f"no answer from {self.party.server}; trying again (is it there, and does it speak TLS?)")

    def _look(self) -> None:
        """See who has ended, and what that means."""
        if self._client is not None and (code := self._client.code) is not None:
            self._client_ended(code)
        if self._node is not None and self._node.code is not None:
            self._node_ended(self._node.printed())

    def _client_ended(self, code: int) -> None:
        assert self._client is not None
        self._relay()
        last = self._client.printed().strip().splitlines()[-1:] or [""]
        self._client = None
        if self._node is not None:
            self._node.end()  # politely: the server knows at once, and the key is free again
            self._node = None
        if code == REFUSED:
            raise FedchordError(last[0].removeprefix("fedchord: "))
        if code != WAITS:
            self._hasty = self._hasty + 1 if time.monotonic() - self._began < 30 else 0
            require(self._hasty < HASTY, "join", f"the client process ends again and again ({last[0][-300:]})")
            self.say(f"the client process has ended (code {code}); started again")
        time.sleep(self.pause)

    def _node_ended(self, printed: str) -> None:
        self._node = None
        now = time.monotonic()
        lines = [line.strip() for line in printed.splitlines()]
        reason = next((line for line in lines if line.startswith("[code:")), "")
        if "handshake error" in printed or "certificate" in printed.lower():
            raise FedchordError(f"join: {self.party.server} is not believed: its certificate is not signed by [tls] ca")
        if "Failed to initialize the connection" in printed:
            self._refused_since = self._refused_since or now
            if now - self._refused_since > OLD_SESSION:
                raise FedchordError(
                    f"join: {self.party.server} refuses this node's key: it is not registered ({reason})"
                )
            self._tell(
                f"{self.party.server} refuses this node's key: it is not registered, or its old session has not ended; "
                f"trying again for {OLD_SESSION:g} s {reason}"
            )
        else:
            self._tell("")
            self.say("the SuperNode has ended; started again")
        time.sleep(self.pause)

    def _tell(self, line: str) -> None:
        """A line, once in a row."""
        if line and line != self._told:
            self.say(line)
        self._told = line


def write_secret(path: Path) -> None:
    """A new secret that only this user can read."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(32))


@contextmanager
def signalled() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, or SIGTERM sent."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
