"""The command `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.")],
    client: Annotated[
        str | None, typer.Option(help="A client of the run, by its name: the model it would use.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="A folder, or a file (.pt, .safetensors) for the weights alone.", show_default="RUN/export"),
    ] = None,
    format: Annotated[str, typer.Option(help="torch, or onnx for a model.onnx in the folder as well.")] = "torch",
    replace: Annotated[bool, typer.Option("--replace", help="Write an earlier export anew.")] = False,
) -> None:
    """Write the model of a run as a folder that loads without fedchord.

    \b
      fedchord export runs/a                             the global model, as the folder runs/a/export
      fedchord export runs/a --client north --to north   the model that client north would use
      fedchord export runs/a --format onnx               with a model.onnx, run beside torch first
      fedchord export runs/a --to weights.safetensors    a plain state_dict in one file

    The folder holds the weights, the network's source, how rows are prepared, a predict.py for files of rows and a
    model card. It is loaded again and compared before it takes its place.
    """
    from fedchord.export.write import export as write

    for line in write(folder, client, to, format, replace):
        print(line)
