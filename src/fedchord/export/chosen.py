"""Which model of a run leaves: the global one, or the one a client would use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import nn

from fedchord.check import RowsMissing, require, unknown
from fedchord.data.federation import Federation
from fedchord.evaluation.fitted import Fitted
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.opened import Report, opened, with_rows
from fedchord.tensors import Tensors


@final
@dataclass(frozen=True)
class Chosen:
    """A model of a run, {"theta", "buffers"}, and the number of the client whose it is (None: the global one)."""

    folder: RunFolder
    config: RunConfig
    fitted: Fitted
    model: Tensors
    number: int | None = None

    @property
    def federation(self) -> Federation:
        """The clients of the run, with or without their rows."""
        return self.fitted.work.federation

    @property
    def client(self) -> str | None:
        """The name of the client."""
        return None if self.number is None else self.federation.client_names[self.number]

    @property
    def words(self) -> str:
        """Whose model it is."""
        return "the global model" if self.client is None else f"the model of client {self.client}"

    @property
    def module(self) -> nn.Module:
        """The network, with whatever weights it was last used."""
        return next(part for _, part in self.fitted.work.task.named_modules())

    def state(self) -> Tensors:
        """A plain state_dict."""
        return self.fitted.work.task.state_dict(self.model["theta"], self.model["buffers"])


def choose(path: str | Path, client: int | str | None = None, report: Report = lambda line: None) -> Chosen:
    """A model of a run by the client's name (in Python also by its number), or the global one.

    Rows are read only where the model cannot be had without them: for rules that train before use, and for BatchNorm
    statistics that are recomputed.
    """
    folder = RunFolder(path)
    config = folder.read_settings()
    algorithm = config.algorithm()
    ends = algorithm.outcome == "model"
    require(ends, "export", f"{config.method} ends with samples, not with a model; write fedchord synth export {path}")
    shares = client is not None or bool(algorithm.client.sends)
    require(shares, "export", f"{config.method} has no shared model; name a client")
    lines: list[str] = []
    fitted = opened(folder, config, lines.append)
    number = None if client is None else _number(fitted.work.federation.client_names, client)
    whole = len(fitted.state.broadcast["theta"]) == fitted.work.task.layout.size
    require(whole or number is not None, "export", f"{config.method} shares only a part of the model; name a client")
    model = fitted.state.broadcast
    if number is not None:
        try:
            model = fitted.deployed(number)
        except RowsMissing:
            fitted = with_rows(fitted, config)
            model = fitted.deployed(number)
    for line in [*lines, f"{config.method} after round {fitted.state.round} of {config.rounds}"]:
        report(line)
    chosen = Chosen(folder, config, fitted, model, number)
    if number is not None and not fitted.sampled(number):
        report(f"client {chosen.client} was never sampled")
    return chosen


def load_model(path: str | Path, client: int | str | None = None, report: Report = lambda line: None) -> Tensors:
    """The model of a run as a plain state_dict: the global one, or the one a client would use."""
    return choose(path, client, report).state()


def _number(names: tuple[str, ...], client: int | str) -> int:
    if isinstance(client, int):
        good = 0 <= client < len(names)
        require(good, "export", f"client must be a number from 0 to {len(names) - 1}, got {client}")
        return client
    if client not in names:
        raise unknown("client", client, names)
    return names.index(client)
