"""The model of a run as a file: a plain state_dict that needs no fedchord to be loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from fedchord.check import FedchordError, require
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.parts import Parts
from fedchord.files import blocked, written
from fedchord.tensors import Tensors

Report = Callable[[str], None]
SUFFIXES = (".pt", ".pth", ".safetensors")


def export(folder: str | Path, client: int | None = None, to: str | Path | None = None) -> list[str]:
    """Write the global model, or the one a client would use; returns lines that say what was written."""
    default = "model.pt" if client is None else f"model-client-{client}.pt"
    file = Path(to) if to is not None else Path(folder) / default
    require(file.suffix in SUFFIXES, "export", f"the file must end in .pt or .safetensors, got {str(file)!r}")
    reason = f"{file} is a folder" if file.is_dir() else blocked(file)
    require(not reason, "export", f"{file} cannot be written ({reason})")
    lines: list[str] = []
    state = load_model(folder, client, lines.append)
    try:
        with written(file) as partial:
            if file.suffix == ".safetensors":
                from safetensors.torch import save_file

                save_file(state, partial)
            else:
                torch.save(state, partial)
    except (OSError, RuntimeError) as error:  # torch tells of a full disk by the latter
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise FedchordError(f"export: {file} cannot be written ({reason})") from None
    whose = "the global model" if client is None else f"the model of client {client}"
    return [
        *lines,
        f"wrote {file}: {whose}, {sum(t.numel() for t in state.values()):,} numbers in {len(state)} tensors",
    ]


def load_model(path: str | Path, client: int | None = None, report: Report = lambda line: None) -> Tensors:
    """The model of a run as a plain state_dict: the global one, or the one a client would use."""
    folder = RunFolder(path)
    config = folder.read_config()
    parts, memory = Parts.build(config, "cpu"), ClientMemory()
    clients = parts.federation.num_clients
    ends = parts.algorithm.outcome == "model"
    require(ends, "export", f"{config.method} ends with samples, not with a model; write fedchord synth export {path}")
    if client is None:
        shares = bool(parts.algorithm.client.sends)
        require(shares, "export", f"{config.method} has no shared model; name a client")
    else:
        require(0 <= client < clients, "export", f"client must be a number from 0 to {clients - 1}, got {client}")
    found = checkpoint.load(folder.checkpoints, memory, config.fingerprint(), config.course())
    if found is None:
        raise FedchordError(f"{path}: has no checkpoint yet")
    for problem in found.problems:
        report(f"{problem}; taking the one before")
    report(f"{config.method} after round {found.state.round} of {config.rounds}")
    model = found.state.broadcast if client is None else Fitted(parts.work, found.state, memory).deployed(client)
    if client is not None and found.state.visits[client] == 0:
        report(f"client {client} was never sampled")
    whole = len(model["theta"]) == parts.task.layout.size
    require(whole, "export", f"{config.method} shares only a part of the model; name a client")
    return parts.task.state_dict(model["theta"], model["buffers"])
