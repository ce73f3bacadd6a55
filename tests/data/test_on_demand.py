"""Rows that lie on disk are read where they are used: whoever trains a few clients reads the rows of a few."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from fedchord import catalog
from fedchord.core.task import Task
from fedchord.core.training import Training
from fedchord.data import Iid, federate
from fedchord.data.federation import DataSet
from fedchord.engine.simulate import simulate
from fedchord.models import LogisticRegression

ROWS, SIDE = 400, 400


def resident(file: Path) -> int:
    """How many bytes of a mapped file are in this process's memory."""
    inside, found = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(str(file))
        elif inside and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux which pages are there")
def test_a_federation_reads_no_picture_and_a_round_those_of_its_clients(tmp_path):
    file = tmp_path / "x.bin"
    with file.open("wb") as stream:
        stream.truncate(ROWS * SIDE * SIDE)  # zeros that take no room
    x = torch.from_file(str(file), shared=False, size=ROWS * SIDE * SIDE, dtype=torch.uint8).reshape(
        ROWS, 1, SIDE, SIDE
    )
    data = DataSet("mapped", {"x": x, "y": torch.arange(ROWS) % 10}, 10)
    federation = federate(data, Iid(), num_clients=100, seed=1)
    assert resident(file) == 0
    task = Task(lambda: LogisticRegression(SIDE * SIDE, 10))
    plan = {"rounds": 1, "cohort": 1, "training": Training(batch=20), "executor": "serial"}
    list(simulate(catalog.build("fedavg"), task, federation, **plan))
    assert 0 < resident(file) < x.numel() / 4  # 3 or 4 of 400, and neighbours of pages, which Linux maps with them
    int(x[: ROWS // 2].sum())
    assert resident(file) > 0.45 * x.numel()  # the measure sees what is read
