"""Make an environment for every peer: `python benchmarks/peers.py [FOLDER] [NAME ...]`, by default all in .peers/.

Each gets packages by name from the index that pip is set up with, torch first and of one version, so that all compute
with the same kernels. One that is ready is left as it is. Then `benchmarks/run.py --peers FOLDER` runs them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

TORCH = "torch==2.13.0"
PACKAGES = {
    "fedjax": ("jax", "jaxlib", "fedjax==0.0.17"),
    "pfl": (TORCH, "pfl==0.6.0"),
    "flower": (TORCH, "flwr[simulation]>=1.41,<1.42"),
    "fluke": (TORCH, "fluke-fl==0.8.1"),
}
TRIES = {
    "fedjax": "jax",
    "pfl": "torch._dynamo, pfl.algorithm.federated_averaging",
    "flower": "torch._dynamo, flwr.simulation",
    "fluke": "torch._dynamo, fluke.algorithms.fedavg",
}
"""What must be importable in the end; importing it once also compiles it, which would fall into a first turn."""
BEFORE = {
    "fluke": """\
import torch

for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
}
"""What runs first in an environment: torchvision, whose compiled part is made for another build of torch, wants
operators of its own that nothing here calls; they are declared before it asks."""


def environment(folder: Path, name: str) -> Path:
    """The interpreter of a peer's environment, made where it is missing."""
    home = folder / name
    python, ready = home / "bin" / "python", home / "ready"
    wanted = "\n".join(PACKAGES[name])
    if ready.is_file() and ready.read_text() == wanted:
        return python
    ready.unlink(missing_ok=True)
    if not python.exists():
        venv.create(home, with_pip=True)
    for packages in dict.fromkeys([PACKAGES[name][:1], PACKAGES[name]]):  # torch goes first
        pip = [python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", *packages]
        subprocess.run(pip, check=True)
    if name in BEFORE:
        (library(home) / "sitecustomize.py").write_text(BEFORE[name])
    subprocess.run([python, "-c", f"import {TRIES[name]}"], check=True)
    ready.write_text(wanted)
    return python


def library(home: Path) -> Path:
    """Where the packages of an environment are."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home), "platbase": str(home)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".peers"))
    parser.add_argument("names", nargs="*", default=[*PACKAGES], help=", ".join(PACKAGES))
    options = parser.parse_args()
    failed = []
    for name in options.names:
        try:
            print(f"{name}: {environment(options.folder, name)}", flush=True)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"{name}: failed ({error})", file=sys.stderr, flush=True)
    if failed:
        raise SystemExit(f"no environment for {', '.join(failed)}")


if __name__ == "__main__":
    main()
