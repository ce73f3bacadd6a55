"""The server's half on Flower, supervised: the SuperLink in a process of its own, and the server app in this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedchord.check import FedchordError, require
from fedchord.remote.flower import GridTransport
from fedchord.remote.flower_server import Link, public_key, server_app
from fedchord.remote.joining import write_secret
from fedchord.remote.processes import Child, listens, wait_until
from fedchord.remote.settings import Fed, read_nodes

START = 90.0
"""Seconds that a SuperLink may take to start."""


@contextmanager
def super_link(fed: Fed, insecure: bool) -> Iterator[tuple[Child, Link]]:
    """A SuperLink that listens where the federation's file says; it ends with the body."""
    require(insecure or fed.tls is not None, "serve", "[tls] is missing; --insecure must be asked for")
    folder = fed.out / "flower"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = folder / "secret"
    write_secret(secret)
    host, port = fed.server.listens, fed.server.port
    here = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    require(not listens(here, port), "serve", f"somebody listens on {here}:{port} already")
    tls = None if insecure else fed.tls
    options = ["--isolation", "process", "--host", host, "--port", str(port)]
    options += ["--database", str(folder / "link.db"), "--superexec-auth-secret-file", str(secret)]
    child = Child(
        "fedchord.remote.flower_link",
        [*options, *(["--insecure"] if tls is None else _certificates(tls.ca, tls.certificate, tls.key))],
        folder / "link.log",
        {"FLWR_HOME": str(folder / "home")},
    )
    try:
        started = wait_until(lambda: listens(here, port) or child.code is not None, START)
        if not started or child.code is not None:
            last = child.printed().strip().splitlines()[-1:] or [""]
            raise FedchordError(f"serve: the SuperLink did not start ({last[0][-300:]}); see {child.log}")
        yield child, Link(f"{here}:{port}", None if tls is None else tls.ca, secret.read_bytes())
    finally:
        child.end()


@contextmanager
def flower_transport(
    fed: Fed, expected: Mapping[str, Any], insecure: bool = False, say: Callable[[str], None] = print
) -> Iterator[LinkTransport]:
    """A transport over a SuperLink of our own, with the registered keys of the federation."""
    keys = None if insecure else registered(fed)
    with super_link(fed, insecure) as (child, link), server_app(link, keys, lambda: child.code is None) as grid:
        limit = int(fed.server.largest * 2**20)
        yield LinkTransport(child, grid, len(fed.clients), expected, keys, limit, say)


class LinkTransport(GridTransport):
    """Also passes on what the SuperLink says about those it turned away."""

    def __init__(self, child: Child, *given: Any) -> None:
        super().__init__(*given)
        self.child = child

    def clients(self) -> set[int]:
        """The clients that can be asked now."""
        for line in self.child.lines():
            self._say(line)
        return super().clients()


def registered(fed: Fed) -> dict[bytes, int]:
    """Which client a public key belongs to."""
    assert fed.tls is not None
    nodes = read_nodes(fed.tls.nodes)
    strange = sorted(set(nodes) - set(fed.clients))
    require(not strange, "serve", f"{fed.tls.nodes} has keys of {', '.join(strange)}, who is no party")
    return {public_key(nodes[name]): number for number, name in enumerate(fed.clients) if name in nodes}


def _certificates(ca: Path, certificate: Path, key: Path) -> list[str]:
    files = ["--ssl-ca-certfile", str(ca), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
    return [*files, "--enable-supernode-auth"]
