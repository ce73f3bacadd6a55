"""The command line. Heavy modules are imported inside the commands, so that help comes at once."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedchord import __version__
from fedchord.check import FedchordError
from fedchord.cli import data as data_commands
from fedchord.cli import synth
from fedchord.cli.commands import register

if TYPE_CHECKING:
    from fedchord.experiments.config import RunConfig

app = typer.Typer(
    name="fedchord",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
new = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

SETTINGS = {"ignore_unknown_options": True}  # so that --rounds 5 is answered with how to write it
Settings = Annotated[list[str] | None, typer.Argument(metavar="[key=value ...]", show_default=False)]
MISTYPED: type[Exception] = typer.BadParameter.__mro__[1]
"""UsageError, by what inherits from it: it is click's own, or that of the copy of click within newer typers."""


def main(arguments: list[str] | None = None) -> None:
    """The entry point: a user's mistake is one line and exit code 2, Ctrl-C is exit code 130."""
    # Idle threads of torch must sleep, not spin: beside the worker processes spinning costs up to ten times the run.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = app(args=arguments, prog_name="fedchord", standalone_mode=False)
    except FedchordError as error:
        code = _complain(str(error))
    except MISTYPED as error:
        code = _explain(error)
    except OSError as error:
        code = _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str) -> int:
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    return 2


def _explain(error: Any) -> int:
    """One line for what was mistyped; the help, which is an error of its own, where a command was given nothing."""
    text = str(error.format_message())
    if "Usage:" in text:
        print(text, file=sys.stderr)
        return int(error.exit_code)
    return _complain(f"{text.rstrip('.')}; see {error.ctx.command_path if error.ctx else 'fedchord'} --help")


def _version(asked: bool) -> None:
    if asked:
        print(f"fedchord {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated learning that works when clients differ.

    \b
    Start here:
      fedchord demo                              five methods on real digits, under a minute
      fedchord list                              what can be named: methods, data, models, splits, keys
      fedchord run method=fedprox out=runs/a     one run, kept in a folder
      fedchord table runs/*                      compare runs

    Settings are key=value everywhere, and the same names in a TOML file. FEDCHORD_DATA names the folder of data sets.
    """


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the figure.")] = Path("."),
) -> None:
    """Compare five methods on real digits, over three seeds, in under a minute.

    20 clients hold two of the ten classes each: local training, FedAvg, FedProx, SCAFFOLD and FedAdam. Prints a table
    and writes demo.png.
    """
    from fedchord.cli.demo import run_demo

    run_demo(out)


@app.command("list")
def list_names(
    what: Annotated[
        str, typer.Argument(metavar="[WHAT]", help="methods, mixings, servers, data, splits, models, keys or all.")
    ] = "all",
) -> None:
    """List what can be named, with parameters and their defaults.

    \b
      fedchord list             everything
      fedchord list methods     the methods and their parameters
      fedchord list keys        the settings of a run
    """
    from fedchord.cli.listing import lines, sections

    for number, section in enumerate(sections(what)):
        print("\n" * (number > 0) + "\n".join(lines(section)))


@app.command(context_settings=SETTINGS)
def run(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE.toml] [key=value ...]", show_default=False)
    ] = None,
) -> None:
    """Run one method on one federation.

    \b
      fedchord run                                          FedAvg on digits, nothing kept
      fedchord run method=fedprox method.mu=0.1 out=runs/a  another method, kept in runs/a
      fedchord run data=mnist split=dirichlet split.alpha=0.1 clients=100 rounds=50 cohort=5 seed=1 out=runs/b
      fedchord run method=fedprox mixing=uniform server=fedadam server.lr=0.01
      fedchord run runs/a/config.toml seed=2 out=runs/c     the settings of a file, some of them changed

    `fedchord list keys` explains every key. Ctrl-C ends the run after the current round with a checkpoint.
    """
    from fedchord.experiments.progress import for_stream
    from fedchord.experiments.run import execute
    from fedchord.report.show import show_results

    config = read_settings(settings or [])
    show_results(execute(config, progress=for_stream()), config.out)


@app.command(context_settings=SETTINGS)
def resume(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the run.")],
    settings: Settings = None,
) -> None:
    """Go on with an interrupted run, to the very result it would have had.

    \b
      fedchord resume runs/a
      fedchord resume runs/a executor=serial     only what does not change the result can be changed
    """
    from fedchord.experiments.progress import for_stream
    from fedchord.experiments.run import resume as go_on
    from fedchord.report.show import show_results

    show_results(go_on(folder, settings or [], progress=for_stream()), str(folder))


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.")],
    client: Annotated[int | None, typer.Option(help="A client's number: the model that client would use.")] = None,
    to: Annotated[Path | None, typer.Option(help="The file, .pt or .safetensors.", show_default="RUN/model.pt")] = None,
) -> None:
    """Write the model of a run as a plain state_dict.

    \b
      fedchord export runs/a                              the global model, as runs/a/model.pt
      fedchord export runs/a --client 3 --to c3.safetensors
    """
    from fedchord.experiments.export import export as write

    for line in write(folder, client, to):
        print(line)


@new.callback()
def new_root() -> None:
    """Start something of your own."""


@new.command("method")
def new_method(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and hyphens, such as my-rule.")],
    to: Annotated[Path, typer.Option(help="The folder for the two files.")] = Path("."),
) -> None:
    """Write a client rule and its test, ready to be edited.

    \b
      fedchord new method my-rule
      python -m pytest test_my_rule.py
    """
    from fedchord.cli.new import new_method as write

    rule, test = write(name, to)
    print(f"wrote {rule} and {test}")
    print(f"try: python -m pytest {test}; then edit what is marked EDIT in both")


app.add_typer(new, name="new")
data_commands.register(app)
register(app)
synth.register(app)


def read_settings(settings: list[str]) -> RunConfig:
    """A run from an optional TOML file and key=value texts."""
    from fedchord.experiments.config import RunConfig

    files = [text for text in settings if "=" not in text or (text.endswith(".toml") and Path(text).is_file())]
    pairs = [text for text in settings if text not in files]
    for text in files:
        if not text.endswith(".toml"):
            raise FedchordError(f"run: {text!r} is not a setting; write key=value, for example rounds=50, or FILE.toml")
    if len(files) > 1:
        raise FedchordError(f"run: one settings file is enough, got {' and '.join(files)}")
    say = partial(print, file=sys.stderr)
    return RunConfig.from_toml(files[0], pairs, say) if files else RunConfig.from_pairs(pairs)


if __name__ == "__main__":
    main()
