"""The same federation as a plain Flower app, for people who run Flower already: `flwr run` starts both halves.

Run settings: `federation`, the path of FED.toml on the machine of the SuperLink, and `resume`. Each SuperNode is given
its party's file by `--node-config 'party="/path/to/NODE.toml"'`. Flower starts a process for every message here, so a
round takes longer than under `fedchord serve`.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

import fedchord
from fedchord.check import FedchordError, require
from fedchord.files import blocked, written
from fedchord.remote.attending import open_node
from fedchord.remote.flower import GridTransport, pack, unpack
from fedchord.remote.flower_client import Refused, reply
from fedchord.remote.node import Node
from fedchord.remote.parcel import Parcel
from fedchord.remote.serve import serve
from fedchord.remote.serving import plan_of, registered, service_of
from fedchord.remote.settings import read_fed, read_party

APP = Path(__file__).with_name("app")

server = ServerApp()
client = ClientApp()


@server.main()
def _serve(grid: Grid, context: Context) -> None:
    fed = read_fed(str(context.run_config["federation"]))
    plan = plan_of(fed)
    expected = {"plan": plan.fingerprint, "version": fedchord.__version__}
    limit = int(fed.server.largest * 2**20)
    transport = GridTransport(grid, plan.clients, expected, registered(fed) if fed.tls else None, limit)
    resume = bool(context.run_config.get("resume", False))
    serve(plan, transport, fed.out, service=service_of(fed), resume=resume, report=print).finish()


@cache
def _node(path: str) -> Node:
    return open_node(read_party(path))


@client.query()
def _answer(message: Message, context: Context) -> Message:
    kind, answer = "refused", Parcel()
    try:
        asked, parcel = unpack(message.content, 2**30)
        kind, answer = reply(_node(str(context.node_config["party"])), asked, parcel, print)
    except Refused as error:
        print(error)
    except FedchordError as error:
        answer = Parcel({}, {"reason": str(error)})
    return Message(pack(kind, answer), reply_to=message)


def write_app(folder: Path) -> None:
    """Put the app into a new folder, for `flwr run FOLDER`."""
    require(not folder.exists(), "deploy app", f"{folder} is there already")
    reason = blocked(folder)
    require(not reason, "deploy app", f"{folder} cannot be written ({reason})")
    with written(folder) as beside:
        shutil.copytree(APP, beside, ignore=shutil.ignore_patterns("__pycache__"))
