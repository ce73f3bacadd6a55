"""The command `predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run, or a party's NODE.toml.")],
    rows: Annotated[
        Path,
        typer.Argument(metavar="ROWS", help="A .csv or .npz file like the training data, or a folder of pictures."),
    ],
    client: Annotated[str | None, typer.Option(help="A client of the run, by its name: its own model.")] = None,
    tune: Annotated[
        Path | None, typer.Option(help="Labelled rows of a new client, to train the global model on first.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs of that training.")] = 1,
    to: Annotated[Path | None, typer.Option(help="The .csv file to write.", show_default="standard output")] = None,
) -> None:
    """Labels and probabilities (or numbers) for new rows, prepared as the training rows were.

    \b
      fedchord predict runs/a new.csv --to out.csv           the global model, as for a new client
      fedchord predict runs/a new.csv --client north         the model that client north would use
      fedchord predict runs/a new.csv --tune labelled.csv    a new client's, trained on its labelled rows first
      fedchord predict node.toml new.csv                     at a party of a federation: its own model, where it is

    If the file has the run's client column, every row is asked of its own client's model. Rows of a known client are
    scaled by its training rows; those of a new one by themselves, or, if there are fewer than 20, by pooled statistics.
    """
    from fedchord.check import require
    from fedchord.cli.printing import aside
    from fedchord.experiments.predict import as_csv, measured, predict_file
    from fedchord.files import blocked, write_text

    if to is not None:
        reason = f"{to} is a folder" if to.is_dir() else blocked(to)
        require(not reason, "predict", f"{to} cannot be written ({reason})")
    require(client is None or tune is None, "predict", "a client of the run has its model; --tune is for a new one")
    if folder.suffix == ".toml":
        from fedchord.remote.predicting import predict_at
        from fedchord.remote.settings import read_party

        require(client is None and tune is None, "predict", "a party has one model; --client and --tune are for runs")
        asked, answered = predict_at(read_party(folder), rows, aside)
    else:
        asked, answered = predict_file(folder, rows, client, tune, epochs, aside)
    if line := measured(asked, answered):
        aside(line)
    text = as_csv(asked, answered)
    if to is None:
        sys.stdout.write(text)
        return
    write_text(to, text)
    aside(f"wrote {to}: {len(asked.names)} predictions")
