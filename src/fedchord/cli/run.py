"""The commands `run` and `resume`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedchord.check import FedchordError

if TYPE_CHECKING:
    from fedchord.experiments.config import RunConfig

Settings = Annotated[list[str] | None, typer.Argument(metavar="[key=value ...]", show_default=False)]


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

    fedchord list keys explains every key. Ctrl-C ends the run after the current round with a checkpoint.
    """
    from fedchord.experiments.progress import for_stream
    from fedchord.experiments.run import execute
    from fedchord.report.show import show_results

    config = read_settings(settings or [])
    show_results(execute(config, progress=for_stream()), config.out)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the run.")],
    settings: Settings = None,
) -> None:
    """Go on with an interrupted run, to the very result it would have had; or make a run longer.

    \b
      fedchord resume runs/a
      fedchord resume runs/a executor=serial     only what does not change the result can be changed
      fedchord resume runs/a rounds=100          and the number of rounds: a finished run goes on to more

    A longer run is, to the bit, the run that had so many rounds from the start. Where a rule asks for the number of all
    rounds (the start of SuPerFed's mixing, a share of them), that cannot be, and it is refused. summary.json is made
    anew; the old one stays as summary-50.json.
    """
    from fedchord.experiments.progress import for_stream
    from fedchord.experiments.run import resume as go_on
    from fedchord.report.show import show_results

    show_results(go_on(folder, settings or [], progress=for_stream()), str(folder))


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
