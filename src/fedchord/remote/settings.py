"""The two files of a federation: FED.toml on the server, NODE.toml at each party.

Paths in them are relative to the file. A mistake is told in one line that names the file and, for a key that nobody
knows, the nearest one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from fedchord import catalog, check
from fedchord.check import fail, require, unknown
from fedchord.experiments import own_data
from fedchord.experiments.config import check_key
from fedchord.experiments.settings import Scalar, flatten
from fedchord.metrics import find
from fedchord.paths import expanded
from fedchord.remote.limits import Limits
from fedchord.remote.toml_table import TomlTable

NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,38}[a-z0-9])?")
"""Names of federations and parties: they are names of folders, of services and in certificates too."""
PORTS = 65535
DATA_KEYS = ("root", "skip_damaged", *own_data.KEYS)
ABOUT_ROWS = (
    *("split", "split.alpha", "split.shards", "split.minimum", "clients"),
    *("noise", "noise.rate", "augment"),
)
"""Keys of a run that are about rows and stand in a party's [data], beside data.x, which stand there as x."""
ELSEWHERE = {
    "out": "it stands at the top of the file",
    "log": "the server's run folder has a line of every round",
    **dict.fromkeys(("executor", "workers", "device"), "every party computes for itself"),
    **dict.fromkeys(("newcomers", "newcomer_epochs"), "a party that comes late takes part in the next round"),
    **dict.fromkeys(("data", *ABOUT_ROWS), "it is about rows, and stands in [data] of every party's file"),
}
"""Keys of a run that a plan cannot have, and why."""


@final
@dataclass(frozen=True)
class Server:
    """Where the server listens, and how long a round waits for whom."""

    host: str = "127.0.0.1"
    """The name or address by which nodes reach the server."""
    bind: str = ""
    """The address it listens on; the host's unless it is another, such as 0.0.0.0 behind a firewall."""
    port: int = 9092
    deadline: float = 60.0
    """Seconds that a round waits for answers."""
    attempts: int = 3
    """How often a round is tried with those who did not answer."""
    minimum: float = 0.5
    """The share of the cohort that must answer; rules that need everyone wait for all."""
    wait: float = 600.0
    """Seconds that the server waits for enough parties before a round."""
    present: float = 0.0
    """The share of all parties that a round waits for before it begins; 0: as many as must answer."""
    phases: int = 1
    """2: losses first, then weighted sums."""
    largest: float = 512.0
    """Megabytes of the largest message that is taken."""

    @property
    def listens(self) -> str:
        """The address it listens on."""
        return self.bind or self.host

    @property
    def address(self) -> str:
        """What a node is told."""
        return f"{self.host}:{self.port}"


@final
@dataclass(frozen=True)
class ServerTls:
    """The server's certificate and whose keys may come."""

    ca: Path
    certificate: Path
    key: Path
    nodes: Path
    """A table of every party by its name: key = "its public key as ssh writes it"."""


@final
@dataclass(frozen=True)
class NodeTls:
    """Whom a node believes, and by which key it is known."""

    ca: Path
    key: Path


@final
@dataclass(frozen=True)
class Fed:
    """A federation as its server knows it."""

    path: Path
    name: str
    clients: tuple[str, ...]
    """The parties, in the order of client numbers."""
    out: Path
    outline: Path
    """What the parties' rows look like, without a row."""
    plan: dict[str, Scalar]
    """The settings of the run by key."""
    server: Server = Server()
    tls: ServerTls | None = None

    @property
    def folder(self) -> Path:
        """Where the file and all it names are."""
        return self.path.parent

    @property
    def plan_file(self) -> Path:
        """The plan as the parties get it, beside the outline."""
        return self.outline.with_name("plan.json")


@final
@dataclass(frozen=True)
class Party:
    """A party of a federation: its own rows, memory and limits."""

    path: Path
    name: str
    client: int
    server: str
    plan: Path
    outline: Path
    memory: Path
    audit: Path
    secret: Path
    data: dict[str, Any]
    """Where its rows are, by the keys of a run: data (a file's path is whole), data.label, split, ...; and `part`,
    whose rows of the data they are, by the name of one of their clients."""
    port: int = 0
    """Where the client's process and Flower's SuperNode talk on this machine; 0 is any free one."""
    tls: NodeTls | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def folder(self) -> Path:
        """Where the file and all it names are."""
        return self.path.parent

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server."""
        host, _, port = self.server.rpartition(":")
        return host.strip("[]"), int(port)


def read_fed(path: str | Path) -> Fed:
    """The federation of a server's file."""
    table = TomlTable.read(path, ("name", "clients", "out", "data", "plan", "server", "tls"))
    clients = table.names("clients")
    require(bool(clients), table.owner, "clients must name at least one party")
    for name in clients:
        check_name(table.owner, "clients", name)
    plan = flatten(table.table("plan").values)
    for key in plan:
        _check_plan_key(table.owner, key)
    server = table.table("server", tuple(Server.__dataclass_fields__))
    tls = table.table("tls", ("ca", "certificate", "key", "nodes")) if table.has("tls") else None
    return Fed(
        path=table.path,
        name=check_name(table.owner, "name", table.word("name")),
        clients=clients,
        out=table.place("out", "out"),
        outline=table.place("data", "data.safetensors"),
        plan=plan,
        server=_server(server),
        tls=tls and ServerTls(*(tls.place(key) for key in ("ca", "certificate", "key", "nodes"))),
    )


