"""A party's true node that answers every round with its answer of the first, as a client process of its own.

python -m helpers.replaying_node NODE.toml ADDRESS SECRET_FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedchord.remote.attending import open_node
from fedchord.remote.parcel import Parcel
from fedchord.remote.settings import read_party


class Replaying:
    """Keeps its first answer to every kind of question."""

    def __init__(self, path: str) -> None:
        self._node, self._kept = open_node(read_party(path)), dict[str, Parcel]()

    def hello(self) -> Parcel:
        return self._node.hello()

    def answer(self, kind: str, parcel: Parcel) -> Parcel:
        answer = self._node.answer(kind, parcel)
        return self._kept.setdefault(kind, answer) if kind == "train" else answer


if __name__ == "__main__":
    from fedchord.remote.flower_client import attend
    from fedchord.remote.processes import live_with_parent, tell

    live_with_parent()
    attend(Replaying(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).read_bytes(), say=tell)
