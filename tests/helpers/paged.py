"""A program for torchrun: a federation read once, what each process then has of it, and what goes wrong told by all."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from fedchord.check import FedchordError, fail
from fedchord.data import Federation, Iid, federate, from_arrays
from fedchord.engine.group import group_of
from fedchord.engine.pages import read_once

ROWS, WIDTH = 4000, 500


def numbers() -> torch.Tensor:
    """Eight million bytes that anyone can make again."""
    return (torch.arange(ROWS * WIDTH) % 251).to(torch.float32).reshape(ROWS, WIDTH)


def shared_part(tensor: torch.Tensor) -> tuple[int, int]:
    """The resident and the proportional kilobytes of the piece of memory that a tensor lies in, by the kernel."""
    found, inside = {}, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            low, high = (int(end, 16) for end in first.split("-"))
            inside = low <= tensor.data_ptr() < high
        elif inside and first in ("Rss:", "Pss:"):
            found[first] = int(line.split()[1])
    return found["Rss:"], found["Pss:"]


def left() -> list[str]:
    """What of ours has a name in the folder for temporary files."""
    return [name for name in os.listdir(sys.argv[2]) if name.startswith("fedchord")]


if __name__ == "__main__":
    out, group = Path(sys.argv[1]), group_of("ranks")
    made = 0

    def make() -> Federation:
        global made
        made += 1
        return federate(from_arrays(numbers(), torch.arange(ROWS) % 4), Iid(), 5, seed=2)

    def broken() -> Federation:
        raise fail("digits", "the file is gone")

    federation = read_once(group, make)
    x = federation.columns["x"]
    total = float(x.double().sum())  # every page is used
    torch.distributed.barrier()
    resident, share = shared_part(x)
    torch.distributed.barrier()
    x[0, 0] = 7.0 + group.rank  # stays here
    torch.distributed.barrier()
    told = {"made": made, "sum": total, "resident": resident, "share": share, "own": float(x[0, 0])}
    told |= {"rows": federation.train.rows.tolist(), "names": federation.client_names, "left": left()}
    try:
        read_once(group, broken)
    except FedchordError as error:
        told["error"] = str(error)
    told["left"] += left()
    (out / f"rank-{group.rank}.json").write_text(json.dumps(told))
