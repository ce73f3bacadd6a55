"""The command `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    file: Annotated[Path, typer.Argument(metavar="FED.toml", help="The federation's file on its server.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the last checkpoint stands.")] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys: for trials on one machine.")
    ] = False,
) -> None:
    """Serve a federation whose parties keep their rows: Flower carries what they send.

    \b
      fedchord serve fed.toml             until all rounds are done
      fedchord serve fed.toml --resume    go on after an interruption, to the same bits

    Starts Flower's SuperLink beside it and ends it. A terminal shows who is there. Ctrl-C, or SIGTERM, ends it after
    the round; every round has a checkpoint. The run folder is that of any run: fedchord table and others read it.
    """
    from fedchord.remote.extra import need_flower

    need_flower("serve")
    from fedchord.remote.serving import serve_fed
    from fedchord.remote.settings import read_fed
    from fedchord.report.show import show_results

    fed = read_fed(file)
    show_results(serve_fed(fed, resume, insecure), str(fed.out))
