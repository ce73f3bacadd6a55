"""The model of a run as a file: a plain state_dict that needs no fedchord to be loaded."""

from __future__ import annotations

from pathlib import Path

import torch

from fedchord.check import FedchordError, require
from fedchord.experiments.run import load_model
from fedchord.files import written

SUFFIXES = (".pt", ".pth", ".safetensors")


def export(folder: str | Path, client: int | None = None, to: str | Path | None = None) -> list[str]:
    """Write the global model, or the one a client would use; returns lines that say what was written."""
    default = "model.pt" if client is None else f"model-client-{client}.pt"
    file = Path(to) if to is not None else Path(folder) / default
    require(file.suffix in SUFFIXES, "export", f"the file must end in .pt or .safetensors, got {str(file)!r}")
    lines: list[str] = []
    state = load_model(folder, client, lines.append)
    try:
        with written(file) as partial:
            if file.suffix == ".safetensors":
                from safetensors.torch import save_file

                save_file(state, partial)
            else:
                torch.save(state, partial)
    except OSError as error:
        raise FedchordError(f"export: {file} cannot be written ({error.strerror})") from None
    whose = "the global model" if client is None else f"the model of client {client}"
    return [
        *lines,
        f"wrote {file}: {whose}, {sum(t.numel() for t in state.values()):,} numbers in {len(state)} tensors",
    ]
