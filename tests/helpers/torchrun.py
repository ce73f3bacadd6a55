"""Jobs of torchrun on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def job(processes: int, *program: object) -> subprocess.Popen[str]:
    """A job of torchrun on 127.0.0.1, on a port that it finds free."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    environment |= {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, *map(str, program)], env=environment, **pipes)


def done(processes: int, *program: object) -> str:
    """What a job that must succeed prints."""
    running = job(processes, *program)
    said, told = running.communicate(timeout=300)
    assert running.returncode == 0, told
    return said + told
