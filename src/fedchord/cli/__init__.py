"""The command line: `root` has the program, the other files a command each."""

from fedchord.cli.root import app, main, read_settings

__all__ = ["app", "main", "read_settings"]
