"""The command `join`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def join(
    file: Annotated[Path, typer.Argument(metavar="NODE.toml", help="The party's file on its machine.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be sent, and send nothing.")] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys: for trials on one machine.")
    ] = False,
) -> None:
    """Take part in a federation with rows that stay here.

    \b
      fedchord join node.toml --dry-run   names, shapes and bytes of what would leave
      fedchord join node.toml             take part until it is stopped

    Starts Flower's SuperNode and a client process, and starts them again when they die; the server may come later. What
    is sent stands in the audit file, a line a message. Ctrl-C, or SIGTERM, ends it.
    """
    from fedchord.cli.printing import aside
    from fedchord.remote.extra import need_flower
    from fedchord.remote.settings import read_party

    party = read_party(file)
    if dry_run:
        from fedchord.remote.leaving import leaving

        for line in leaving(party):
            typer.echo(line)
        return
    need_flower("join")
    from fedchord.remote.joining import Joining, signalled

    with signalled() as stopped:
        Joining(party, ["fedchord.remote.attending", str(file.resolve())], insecure, aside).run(stopped)
