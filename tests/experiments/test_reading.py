"""The one reader of run folders: what it refuses, and that it needs no RunConfig."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from fedchord.check import FedchordError
from fedchord.engine.layout import LAYOUT
from fedchord.experiments import reading
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.loaded import Loaded

TINY = ["model=logreg", "clients=4", "cohort=2", "rounds=2", "executor=serial"]


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """A finished run."""
    runs.execute(RunConfig.from_pairs([*TINY, f"out={tmp_path / 'run'}"]))
    return tmp_path / "run"


def change(path: Path, **keys: object) -> None:
    """Change keys of a JSON file; None takes one away."""
    found = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def age(folder: Path) -> None:
    """Make a run what an earlier version wrote."""
    change(folder / "summary.json", layout=None)
    for manifest in folder.glob("checkpoints/round-*/manifest.json"):
        change(manifest, layout=None)


Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """A command of the whole command line: its exit code, and all it printed."""

    def run(*words: str) -> tuple[int, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what typer itself warns of
            from fedchord.cli import main

            with pytest.raises(SystemExit) as stopped:
                main(list(words))
        printed = capsys.readouterr()
        return int(stopped.value.code or 0), (printed.out + printed.err).strip()

    return run


def test_both_files_say_their_layout(done: Path) -> None:
    assert json.loads((done / "summary.json").read_text())["layout"] == LAYOUT == 2
    manifests = list(done.glob("checkpoints/round-*/manifest.json"))
    assert manifests and all(json.loads(path.read_text())["layout"] == LAYOUT for path in manifests)


COMMANDS = [
    ["table"],
    ["compare", "--bootstrap", "seeds"],
    ["plot", "--to", "figure.png"],
    ["plot", "--kind", "clients", "--to", "figure.png"],
    ["export"],
    ["resume"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("finished", [True, False])
def test_the_old_layout_is_refused_in_one_line(
    done: Path, said: Said, monkeypatch: pytest.MonkeyPatch, words: list[str], finished: bool
) -> None:
    monkeypatch.chdir(done.parent)
    age(done)
    if not finished:
        (done / "summary.json").unlink()
    before = sorted(path.name for path in done.rglob("*"))
    again = f"fedchord run {done}/config.toml out=ANOTHER"
    line = f"{done}: written by an earlier fedchord (layout 1); run it again: {again}"
    code, told = said(words[0], str(done), *words[1:])
    assert code == 2 and line in told and "\n" not in told
    assert sorted(path.name for path in done.rglob("*")) == before and not Path("figure.png").exists()


def test_what_a_figure_reads_is_refused_too_and_the_advice_works(done: Path, said: Said, tmp_path: Path) -> None:
    age(done)
    with pytest.raises(FedchordError, match=r"written by an earlier fedchord \(layout 1\)"):
        Loaded.of(done)
    code, _ = said("run", str(done / "config.toml"), f"out={tmp_path / 'another'}")
    assert code == 0 and reading.read(tmp_path / "another").summary["layout"] == LAYOUT


def test_a_later_layout_is_refused_as_such(done: Path) -> None:
    change(done / "summary.json", layout=3)
    with pytest.raises(FedchordError, match=r"written by a later fedchord \(layout 3\)"):
        reading.read(done)


def test_an_old_run_among_new_ones_is_named_and_left_out(done: Path, tmp_path: Path) -> None:
    runs.execute(RunConfig.from_pairs([*TINY, "method=local", f"out={tmp_path / 'old'}"]))
    age(tmp_path / "old")
    found, problems = reading.read_all([tmp_path])
    assert [run.folder for run in found] == [done]
    assert len(problems) == 1 and problems[0].startswith(f"{tmp_path / 'old'}: written by an earlier fedchord")


def test_a_place_with_an_old_run_is_taken(done: Path) -> None:
    age(done)
    with pytest.raises(FedchordError, match=r"already holds this run, finished \(method fedavg, seed 0\)"):
        runs.execute(RunConfig.from_pairs([*TINY, f"out={done}"]))


# -- runs made from Python -----------------------------------------------------------------------------------------


@pytest.fixture
def own(done: Path) -> Path:
    """A run whose settings no RunConfig takes: objects of somebody's own."""
    keys = {"made": "python", "method": "my-rule", "model": "MyNet", "clients": 4, "rounds": 2, "cohort": 2, "seed": 0}
    (done / "config.toml").write_text(tomli_w.dumps(keys))
    return done


def test_runs_from_python_are_read_like_any_other(
    own: Path, said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    runs.execute(RunConfig.from_pairs([*TINY, "seed=1", f"out={tmp_path / 'run2'}"]))
    assert reading.read(own).config["model"] == "MyNet"
    code, told = said("table", str(own), str(tmp_path / "run2"), "--format", "csv")
    assert code == 0 and "my-rule" in told
    assert said("plot", str(own), "--to", "figure.png")[0] == 0 and Path("figure.png").exists()
    assert said("compare", str(own), "--bootstrap", "seeds")[0] == 0


@pytest.mark.parametrize("command", ["resume", "export"])
def test_who_builds_them_again_is_sent_to_python(own: Path, said: Said, command: str) -> None:
    assert said(command, str(own)) == (
        2,
        f"error: {own}: made from Python with objects that its config.toml cannot make; go on there with fedchord.run",
    )


def test_their_place_is_taken(own: Path) -> None:
    with pytest.raises(FedchordError, match=r"already holds another run, finished \(method my-rule, seed 0\)"):
        runs.execute(RunConfig.from_pairs([*TINY, f"out={own}"]))


# -- rounds --------------------------------------------------------------------------------------------------------


def test_rounds_for_reading_and_for_going_on(tmp_path: Path) -> None:
    """1, 2, 2 again, 4, half of 5: one who looks sees 1, 2, 4, and so does one who goes on; 7 adds nothing up."""
    plain = {"seconds": 0.5, "bytes_up": 1, "bytes_down": 1}
    lines = [{"round": number, "a": a, **plain} for number, a in ((1, 1), (2, 2), (2, 3), (4, 4))]
    file = tmp_path / "rounds.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"round": 5, "co')
    assert [line["a"] for line in reading.rounds(reading.Run(tmp_path, {}))] == [1, 3, 4]
    assert [line["a"] for line in RunFolder(tmp_path).read_rounds()] == [1, 3, 4]
    assert reading.broken(tmp_path) == ()  # the last was being written
    file.write_text(json.dumps({"round": 7}) + "\nnonsense\n" + json.dumps({"round": True, **plain}) + "\n")
    assert (RunFolder(tmp_path).read_rounds(), reading.broken(tmp_path)) == ([], (1, 2, 3))
    file.unlink()
    assert RunFolder(tmp_path).read_rounds() == []
    with pytest.raises(FedchordError, match=r"rounds\.jsonl is missing"):
        reading.rounds(reading.Run(tmp_path, {}))
