"""The server's half on Flower, supervised: the SuperLink in a process of its own, and the server app in this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fedchord
from fedchord.check import FedchordError, fail, require
from fedchord.data import outline
from fedchord.engine.attendance import Terms
from fedchord.privacy.terms import CLIENTS
from fedchord.remote import certificates
from fedchord.remote.asking import Service
from fedchord.remote.flower import GridTransport
from fedchord.remote.flower_server import Link, LinkLost, public_key, server_app
from fedchord.remote.joining import write_secret
from fedchord.remote.live import Heard, Live
from fedchord.remote.plan import Plan
from fedchord.remote.processes import Child, listens, wait_until
from fedchord.remote.serve import serve
from fedchord.remote.settings import Fed, ServerTls, read_nodes

START = 90.0
"""Seconds that a SuperLink may take to start."""
RESTARTS = 5
"""How often a SuperLink that has died is started again."""


def plan_of(fed: Fed) -> Plan:
    """The plan of a federation; refused where the parties were given another."""
    require(fed.outline.is_file(), "serve", f"{fed.outline} is missing: the outline of the data, see fedchord deploy")
    plan = Plan.of(fed.plan, outline.load(fed.outline))
    names, parties = plan.outline.client_names, fed.clients
    require(names == parties, "serve", f"{fed.outline} is of {', '.join(names)}, the file of {', '.join(parties)}")
    if fed.plan_file.is_file():
        given = Plan.read(fed.plan_file.read_text(encoding="utf-8"), plan.outline)
        same = given.fingerprint == plan.fingerprint
        require(same, "serve", f"[plan] was changed after {fed.plan_file} was made: the parties have another plan")
    return plan


def service_of(fed: Fed) -> Service:
    """How long a round waits, and for whom."""
    given = fed.server
    terms = Terms(given.attempts, given.minimum)
    return Service(given.deadline, given.wait, terms, given.phases, given.present)


def serve_fed(fed: Fed, resume: bool = False, insecure: bool = False, live: Live | None = None) -> dict[str, Any]:
    """Serve a federation to its end; the summary of the run."""
    plan, live = plan_of(fed), live or Live(fed.clients)
    expected = {"plan": plan.fingerprint, "version": fedchord.__version__}
    for restarts in range(RESTARTS + 1):
        try:
            with flower_transport(fed, expected, insecure, live.say) as transport:
                live.here = lambda told=transport: told.here  # type: ignore[misc]
                transport.moved = live.draw
                run = serve(
                    plan,
                    transport,
                    fed.out,
                    service=service_of(fed),
                    resume=resume,
                    report=live.say,
                    progress=live,
                    loggers=[Heard(live.round)],
                    secret=hiding(fed) if plan.config.privacy == CLIENTS else b"",
                )
                live.say(f"serving {fed.name} at {fed.server.address}; waiting for {', '.join(fed.clients)}")
                return run.finish()
        except LinkLost as error:
            if restarts == RESTARTS:
                raise
            live.say(f"{error}; it is started again")
            resume = (fed.out / "config.toml").is_file()
    raise AssertionError


def hiding(fed: Fed) -> bytes:
    """The server's secret by which cohorts and noise are drawn under privacy=clients; made once, and kept."""
    path = fed.folder / "hiding"
    if not path.is_file():
        write_secret(path)
    return path.read_bytes()


def tls_of(fed: Fed, insecure: bool = False) -> ServerTls | None:
    """The server's certificate; None where plain text was asked for, and nowhere else."""
    if fed.tls is None and not insecure:
        raise fail("serve", "[tls] is missing; --insecure must be asked for")
    return None if insecure else fed.tls


@contextmanager
def super_link(fed: Fed, insecure: bool) -> Iterator[tuple[Child, Link]]:
    """A SuperLink that listens where the federation's file says; it ends with the body."""
    folder = fed.folder / "flower"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret = folder / "secret"
    write_secret(secret)
    host, port = fed.server.listens, fed.server.port
    here = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    require(not listens(here, port), "serve", f"somebody listens on {here}:{port} already")
    tls = tls_of(fed, insecure)
    options = ["--isolation", "process", "--host", host, "--port", str(port)]
    options += ["--database", str(folder / "link.db"), "--superexec-auth-secret-file", str(secret)]
    child = Child(
        "fedchord.remote.flower_link",
        [
            *options,
            *(["--insecure"] if tls is None else _certificates(tls.ca, tls.certificate, tls.key)),
            _largest(fed),
        ],
        folder / "link.log",
        {"FLWR_HOME": str(folder / "home")},
    )
    try:
        started, code = wait_until(lambda: listens(here, port) or child.code is not None, START), child.code
        if code is not None and code < 0:  # it did not end by itself, as it would where something is wrong
            raise LinkLost(f"the SuperLink was killed while it started (signal {-code})")
        if not started or code is not None:
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
        limit = int(_largest(fed))
        yield LinkTransport(child, grid, len(fed.clients), expected, keys, limit, say)


class LinkTransport(GridTransport):
    """Also passes on what the SuperLink says about those it turned away."""

    def __init__(self, child: Child, *given: Any) -> None:
        super().__init__(*given)
        self.child = child
        self.here: set[int] = set()
        self.moved: Callable[[], None] = lambda: None
        """Hears that somebody came or went."""

    def clients(self) -> set[int]:
        """The clients that can be asked now."""
        for line in self.child.lines():
            self._say(line)
        before, self.here = self.here, super().clients()
        if self.here != before:
            self.moved()
        return self.here


def registered(fed: Fed) -> dict[bytes, int]:
    """Which client a public key belongs to."""
    tls = tls_of(fed)
    assert tls is not None
    nodes = read_nodes(tls.nodes)
    strange = sorted(set(nodes) - set(fed.clients))
    require(not strange, "serve", f"{tls.nodes} has keys of {', '.join(strange)}, who is no party")
    for name, line in nodes.items():
        certificates.check_public(line, f"{tls.nodes}: the key of {name}")
    return {public_key(nodes[name]): number for number, name in enumerate(fed.clients) if name in nodes}


def _largest(fed: Fed) -> str:
    return str(int(fed.server.largest * 2**20))


def _certificates(ca: Path, certificate: Path, key: Path) -> list[str]:
    files = ["--ssl-ca-certfile", str(ca), "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
    return [*files, "--enable-supernode-auth"]
