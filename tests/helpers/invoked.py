"""A command, run in this process."""

from __future__ import annotations

import warnings
from typing import Any


def invoke(*arguments: str) -> Any:
    """The result of a command; what typer itself warns of (names that click deprecates) is not our matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from typer.testing import CliRunner

        from fedchord.cli import app

        return CliRunner().invoke(app, list(arguments))
