"""Help without stray markup, completion in the shell, and notes wrapped to the terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import warnings

import pytest

from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute

with warnings.catch_warnings():  # typer uses names that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import typer
    from typer.core import TyperGroup
    from typer.testing import CliRunner

    from fedchord.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

COMMAND = [sys.executable, "-m", "fedchord"]
MARKUP = re.compile(r"\\b|[\x08\x1b`]|\[/?(?:bold|dim|italic|red|green|yellow|cyan)\]|\*\*|\[/\]|:\w+:`")


def words(group: TyperGroup, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command and group, by the words that name it."""
    found = [before]
    for name, command in group.commands.items():
        below = (*before, name)
        found += words(command, below) if isinstance(command, TyperGroup) else [below]
    return found


def test_no_help_has_stray_markup():
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    every = words(root)
    assert len(every) > 25
    for names in every:
        shown = CliRunner().invoke(app, [*names, "--help"])
        assert shown.exit_code == 0, names
        assert not (stray := MARKUP.findall(shown.output)), f"{' '.join(names)} --help: {stray}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_completion(shell):
    shown = subprocess.run([*COMMAND, "--show-completion", shell], capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "fedchord" in shown.stdout and f"_FEDCHORD_COMPLETE=complete_{shell}" in shown.stdout


def test_completion_knows_the_commands():
    """What the script asks for when TAB is pressed."""
    asked = {"_FEDCHORD_COMPLETE": "complete_bash", "COMP_WORDS": "fedchord study r", "COMP_CWORD": "2"}
    shown = subprocess.run(COMMAND, capture_output=True, text=True, timeout=60, env=os.environ | asked)
    assert shown.stdout.split() == ["run"]


@pytest.mark.parametrize("wrong", [["--show-completion", "nonsense"], ["--show-completion"], ["--install-completion"]])
def test_a_wrong_shell_is_one_line(wrong):
    shown = subprocess.run([*COMMAND, *wrong], capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert len(shown.stderr.splitlines()) == 1 and shown.stderr.startswith("error: ")


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("runs") / "a")
    small = {"model": "logreg", "clients": 6, "cohort": 3, "rounds": 1, "executor": "serial", "out": folder}
    execute(RunConfig.from_values(small))
    return folder


def in_terminal(arguments: list[str], columns: int = 80) -> list[str]:
    """The lines a command shows in a terminal of so many columns, without colours."""
    ours, theirs = pty.openpty()
    env = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    shown = b""
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=subprocess.DEVNULL, env=env):
        os.close(theirs)
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the end of a terminal whose other side is closed
            pass
    os.close(ours)
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in shown.decode().splitlines()]


@pytest.mark.parametrize(("command", "columns"), [("resume", 80), ("table", 40)])
def test_notes_are_wrapped_between_words(command, columns, small_run):
    """Those of a run and those of a table; where there is no terminal each is one line."""
    plain = subprocess.run([*COMMAND, command, small_run], capture_output=True, text=True, timeout=60).stdout
    whole = plain.rstrip().rpartition("  \n")[2].splitlines()  # below the table
    assert max(map(len, whole)) > columns
    shown = in_terminal([command, small_run], columns)
    below = shown[-shown[::-1].index("") :]
    assert max(map(len, below)) <= columns and len(below) > len(whole)
    assert " ".join(below).split() == " ".join(whole).split()
