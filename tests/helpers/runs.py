"""What a run leaves, for tests that compare runs to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.experiments.folder import RunFolder


def everything(folder: Path) -> dict[str, Any]:
    """All that a run folder ends with but what the clock says and where it lies; tensors as bytes."""
    memory = ClientMemory()
    found = checkpoint.load(folder / "checkpoints", memory)
    assert found is not None
    state = found.state
    parts = {"broadcast": state.broadcast, "mixing": state.mixing, "server": state.server}
    parts |= {f"client {client}": memory.get(client) or {} for client in memory.clients()}
    tensors = {f"{part} {name}": tensor for part, group in parts.items() for name, tensor in group.items()}
    summary = json.loads((folder / "summary.json").read_text())
    for key in ("seconds", "finished"):
        del summary[key]
    del summary["config"]["out"]
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return {
        "round": state.round,
        "visits": state.visits.tolist(),
        "tensors": {name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in tensors.items()},
        "summary": summary,
        "lines": [{key: line[key] for key in line if key not in ("seconds", "elapsed")} for line in lines],
        "settings": {k: v for k, v in RunFolder(folder).read_values().items() if k != "out"},
    }
