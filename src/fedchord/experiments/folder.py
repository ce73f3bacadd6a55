"""The folder of a run:

config.toml      every setting; can be run again
data.safetensors what the data look like and how they were prepared, without a row of them
rounds.jsonl     one line per round, written as the round ends
rounds.damaged   what stood in rounds.jsonl when it was found damaged; summary.damaged likewise
summary.json     the results; written whole at the end, so that its presence means done
summary-N.json   the results after N rounds, of a run that was made longer since
checkpoints/     where the run can go on
synthetic.npz    the final set of a method that ends with samples; grid.png shows it, rows are classes
snapshots/       its sets at evaluations
tensorboard/     the numbers of the rounds once more, for TensorBoard (log=tensorboard)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedchord.check import FedchordError, require
from fedchord.data import outline
from fedchord.data.federation import Federation
from fedchord.data.outline import OUTLINE
from fedchord.experiments import reading
from fedchord.experiments.config import RunConfig
from fedchord.experiments.lock import LOCK, FolderLock
from fedchord.experiments.own import fingerprint_of
from fedchord.experiments.parts import Settings
from fedchord.experiments.reading import CHECKPOINTS, CONFIG, MADE, NOWHERE, ROUNDS, SERVED, SUMMARY, Line
from fedchord.experiments.settings import read_toml
from fedchord.files import add_text, blocked, flushed, made_folder, renamed, write_text
from fedchord.synthetic import look
from fedchord.synthetic.set import SET, SyntheticSet, load, save

LEFT_OVER = frozenset({LOCK, "error.txt", OUTLINE, f".{OUTLINE}.partial", f".{CONFIG}.partial"})
"""What a run that did not come to its first line may leave."""


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config, self.rounds = self.path / CONFIG, self.path / ROUNDS
        self.summary, self.checkpoints = self.path / SUMMARY, self.path / CHECKPOINTS
        self.samples, self.snapshots = self.path / SET, self.path / "snapshots"
        self.outline = self.path / OUTLINE
        self.lock = FolderLock(self.path)
        self._new: list[Path] = []

    @property
    def holds_run(self) -> bool:
        """Whether there is a run, begun or finished."""
        return any(part.exists() for part in (self.config, self.rounds, self.summary, self.checkpoints))

    @property
    def finished(self) -> bool:
        """Whether the run is done, and its results can be read."""
        return self.summary.is_file() and not reading.damaged(self.path)

    @property
    def hint(self) -> str:
        """How to go on."""
        return reading.hint(self.path)

    # -- settings --------------------------------------------------------------------------------------------------

    def read_values(self) -> dict[str, Any]:
        """The settings of the run that is here by key, whether they are the command's or those of own objects."""
        if not self.config.is_file():
            what = f"has no {CONFIG}, so it holds no run" if self.path.is_dir() else "no such folder"
            raise FedchordError(f"{self.path}: {what}")
        return read_toml(self.config)

    def read_config(self) -> RunConfig:
        """The settings of the run that is here; `out` is this folder, wherever it stood when the run began.

        A run that another layout wrote, or whose objects were made in Python, cannot be built again and is refused.
        """
        values = self.read_values()
        reading.check_layout(self.path)
        if values.get("made") == SERVED:
            raise FedchordError(f"{self.path}: made by a server whose clients were elsewhere; {self.hint}")
        if values.get("made") == MADE:
            told = "made from Python with objects that its config.toml cannot make; go on there with fedchord.run"
            raise FedchordError(f"{self.path}: {told}")
        return RunConfig.from_values(values).with_values(out=str(self.path))

    def read_settings(self) -> RunConfig:
        """The settings of the run that is here, for whoever uses its models and trains nothing: also where the clients
        were elsewhere."""
        values = self.read_values()
        if values.get("made") != SERVED:
            return self.read_config()
        reading.check_layout(self.path)
        known = {key: value for key, value in values.items() if key not in ("made", "plan", "executor", "weather")}
        return RunConfig.from_values(known | {"data": NOWHERE, "split": "iid", "out": str(self.path)})

    def fingerprint(self, rounds: int | None = None) -> str:
        """The fingerprint of the run that is here; or what it would be with another number of rounds."""
        values = self.read_values() | ({} if rounds is None else {"rounds": rounds})
        if values.get("made") in (MADE, SERVED):
            return fingerprint_of(values)
        return RunConfig.from_values(values).with_values(out=str(self.path)).fingerprint()

    def planned(self) -> int:
        """How many rounds the run that is here is to have."""
        return int(self.read_values().get("rounds", RunConfig.rounds))

    def done(self) -> int:
        """How many rounds are done: those that are written down, or those of the newest checkpoint."""
        return max([line["round"] for line in self.read_rounds()] + self.checkpoint_rounds(), default=0)

    def occupy(self) -> None:
        """Make the folder if need be, and lock it."""
        self._new = [part for part in (self.path, *self.path.parents) if not part.exists()]
        made_folder(self.path)
        try:
            self.lock.take()
        except FedchordError:
            self._leave()
            raise

    def write_outline(self, federation: Federation, ranges: bool) -> None:
        """Write down what the data look like, with the ranges of numbers if asked."""
        outline.save(federation, self.outline, ranges)

    def begin(self, config: Settings) -> None:
        """Write down the settings of a run."""
        told = {
            MADE: "made of objects in Python; fedchord.run(..., resume=True) goes on",
            SERVED: "made by a server whose clients were elsewhere; fedchord serve FED.toml --resume goes on",
        }.get(config.values().get("made", ""), f"fedchord run {self.config} out=ANOTHER_FOLDER runs this again")
        write_text(self.config, f"# {told}\n{config.to_toml()}")

    def discard(self) -> None:
        """Take back `occupy` and `begin` when the run could not start; folders that hold anything else stay."""
        for file in (self.config, self.outline):
            file.unlink(missing_ok=True)
        self.lock.give_back()
        self._leave()

    def _leave(self) -> None:
        """Take away the folders that were made here and hold nothing."""
        for folder in (self.checkpoints, *self._new):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def refuse(self, fingerprint: str) -> None:
        """The error where `out` is not free; `fingerprint` is that of the run that wants it."""
        if self.path.is_file():
            raise FedchordError(f"out: {self.path} is a file, not a folder")
        reason = blocked(self.path)
        require(not reason, "out", f"{self.path} cannot be written ({reason})")
        if not self.holds_run:
            self._refuse_foreign()
            return
        try:
            values, held = self.read_values(), self.fingerprint()
        except FedchordError:
            raise FedchordError(f"{self.path} already holds a run, whose config.toml cannot be read") from None
        which = f"(method {_name(values)}, seed {values.get('seed', 0)})"
        if not self.finished:
            raise FedchordError(f"{self.path} already holds a run {which}; choose another out, or {self.hint}")
        same = "this run" if held == fingerprint else "another run"
        see = f"fedchord table {self.path}"
        raise FedchordError(
            f"{self.path} already holds {same}, finished {which}; choose another out, or see it with: {see}"
        )

    def _refuse_foreign(self) -> None:
        """The error where `out` holds what no run wrote."""
        names = sorted(part.name for part in self.path.iterdir()) if self.path.is_dir() else []
        foreign = [name for name in names if name not in LEFT_OVER]
        if foreign:
            what = foreign[0] if len(foreign) == 1 else f"{foreign[0]} and {len(foreign) - 1} more"
            raise FedchordError(f"out: {self.path} is no run folder and not empty ({what}); choose another out")

    # -- rounds ----------------------------------------------------------------------------------------------------

    def read_rounds(self) -> list[Line]:
        """The rounds whose lines are whole, in order."""
        return reading.whole_rounds(self.path)

    def write_rounds(self, lines: Iterable[Line]) -> None:
        """Replace the rounds by these."""
        write_text(self.rounds, "".join(f"{encode(line)}\n" for line in lines))

    def add_round(self, line: Line) -> None:
        """Add a round; it is on its way to the disk when this returns."""
        add_text(self.rounds, f"{encode(line)}\n")

    def flush_rounds(self) -> None:
        """Bring the rounds that were added to the disk."""
        flushed([self.rounds] if self.rounds.is_file() else [])

    # -- results ---------------------------------------------------------------------------------------------------

    def read_summary(self) -> dict[str, Any]:
        """The results of a finished run."""
        return reading.read_summary(self.path)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write the results, whole or not at all."""
        write_text(self.summary, json.dumps(summary, indent=1, allow_nan=False) + "\n")

    def keep_damaged(self, file: Path) -> Path:
        """Give a damaged file another name, under which it is nothing but kept."""
        kept = file.with_suffix(".damaged")
        renamed(file, kept)
        return kept

    def put_aside(self) -> None:
        """Keep the results of a run that is to have other rounds as summary-ROUNDS.json; it is no longer finished."""
        if self.finished:
            kept = self.summary.with_name(f"{self.summary.stem}-{self.planned()}{self.summary.suffix}")
            renamed(self.summary, kept)

    # -- synthetic sets --------------------------------------------------------------------------------------------

    def add_snapshot(self, made: SyntheticSet, round: int) -> None:
        """Keep the set of a round."""
        save(made, self.snapshots / f"round-{round:06d}.npz")

    def write_samples(self, made: SyntheticSet) -> None:
        """Write the final set and, where samples are pictures, their grid."""
        save(made, self.samples)
        if len(made.shape) == 3 and made.shape[0] in (1, 3):
            look.write(look.grid(made), self.path / "grid.png")

    def read_snapshots(self) -> dict[int, SyntheticSet]:
        """The sets by round."""
        files = sorted(self.snapshots.glob("round-*.npz"))
        return {int(file.stem.removeprefix("round-")): load(file) for file in files}

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def checkpoint_rounds(self) -> list[int]:
        """The rounds after which there is a checkpoint."""
        names = [path.name.removeprefix("round-") for path in self.checkpoints.glob("round-*")]
        return sorted(int(name) for name in names if name.isdecimal())


def _name(values: dict[str, Any]) -> str:
    """The method and what was exchanged in it."""
    own = values.get("made") in (MADE, SERVED)
    parts = [f"{key}={values[key]}" for key in ("mixing", "server") if key in values and not own]
    return " ".join([str(values.get("method", "?")), *parts])


def encode(line: Line) -> str:
    """One line of JSON."""
    return json.dumps(line, allow_nan=False, separators=(", ", ": "))