def read_party(path: str | Path) -> Party:
    """The party of a node's file."""
    keys = ("name", "client", "server", "plan", "outline", "memory", "audit", "secret", "port", "data", "tls", "limits")
    table = TomlTable.read(path, keys)
    server = table.word("server")
    check_address(table.owner, "server", server)
    data = table.table("data")
    tls = table.table("tls", ("ca", "key")) if table.has("tls") else None
    return Party(
        path=table.path,
        name=check_name(table.owner, "name", table.word("name")),
        client=check.whole(table.owner, "client", table.need("client")),
        server=server,
        plan=table.place("plan", "plan.json"),
        outline=table.place("outline", "data.safetensors"),
        memory=table.place("memory", "memory"),
        audit=table.place("audit", "audit.jsonl"),
        secret=table.place("secret", "secret"),
        data=_rows(data),
        port=check.whole(table.owner, "port", table.values.get("port", 0), 0, PORTS),
        tls=tls and NodeTls(tls.place("ca"), tls.place("key")),
        limits=_limits(table.table("limits", tuple(Limits.__dataclass_fields__))),
    )


def read_nodes(path: str | Path) -> dict[str, str]:
    """The public key of every registered party, by its name."""
    table = TomlTable.read(path, None)
    found = {}
    for name in table.values:
        check_name(table.owner, "a party", name)
        found[name] = " ".join(table.table(name, ("key",)).word("key").split()[:2])
    twice = [name for name, key in found.items() if list(found.values()).count(key) > 1]
    require(not twice, table.owner, f"{' and '.join(twice[:2])} have the same key")
    return found


def check_name(owner: str, what: str, name: str) -> str:
    """A name that can be a folder, a service and part of a certificate."""
    good = NAME.fullmatch(name) is not None
    require(good, owner, f"{what} must be small letters, digits, - and _ (at most 40), got {name!r}")
    return name


def check_address(owner: str, what: str, text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT."""
    host, colon, port = text.rpartition(":")
    good = bool(colon) and bool(host) and port.isdecimal() and 0 < int(port) <= PORTS and not re.search(r"[\s/]", host)
    require(good, owner, f"{what} must be HOST:PORT, such as fed.example.org:9092, got {text!r}")
    return host.strip("[]"), int(port)


def _check_plan_key(owner: str, key: str) -> None:
    reason = ELSEWHERE["data"] if key.startswith("data.") else ELSEWHERE.get(key)
    require(reason is None, owner, f"[plan] cannot have {key}: {reason}")
    try:
        check_key(key)
    except check.FedchordError as error:
        raise fail(f"{owner}, [plan]", str(error)) from None


def _server(table: TomlTable) -> Server:
    values, owner = table.values, table.owner
    usual = Server()
    return Server(
        host=table.word("host", usual.host),
        bind=table.word("bind", ""),
        port=check.whole(owner, "port", values.get("port", usual.port), 1, PORTS),
        deadline=check.positive(owner, "deadline", values.get("deadline", usual.deadline)),
        attempts=check.whole(owner, "attempts", values.get("attempts", usual.attempts), 1),
        minimum=check.between(owner, "minimum", values.get("minimum", usual.minimum), 0, 1),
        wait=check.positive(owner, "wait", values.get("wait", usual.wait)),
        present=check.between(owner, "present", values.get("present", usual.present), 0, 1),
        phases=check.whole(owner, "phases", values.get("phases", usual.phases), 1, 2),
        largest=check.positive(owner, "largest", values.get("largest", usual.largest)),
    )


def _limits(table: TomlTable) -> Limits:
    values, owner = table.values, table.owner
    return Limits(
        allow=table.names("allow", _is_method) if table.has("allow") else None,
        rounds=check.whole(owner, "rounds", values["rounds"]) if table.has("rounds") else None,
        clip=check.positive(owner, "clip", values["clip"]) if table.has("clip") else None,
        log=table.names("log"),
        metrics=table.names("metrics", find) if table.has("metrics") else None,
        evaluations=check.whole(owner, "evaluations", values["evaluations"]) if table.has("evaluations") else None,
    )


def _is_method(name: str) -> None:
    if not catalog.is_method(name):
        raise unknown("method", name, catalog.METHODS)


def _rows(table: TomlTable) -> dict[str, Any]:
    """The keys of a run's data; a file or folder of one's own is looked for beside the file."""
    name = table.word("data")
    beside = table.path.parent / expanded(name)
    own = own_data.is_own(name) or os.path.isdir(beside)  # also of a name that no system takes
    found: dict[str, Any] = {"data": str(beside) if own else name}
    for key, value in flatten(table.values).items():
        if key in DATA_KEYS:
            found[f"data.{key}"] = value
        elif key in (*ABOUT_ROWS, "part"):
            found[key] = value
        elif key != "data":
            raise unknown(f"key of {table.owner}", key, ("data", "part", *DATA_KEYS, *ABOUT_ROWS))
    if "part" in found:
        found["part"] = table.word("part")
    return found
