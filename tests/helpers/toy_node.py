"""A node without a method, as a client process of its own: it adds what it is told to the tensors it gets.

python -m helpers.toy_node '{"client": 0, "plan": "p", ...}' ADDRESS SECRET_FILE
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from fedchord.check import FedchordError
from fedchord.remote.parcel import Parcel


class ToyNode:
    """Answers "add" (facts: by), "slow" (seconds), "fail" (kind of failure), "die" (mark: a file), "grow" (bytes)."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def hello(self) -> Parcel:
        return Parcel({}, self.facts)

    def answer(self, kind: str, parcel: Parcel) -> Parcel:
        if kind == "slow":
            time.sleep(parcel.facts["seconds"])
        elif kind == "die" and not (mark := Path(parcel.facts["mark"])).exists():  # once
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "fail":
            raise OSError(28, "No space left on device") if parcel.facts["how"] == "disk" else FedchordError("not mine")
        elif kind == "grow":
            made = (torch.arange(parcel.facts["bytes"]) % 251).to(torch.uint8)  # Flower sends equal pieces only once
            return Parcel({"x": made})
        by = self.facts["client"] + parcel.facts.get("by", 0)
        return Parcel(
            {name: tensor + by for name, tensor in parcel.tensors.items()}, {"pid": os.getpid(), "at": time.time()}
        )


def main() -> None:
    from fedchord.remote.flower_client import Refused, attend
    from fedchord.remote.processes import live_with_parent, tell

    live_with_parent()
    facts, address, secret = sys.argv[1:4]
    try:
        attend(ToyNode(json.loads(facts)), address, Path(secret).read_bytes(), limit=10_000_000, say=tell)
    except Refused as error:
        tell(str(error))
        sys.exit(3 if error.final else 4)


if __name__ == "__main__":
    main()
