"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FORMAT_HELP = "rich (for the terminal, the default), markdown, latex or csv."
SCALE_HELP = "Which scale of the study: smoke, small (the default) or thesis."
OUT_HELP = "The folder of the study's runs; by default runs/NAME."

Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, patterns, or folders of run folders.")]
Name = Annotated[
    str, typer.Argument(metavar="FILE_or_NAME", help="A study file, or a built-in study (see study list).")
]
Pairs = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Run keys for all runs, and seeds=1,2.")
]
Format = Annotated[str, typer.Option("--format", help=FORMAT_HELP, show_default=False)]
Scale = Annotated[str | None, typer.Option("--scale", help=SCALE_HELP)]
Out = Annotated[Path | None, typer.Option("--out", help=OUT_HELP)]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Only this row or column, by its label; may be repeated.")
]
