"""A new federation as folders, one for each party: settings, certificates, keys, a service, a page for its machine."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import tomli_w

from fedchord.check import FedchordError, require, whole
from fedchord.data import SOURCES
from fedchord.experiments import own_data
from fedchord.experiments.config import WORDS, RunConfig
from fedchord.experiments.settings import Scalar, parse_pairs
from fedchord.files import blocked, written
from fedchord.paths import expanded
from fedchord.remote import certificates
from fedchord.remote.certificates import Pair
from fedchord.remote.facts import SPLIT
from fedchord.remote.limits import measurements
from fedchord.remote.settings import ABOUT_ROWS, ELSEWHERE, PORTS, Server, check_name, read_fed

OWNER = "deploy init"
TEMPLATES = Path(__file__).parent / "templates"
TAKEN = ("ca", "server")
"""Names of folders that no party can have."""
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]+")
PLACE = "/srv/fedchord"
"""Where a party's machine keeps the program and its folder unless it is said."""


@final
@dataclass(frozen=True)
class New:
    """What a new federation is made of."""

    folder: Path
    name: str
    clients: tuple[str, ...]
    host: str = Server.host
    port: int = Server.port
    plan: Mapping[str, Scalar] = field(default_factory=dict)
    data: Mapping[str, Scalar] = field(default_factory=dict)
    place: str = PLACE
    command: str = ""
    measured: int = 0
    """How often parties are asked for numbers of evaluation."""

    @property
    def server(self) -> Server:
        """Where it listens: at its address, or, where that is a name or another machine's, everywhere."""
        loopback = self.host in certificates.LOOPBACK
        return Server(host=self.host, bind="127.0.0.1" if loopback else "0.0.0.0", port=self.port)

    @property
    def program(self) -> str:
        """The command on a party's machine."""
        return self.command or f"{self.place}/venv/bin/fedchord"


def init(
    folder: Path,
    nodes: Sequence[str],
    pairs: Sequence[str] = (),
    host: str = Server.host,
    port: int = Server.port,
    name: str = "",
    place: str = PLACE,
    command: str = "",
) -> New:
    """Write the folders of a new federation, all or nothing. Settings are those of a run: data and data.x go to the
    parties' files, all others to the plan."""
    new = _asked(folder, nodes, pairs, host, port, name, place, command)
    ca = certificates.authority(new.name)
    server = certificates.server_certificate(ca, new.host)
    keys = {client: certificates.node_key(client) for client in new.clients}
    with written(new.folder) as beside:
        beside.mkdir(mode=0o700)
        told = words(new, server)
        _write(beside / "README.md", filled("top.md.in", told))
        write_folder(beside / "ca", {"ca.pem": ca.shown}, {"ca.key": ca.key})
        write_folder(beside / "server", _server_files(new, ca, server, keys, told), {"server.key": server.key})
        for number, client in enumerate(new.clients):
            secret = {"node.key": keys[client].key, "secret": secrets.token_bytes(32)}
            write_folder(beside / client, node_files(new, ca, number, told), secret)
    return new


def renew(folder: Path) -> Path:
    """A new certificate for the server of a federation, by the key in its folder ca; the old one is replaced."""
    fed = read_fed(folder / "server" / "fed.toml")
    if fed.tls is None:
        raise FedchordError(f"{fed.path}: has no [tls]")
    try:
        ca = Pair((folder / "ca" / "ca.key").read_bytes(), (folder / "ca" / "ca.pem").read_bytes())
    except OSError as error:
        raise FedchordError(f"deploy renew: {error.filename} is needed ({error.strerror})") from None
    made = certificates.server_certificate(ca, fed.server.host)
    replace_file(fed.tls.key, made.key, 0o600)
    replace_file(fed.tls.certificate, made.shown, 0o644)
    return fed.tls.certificate


def _asked(
    folder: Path, nodes: Sequence[str], pairs: Sequence[str], host: str, port: int, name: str, place: str, command: str
) -> New:
    """What was asked for, checked before anything is written."""
    for client in nodes:
        check_name(OWNER, "a node's name", client)
        require(client not in TAKEN, OWNER, f"a node cannot be called {client!r}, which is another folder's name")
        require(list(nodes).count(client) == 1, OWNER, f"node {client!r} is named twice")
    require(bool(nodes), OWNER, "needs nodes, such as --nodes north,south")
    require(HOST.fullmatch(host) is not None, OWNER, f"host must be a name or an address, got {host!r}")
    whole(OWNER, "port", port, 1, PORTS)
    for path in (place, command):
        plain = not path or re.fullmatch(r"/[\w./+-]+", path) is not None
        require(plain, OWNER, f"--place and --command are whole paths without blanks, got {path!r}")
    own = name or expanded(folder).absolute().name
    check_name(OWNER, "the federation's name (--name, else that of the folder)", own)
    require(not folder.is_file(), OWNER, f"{folder} is a file")
    there = folder.is_dir() and any(folder.iterdir())
    require(not there, OWNER, f"{folder} is there already, with something in it; nothing is overwritten")
    reason = blocked(folder)
    require(not reason, OWNER, f"{folder} cannot be written ({reason})")
    given = parse_pairs(pairs, WORDS)
    for key in given:
        bad = key in ELSEWHERE and not _about_rows(key)
        require(not bad, OWNER, f"a plan cannot have {key}: {ELSEWHERE.get(key)}")
    given = {"data": "rows.csv", **given}
    public = not own_data.is_own(str(given["data"]))
    given |= {"clients": len(nodes)} if public and not _natural(given) else {}
    config = RunConfig.from_values(given)
    config.plan().size(len(nodes))
    typed = {key: value for key, value in config.given().items() if key in given}
    rows = {key: value for key, value in typed.items() if _about_rows(key)}
    rows |= {"part": ""} if public and _natural(given) else {}
    plan: dict[str, Scalar] = {"method": config.method, "rounds": config.rounds, "seed": config.seed}
    plan |= {key: value for key, value in typed.items() if key not in rows}
    asked = measurements(config.rounds, config.choices()["eval_every"])
    return New(folder, own, tuple(nodes), host, port, plan, rows, place.rstrip("/"), command, asked)


