"""One party more in a federation that is there: its folder, and its place in the server's two files."""

from __future__ import annotations

import re
import secrets
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from fedchord.check import FedchordError, fail, require
from fedchord.experiments.config import RunConfig
from fedchord.experiments.settings import Scalar
from fedchord.files import blocked, written
from fedchord.remote import certificates
from fedchord.remote.certificates import Pair
from fedchord.remote.init import PLACE, TAKEN, New, node_files, one_line, pages, replace_file, words, write_folder
from fedchord.remote.limits import measurements
from fedchord.remote.settings import ABOUT_ROWS, Fed, check_name, read_fed, read_nodes, read_party

OWNER = "deploy add"
CLIENTS = re.compile(r"^clients\s*=\s*\[[^\]]*\]", re.MULTILINE)


def add(folder: Path, node: str) -> New:
    """Make the folder of a new party in one that `init` made; it is the last client, and all others stay who they are.

    Its key is new, and it believes the same authority. What parties agreed on holds no more: with the facts of all, a
    new plan is made.
    """
    fed = read_fed(folder / "server" / "fed.toml")
    check_name(OWNER, "a node's name", node)
    require(node not in TAKEN, OWNER, f"a node cannot be called {node!r}, which is another folder's name")
    require(node not in fed.clients, OWNER, f"{node} is a party already")
    home = folder / node
    require(not home.exists(), OWNER, f"{home} is there already; nothing is overwritten")
    reason = blocked(home)
    require(not reason, OWNER, f"{home} cannot be written ({reason})")
    if fed.tls is None:
        raise FedchordError(f"{fed.path}: has no [tls]")
    server, keys = Pair(b"", _read(fed.tls.certificate)), read_nodes(fed.tls.nodes)
    new, key = _with(fed, folder, node), certificates.node_key(node)
    text = _read(fed.path).decode()
    require(len(CLIENTS.findall(text)) == 1, OWNER, f"{fed.path}: clients = [...] is not found; add {node!r} by hand")
    ca, told = Pair(b"", _read(fed.tls.ca)), words(new, server)
    with written(home) as beside:
        private = {"node.key": key.key, "secret": secrets.token_bytes(32)}
        write_folder(beside, node_files(new, ca, len(fed.clients), told), private)
    listed = {client: {"key": text} for client, text in keys.items()} | {node: {"key": key.shown.decode()}}
    replace_file(fed.tls.nodes, tomli_w.dumps(listed).encode(), 0o644)
    changed = CLIENTS.sub(lambda _: f"clients = {one_line(list(new.clients))}", text)
    replace_file(fed.path, changed.encode(), 0o644)
    for path, page in pages(new, told).items():
        replace_file(path, page, 0o644)
    return new


def _with(fed: Fed, folder: Path, node: str) -> New:
    """The federation with one party more, as `init` would have made it."""
    data = _data(fed, folder)
    shared = data.get("clients") is not None
    told = (
        f"the parties share the rows of {data.get('data')}; with one more everybody's are others: make a new federation"
    )
    require(not shared, OWNER, told)
    run = {
        key if key in (*ABOUT_ROWS, "data") else f"data.{key}": value for key, value in data.items() if key != "part"
    }
    config = RunConfig.from_values(run | fed.plan)
    plan: dict[str, Scalar] = {"method": config.method, "rounds": config.rounds, "seed": config.seed}
    plan |= fed.plan
    place, command = _service(fed, folder)
    asked = measurements(config.rounds, config.choices()["eval_every"])
    parties, where = (*fed.clients, node), fed.server
    return New(folder, fed.name, parties, where.host, where.port, plan, data, place, command, asked)


def _data(fed: Fed, folder: Path) -> dict[str, Any]:
    """How another party's rows are read, as far as its file is here; it is the new party's to correct."""
    for client in fed.clients:
        path = folder / client / "node.toml"
        if path.is_file():
            read_party(path)
            found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["data"]
            return found
    return {"data": "rows.csv"}


def _service(fed: Fed, folder: Path) -> tuple[str, str]:
    """Where machines keep the folder and the program, by the server's unit."""
    unit = folder / "server" / f"fedchord-{fed.name}-server.service"
    text = unit.read_text(encoding="utf-8") if unit.is_file() else ""
    place = re.search(rf"^WorkingDirectory=(.*)/{fed.name}-server$", text, re.MULTILINE)
    command = re.search(r"^ExecStart=(\S+) ", text, re.MULTILINE)
    return place[1] if place else PLACE, command[1] if command else ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise fail(OWNER, f"{path} is needed ({error.strerror})") from None
