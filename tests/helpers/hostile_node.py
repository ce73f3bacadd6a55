"""A party's true node that is hostile, as a client process of its own.

python -m helpers.hostile_node ATTACK SCALE NODE.toml ADDRESS SECRET_FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedchord.attacks.attack import Attack
from fedchord.remote.attending import open_node
from fedchord.remote.hostile import HostileNode
from fedchord.remote.settings import read_party

if __name__ == "__main__":
    from fedchord.remote.flower_client import attend
    from fedchord.remote.processes import live_with_parent, tell

    live_with_parent()
    name, scale, path, address, secret = sys.argv[1:6]
    node = HostileNode(open_node(read_party(path)), Attack(name, scale=float(scale)))
    attend(node, address, Path(secret).read_bytes(), say=tell)
