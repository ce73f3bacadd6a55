"""A command of the study group, run in this process."""

from __future__ import annotations

import warnings
from typing import Any


def invoke(*arguments: str) -> Any:
    """The result of a command; what typer itself warns of (names that click deprecates) is not our matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import typer
        from typer.testing import CliRunner

        from fedchord.cli import commands
        from fedchord.cli import data as data_commands

        app = typer.Typer()
        commands.register(app)
        data_commands.register(app)
        return CliRunner().invoke(app, list(arguments))
