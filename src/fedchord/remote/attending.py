"""A party's node from its file, and the client process that keeps it: `python -m fedchord.remote.attending NODE.toml`
with the address of the SuperNode beside it and the file of their secret."""

from __future__ import annotations

import sys
from pathlib import Path

from fedchord.check import FedchordError, require
from fedchord.data import outline
from fedchord.remote.node import Node
from fedchord.remote.plan import Plan
from fedchord.remote.settings import Party, read_party


def open_node(party: Party) -> Node:
    """The node of a party: its plan, its rows, its memory, within its limits."""
    from fedchord.remote.rows import own_rows

    for path in (party.plan, party.outline):
        require(path.is_file(), party.name, f"{path} is missing; the federation's server gives it to every party")
    plan = Plan.read(party.plan.read_text(encoding="utf-8"), outline.load(party.outline))
    return Node(
        plan,
        party.client,
        own_rows(party.data, plan, party.client),
        party.memory,
        secret=party.secret.read_bytes() if party.secret.is_file() else b"",
        limits=party.limits,
        audit=party.audit,
    )


def main() -> None:
    """Answer the server until it refuses this node."""
    from fedchord.remote.flower_client import Refused, attend
    from fedchord.remote.joining import REFUSED, WAITS
    from fedchord.remote.processes import live_with_parent, tell

    live_with_parent()
    path, address, secret = sys.argv[1:4]
    try:
        node = open_node(read_party(path))
        attend(node, address, Path(secret).read_bytes(), say=tell)
    except Refused as error:
        tell(str(error))
        sys.exit(REFUSED if error.final else WAITS)
    except FedchordError as error:  # its own file, rows or limits: trying again does not help
        tell(str(error))
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
