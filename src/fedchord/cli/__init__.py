"""The command line: `root` has the program, the other files a command or a group of commands each."""

from fedchord.cli.root import app, main
from fedchord.cli.run import read_settings

__all__ = ["app", "main", "read_settings"]