def pages(new: New, words: Mapping[str, str]) -> dict[Path, bytes]:
    """The two pages that name all parties."""
    own = _server_words(new, words)
    return {
        new.folder / "README.md": filled("top.md.in", words),
        new.folder / "server" / "README.md": filled("server.md.in", own),
    }


def words(new: New, server: Pair) -> dict[str, str]:
    """What templates are filled with, as far as all files share it."""
    certificate = certificates.read_certificate(server.shown, "server.pem")
    return {
        "FED": new.name,
        "HOST": new.host,
        "BIND": new.server.bind,
        "PORT": str(new.port),
        "ADDRESS": _address(new.host, new.port),
        "COUNT": str(len(new.clients)),
        "NAMES": ", ".join(new.clients),
        "FOLDERS": "\n".join(f"| `{client}/` | the machine of {client} |" for client in new.clients),
        "SHARING": " ".join(["--share rows", *_split_words(new)]),
        "HOME": new.place,
        "VENV": str(Path(new.program).parent.parent),
        "COMMAND": new.program,
        "UNTIL": certificate.not_valid_after_utc.date().isoformat(),
    }


def _server_files(
    new: New, ca: Pair, server: Pair, keys: Mapping[str, Pair], words: Mapping[str, str]
) -> dict[str, bytes]:
    here = _server_words(new, words)
    here |= {"CLIENTS": one_line(list(new.clients)), "PLAN": tomli_w.dumps(dict(new.plan))}
    registered = {client: {"key": pair.shown.decode()} for client, pair in keys.items()}
    return {
        "fed.toml": filled("fed.toml.in", here),
        "ca.pem": ca.shown,
        "server.pem": server.shown,
        "nodes.toml": tomli_w.dumps(registered).encode(),
        f"{here['UNIT']}.service": filled("unit.in", here),
        "README.md": filled("server.md.in", here),
    }


def _server_words(new: New, words: Mapping[str, str]) -> dict[str, str]:
    what = f"the server of the federation {new.name}"
    return {**words, **_service(new, "server", what, "serve --resume fed.toml")}


def node_files(new: New, ca: Pair, number: int, words: Mapping[str, str]) -> dict[str, bytes]:
    """What everybody may read in a party's folder."""
    client = new.clients[number]
    here = {**words, **_service(new, client, f"{client}, a party of the federation {new.name}", "join node.toml")}
    here |= {"PARTY": client, "CLIENT": str(number), "DATA": tomli_w.dumps(_rows(new, client))}
    here |= {"ALLOW": one_line([new.plan["method"]]), "ROUNDS": str(new.plan["rounds"]), "TIMES": str(new.measured)}
    return {
        "node.toml": filled("node.toml.in", here),
        "ca.pem": ca.shown,
        f"{here['UNIT']}.service": filled("unit.in", here),
        "README.md": filled("node.md.in", here),
    }


def _split_words(new: New) -> list[str]:
    """The settings that a party's facts must know, where they are not the usual ones."""
    public = not own_data.is_own(str(new.data.get("data", "rows.csv")))
    keys = SPLIT if public else SPLIT[1:]
    return [
        f"{key}={new.plan[key]}"
        for key in keys
        if new.plan.get(key, getattr(RunConfig, key)) != getattr(RunConfig, key)
    ]


def _about_rows(key: str) -> bool:
    return key == "data" or key.startswith("data.") or key in ABOUT_ROWS


def _natural(given: Mapping[str, Scalar]) -> bool:
    """Whether parties are the clients that a public data set comes with."""
    source = SOURCES.get(str(given["data"]))
    return source is not None and source.natural and given.get("split", "natural") == "natural"


def _rows(new: New, client: str) -> dict[str, Any]:
    """A party's [data]; of a public data set with clients of its own, it is the one of its name."""
    found = {key.removeprefix("data."): value for key, value in new.data.items()}
    return found | ({"part": client} if "part" in found else {})


def _service(new: New, party: str, what: str, arguments: str) -> dict[str, str]:
    unit = f"fedchord-{new.name}-{party}"
    return {"UNIT": unit, "WHAT": what, "ARGUMENTS": arguments, "PLACE": f"{new.place}/{new.name}-{party}"}


def filled(template: str, words: Mapping[str, str]) -> bytes:
    """A template with its words."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z]+)@", lambda mark: words[mark[1]], text).encode()


def one_line(values: Sequence[Any]) -> str:
    """A list in one line."""
    return f"[{', '.join(tomli_w.dumps({'x': value}).partition('=')[2].strip() for value in values)}]"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_folder(path: Path, files: Mapping[str, bytes], private: Mapping[str, bytes]) -> None:
    """A folder for its owner alone, with private files that only the owner reads."""
    path.mkdir(mode=0o700)
    for name, content in files.items():
        _write(path / name, content)
    for name, content in private.items():
        _write(path / name, content, 0o600)


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """A new file, of its mode from the first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Another content, whole or not at all."""
    with written(path) as beside:
        _write(beside, content, mode)
