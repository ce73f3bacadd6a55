"""A federation of toy nodes on this machine: its files with certificates and keys, and parties that join it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedchord.remote import certificates
from fedchord.remote.joining import Joining
from fedchord.remote.processes import free_port
from fedchord.remote.settings import Fed, NodeTls, Party, Server, ServerTls

FACTS = {"plan": "abc", "version": "1"}


def federation(folder: Path, parties: int, **server: Any) -> Fed:
    """A server's settings, with files beside them; the last party's key is made but not registered."""
    names = tuple(f"party{number}" for number in range(parties))
    folder.mkdir(parents=True, exist_ok=True)
    ca = certificates.authority("toy")
    own = certificates.server_certificate(ca, "127.0.0.1")
    pairs = {name: certificates.node_key(name) for name in [*names, "stranger"]}
    files = {"ca.pem": ca.shown, "server.pem": own.shown, "server.key": own.key}
    for name, content in (files | {f"{name}.key": pair.key for name, pair in pairs.items()}).items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    lines = [f'[{name}]\nkey = "{pairs[name].shown.decode()}"\n' for name in names]
    (folder / "nodes.toml").write_text("\n".join(lines))
    tls = ServerTls(folder / "ca.pem", folder / "server.pem", folder / "server.key", folder / "nodes.toml")
    where = Server(port=free_port(), **server)
    return Fed(folder / "FED.toml", "toy", names, folder / "out", folder / "data.safetensors", {}, where, tls)


def party(fed: Fed, client: int, name: str = "") -> Party:
    """A party of the federation, by the key of a name."""
    name = name or fed.clients[client]
    home = fed.folder / f"at-{name}-{client}"
    home.mkdir(exist_ok=True)
    files = {part: home / part for part in ("plan", "outline", "memory", "audit", "secret")}
    tls = NodeTls(fed.folder / "ca.pem", fed.folder / f"{name}.key")
    return Party(home / "NODE.toml", name, client, fed.server.address, **files, data={}, tls=tls)


class Joined:
    """A party in a thread of this process; its processes are real."""

    def __init__(
        self,
        at: Party,
        facts: dict[str, Any] | None = None,
        insecure: bool = False,
        pause: float = 1.0,
        client: Sequence[str] = (),
    ) -> None:
        told = {"client": at.client, "name": at.name} | FACTS | (facts or {})
        places = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(place for place in places if place))
        self.lines: list[str] = []
        self.error: BaseException | None = None
        words = [*client, str(at.path)] if client else ["helpers.toy_node", json.dumps(told)]
        self.joining = Joining(at, words, insecure, self.lines.append, pause)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.joining.run(self._stop.is_set)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def said(self, text: str) -> bool:
        return any(text in line for line in self.lines) or text in str(self.error or "")


@contextmanager
def joined(*parties: Joined) -> Iterator[None]:
    """Stop them all at the end, side by side."""
    try:
        yield
    finally:
        threads = [threading.Thread(target=each.stop) for each in parties]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def until(ready: Callable[[], Any], seconds: float, what: str) -> None:
    """Wait until something is so; a test that waits in vain says for what."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"waited {seconds:g} s in vain: {what}"
        time.sleep(0.3)
