"""Whether two run folders hold the same run, to the bit: global state, clients' memory, what was measured.

.venv/bin/python benchmarks/same_run.py RUN RUN
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file


def tensors(run: Path) -> dict[str, torch.Tensor]:
    """All that the last checkpoint holds, by file and name."""
    last = max((run / "checkpoints").glob("round-*"))
    files = [last / "state.safetensors", *(run / "checkpoints" / "memory").glob("client-*.safetensors")]
    return {f"{path.name} {name}": tensor for path in files for name, tensor in load_file(path).items()}


def lines(run: Path) -> list[dict[str, object]]:
    """The lines of all rounds, without seconds."""
    found = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "elapsed")} for line in found]


def main() -> None:
    one, two = (Path(name) for name in sys.argv[1:])
    a, b = tensors(one), tensors(two)
    other = sorted(a.keys() ^ b.keys()) + [n for n in a.keys() & b.keys() if not torch.equal(a[n], b[n])]
    numbers = sum(tensor.numel() for tensor in a.values())
    if other or lines(one) != lines(two):
        raise SystemExit(f"different: {', '.join(other[:5]) or 'lines of rounds'}")
    print(f"the same bits: {len(a)} tensors of {numbers} numbers, and the lines of {len(lines(one))} rounds")


if __name__ == "__main__":
    main()
