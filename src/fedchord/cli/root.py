"""The command line. Heavy modules are imported inside the commands, so that help comes at once."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchord import __version__
from fedchord.check import FedchordError, FedchordWarning, require
from fedchord.cli import data, deploy, new, privacy, study, synth, thesis
from fedchord.cli.advise import advise
from fedchord.cli.compare import compare
from fedchord.cli.export import export
from fedchord.cli.figure import figure
from fedchord.cli.join import join
from fedchord.cli.plot import plot
from fedchord.cli.predict import predict
from fedchord.cli.rehearse import rehearse
from fedchord.cli.report import report
from fedchord.cli.run import resume, run
from fedchord.cli.serve import serve
from fedchord.cli.sweep import sweep
from fedchord.cli.table import table

app = typer.Typer(
    name="fedchord",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

SETTINGS = {"ignore_unknown_options": True}  # so that --rounds 5 is answered with how to write it
MISTYPED: type[Exception] = typer.BadParameter.__mro__[1]
"""UsageError, by what inherits from it: it is click's own, or that of the copy of click within newer typers."""


def main(arguments: list[str] | None = None) -> None:
    """The entry point: a user's mistake is one line and exit code 2, Ctrl-C is exit code 130."""
    # Idle threads of torch must sleep, not spin: beside the worker processes spinning costs up to ten times the run.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # typer then takes the name of the shell (--show-completion bash) instead of guessing it from the process above
    os.environ.setdefault("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    if _quiet():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (until this process ends)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", FedchordWarning)
            shown, warnings.showwarning = warnings.showwarning, lambda *told, **more: _warn(shown, *told, **more)
            code = app(args=arguments, prog_name="fedchord", standalone_mode=False)
            sys.stdout.flush()  # here, where a full disk is told in one line
    except BrokenPipeError:
        code = _unheard()
    except FedchordError as error:
        code = _complain(str(error))
    except MISTYPED as error:
        code = _explain(error)
    except OSError as error:
        code = _complain(f"{error.filename or 'output'}: {error.strerror or error}")
        if not error.filename:
            _unheard()  # else Python tries once more at its end
    sys.exit(code if isinstance(code, int) else 0)


def _warn(usual: Any, message: Warning | str, category: type[Warning], *told: Any, **more: Any) -> None:
    """A warning of ours is one line; others are shown as Python does."""
    if issubclass(category, FedchordWarning):
        if not _quiet():
            print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)
    else:
        usual(message, category, *told, **more)


def _unheard() -> int:
    """Whoever read the output went away, as head does: nothing more can be said, and nothing is wrong."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _quiet() -> bool:
    """Whether this is a process of a torchrun job that another one speaks for."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK", "0") != "0"


def _complain(text: str) -> int:
    if _quiet():
        return 2
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
      fedchord demo                              what it is for, on real digits
      fedchord list                              what can be named: methods, data, models, splits, keys
      fedchord run method=fedprox out=runs/a     one run, kept in a folder
      fedchord table runs/*                      compare runs

    Settings are key=value everywhere, and the same names in a TOML file. FEDCHORD_DATA names the folder of data sets.
    """


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the figures.")] = Path("."),
) -> None:
    """Show what fedchord is for on real digits, in under two minutes.

    Three parts: personal models (FedAvg, fine-tuned FedAvg, SuPerFed, local), fair mixing (equal weights, q-FedAvg,
    AAggFF) and a synthetic set (FedEvg). Prints a table and a sentence of each, and writes demo-personal.png,
    demo-fair.png and demo-synthetic.png.
    """
    from fedchord.files import blocked

    reason = f"{out} is a file" if out.is_file() else blocked(out)
    require(not reason, "demo", f"{out / 'demo.png'} cannot be written ({reason})")
    from fedchord.cli.demo import run_demo

    run_demo(out)


@app.command("list")
def list_names(
    what: Annotated[
        str,
        typer.Argument(metavar="[WHAT]", help="methods, mixings, servers, data, splits, models, loggers, keys or all."),
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


app.command(context_settings=SETTINGS)(run)
app.command(context_settings=SETTINGS)(resume)
app.command(context_settings=SETTINGS)(advise)
app.command()(predict)
app.command(context_settings=SETTINGS)(sweep)
app.command()(export)
app.command()(table)
app.command()(compare)
app.command()(plot)
app.command()(report)
app.command()(figure)
app.command(context_settings=SETTINGS)(rehearse)
app.command()(serve)
app.command()(join)
for group in (new, data, study, synth, privacy, thesis, deploy):
    group.register(app)
