"""The command `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.")],
    client: Annotated[int | None, typer.Option(help="A client's number: the model that client would use.")] = None,
    to: Annotated[Path | None, typer.Option(help="The file, .pt or .safetensors.", show_default="RUN/model.pt")] = None,
) -> None:
    """Write the model of a run as a plain state_dict.

    \b
      fedchord export runs/a                              the global model, as runs/a/model.pt
      fedchord export runs/a --client 3 --to c3.safetensors
    """
    from fedchord.experiments.export import export as write

    for line in write(folder, client, to):
        print(line)
