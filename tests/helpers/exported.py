"""Exported folders, used where importing fedchord fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import contextlib, json, runpy, sys
sys.modules["fedchord"] = None
for folder, rows, out in json.loads(sys.argv[1]):
    sys.path.insert(0, folder)
    sys.argv = ["predict.py", rows]
    with open(out, "w") as stream, open(out + ".err", "w") as aside:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(aside):
            try:
                runpy.run_path(folder + "/predict.py", run_name="__main__")
            except SystemExit as ended:
                print("exit", ended.code, file=sys.stderr)
    sys.path.remove(folder)
    for name in ("model", "rows", "network"):
        sys.modules.pop(name, None)
assert not [name for name in sys.modules if name.startswith("fedchord.")]
"""


def run_predict(jobs: list[tuple[Path, Path, Path]]) -> None:
    """Run predict.py of several folders, one after another in one process of its own: (folder, rows, out).

    It has one thread: how a convolution is shared out among threads changes its last digits."""
    told, alone = json.dumps([[str(part) for part in job] for job in jobs]), os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-I", "-c", SCRIPT, told]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=alone)
    assert done.returncode == 0, done.stderr
