"""Loggers: they hear the lines of the folder, each round once, and cannot harm the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.federations import make_federation
from torch import nn

import fedchord
from fedchord import FedchordError, Task, Training, plugins
from fedchord.clients.plain import Plain
from fedchord.core.rules import Algorithm, ClientRule
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.reading import flat
from fedchord.experiments.session import Run
from fedchord.mixing.static import BySize
from fedchord.servers.step import Step

SMALL = ["clients=4", "cohort=2", "rounds=4", "executor=serial", "model=logreg", "eval_every=2", "checkpoint_every=2"]

OWN = """
import json

class Kept:
    def begin(self, facts): self.file = open("told.jsonl", "a"); self.write("begin", facts["done"])
    def round(self, line): self.write("round", line["round"])
    def end(self, summary): self.write("end", len(summary)); self.file.close()
    def write(self, *told): print(json.dumps(told), file=self.file)

def build(): return Kept()
made = Kept()
class Broken:
    def __init__(self): raise RuntimeError("no such\\nserver")
class Deaf:
    def begin(self, facts): ...
    def round(self, line): ...
"""


class Heard:
    """Remembers what it was told."""

    def __init__(self, fails_at: str = "", spoils: bool = False) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self._fails_at, self._spoils = fails_at, spoils

    def begin(self, facts: dict[str, Any]) -> None:
        self._hear("begin", facts)

    def round(self, line: dict[str, Any]) -> None:
        self._hear(f"round {line['round']}", line)

    def end(self, summary: dict[str, Any]) -> None:
        self._hear("end", summary)

    def _hear(self, what: str, told: dict[str, Any]) -> None:
        self.told.append((what, json.loads(json.dumps(told))))
        if what == self._fails_at:
            raise ConnectionError("the server\nis gone")
        if self._spoils:
            told.clear()

    @property
    def words(self) -> list[str]:
        return [what for what, _ in self.told]


def own(**changes: Any) -> Run:
    algorithm = Algorithm(changes.pop("rule", Plain()), BySize(), Step(), "mine")
    settings = {"rounds": 6, "cohort": 3, "seed": 2, "executor": "serial", "eval_every": 2, "checkpoint_every": 2}
    federation = make_federation([13, 20, 7, 31], test=8)
    training = Training(lr=0.2, batch=4)
    return fedchord.run(algorithm, Task(lambda: nn.Linear(6, 3)), federation, training=training, **settings | changes)


def some(run: Run, rounds: int) -> None:
    for done, _ in enumerate(run, 1):
        if done == rounds:
            break


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def test_a_logger_hears_what_the_folder_gets(tmp_path):
    heard, out = Heard(), tmp_path / "a"
    run = own(out=out, loggers=[heard])
    assert heard.told == []
    run.finish()
    assert heard.words == ["begin", *(f"round {number}" for number in range(1, 7)), "end"]
    facts, *rounds, summary = (told for _, told in heard.told)
    assert rounds == lines_of(out) and summary == json.loads((out / "summary.json").read_text())
    assert facts == {"config": summary["config"], "out": str(out), "rounds": 6, "done": 0}
    assert list(own(out=out, loggers=[again := Heard()], resume=True)) == [] and again.told == []


def test_without_a_folder_it_hears_the_same(tmp_path):
    kept, free = Heard(), Heard()
    own(out=tmp_path / "a", loggers=[kept]).finish()
    own(loggers=[free]).finish()
    assert free.words == kept.words and free.told[0][1]["out"] is None
    clock = {"seconds", "elapsed"}
    for (_, one), (_, other) in zip(kept.told[1:-1], free.told[1:-1], strict=True):
        assert {k: v for k, v in one.items() if k not in clock} == {k: v for k, v in other.items() if k not in clock}


def test_a_run_that_goes_on_tells_no_round_twice(tmp_path):
    """Stopped after round 4, where there is a checkpoint, and gone on with in another object."""
    first, second, out = Heard(), Heard(), tmp_path / "a"
    some(own(out=out, loggers=[first]), 4)
    assert first.words == ["begin", "round 1", "round 2", "round 3", "round 4", "end"] and first.told[-1][1] == {}
    own(out=out, loggers=[second], resume=True).finish()
    assert second.words == ["begin", "round 5", "round 6", "end"] and second.told[0][1]["done"] == 4
    assert [told for what, told in (*first.told, *second.told) if what.startswith("round")] == lines_of(out)


def test_rounds_after_the_last_checkpoint_come_again_and_it_is_told_which(tmp_path):
    heard, out = Heard(), tmp_path / "a"
    run = own(out=out, loggers=[heard])
    some(run, 3)
    run.finish()
    again = heard.words.index("begin", 1)
    assert heard.words[again:] == ["begin", *(f"round {number}" for number in range(3, 7)), "end"]
    done = heard.told[again][1]["done"]
    assert done == 2
    kept = [told for what, told in heard.told[:again] if what.startswith("round") and told["round"] <= done]
    assert kept + [told for _, told in heard.told[again + 1 : -1]] == lines_of(out)


@pytest.mark.parametrize("when", ["begin", "round 2", "end"])
def test_a_logger_that_fails_is_named_once_and_the_run_goes_on(when, tmp_path):
    bad, good, said = Heard(fails_at=when), Heard(), []
    summary = own(loggers=[bad, good], report=said.append).finish()
    assert said == [f"log: Heard failed at {when} and is told no more; ConnectionError: the server is gone"]
    assert bad.words[-1] == when and good.words[-1] == "end" and len(good.words) == 8
    assert summary["metrics"] == own().finish()["metrics"]


def test_a_silent_run_warns_of_it():
    with pytest.warns(RuntimeWarning, match="log: Heard failed at round 1 and is told no more") as caught:
        own(loggers=[Heard(fails_at="round 1")]).finish()
    assert len(caught) == 1


def test_what_a_logger_does_to_its_lines_stays_with_it(tmp_path):
    own(out=tmp_path / "a", loggers=[Heard(spoils=True)]).finish()
    plain = own(out=tmp_path / "b").finish()
    for one, other in zip(lines_of(tmp_path / "a"), lines_of(tmp_path / "b"), strict=True):
        assert one["cohort"] == other["cohort"] and one.get("metrics") == other.get("metrics")
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["bytes"] == plain["bytes"]


@dataclass(frozen=True)
class Failing(ClientRule):
    """Refuses to train."""

    def phases(self, visit):
        raise FedchordError("Failing: I will not")


def test_a_run_that_cannot_start_tells_nothing_and_leaves_nothing(tmp_path):
    heard = Heard()
    with pytest.raises(FedchordError, match="I will not"):
        own(rule=Failing(), out=tmp_path / "a", loggers=[heard]).finish()
    assert heard.told == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "what, got", [(Heard, "the class Heard"), (print, "a builtin_function_or_method"), (3, "a int")]
)
def test_what_is_no_logger_is_refused(what, got):
    words = f"loggers: a logger is an object with the methods begin, round and end, got {got}"
    with pytest.raises(FedchordError) as caught:
        own(loggers=[what])
    assert str(caught.value) == words


def test_numbers_by_their_path():
    line = {"round": 3, "cohort": [1, 2], "losses": None, "log": {"cosine": None, "norm": 0.5, "done": True}}
    line |= {"metrics": {"top1": {"mean": 0.25, "std": 0.0}, "loss": {"mean": 1.5}}}
    expected = {"round": 3.0, "log/norm": 0.5, "metrics/top1/mean": 0.25, "metrics/top1/std": 0.0}
    assert flat(line) == expected | {"metrics/loss/mean": 1.5}


# -- by name -------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder with a file of loggers, and an installed package that offers one of them."""
    monkeypatch.chdir(tmp_path)
    Path("my_log.py").write_text(OWN)
    metadata = tmp_path / "site" / "fed_log-2.0.dist-info"
    metadata.mkdir(parents=True)
    (tmp_path / "site" / "fed_log.py").write_text(OWN)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fed-log\nVersion: 2.0\n")
    (metadata / "entry_points.txt").write_text("[fedchord.loggers]\nkept = fed_log:Kept\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    plugins.installed.cache_clear()
    yield tmp_path
    plugins.installed.cache_clear()


def config(*pairs: str) -> RunConfig:
    return RunConfig.from_pairs([*SMALL, *pairs])


def told() -> list[Any]:
    return [json.loads(line) for line in Path("told.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["my_log.py:Kept", "my_log.py:build", "my_log.py:made", "kept"])
def test_loggers_of_files_and_packages(here, name):
    summary = runs.execute(config(f"log={name}"))
    rounds = [["round", number] for number in range(1, 5)]
    assert told() == [["begin", 0], *rounds, ["end", len(summary)]]
    assert summary["config"]["log"] == (name,)


def test_two_at_once(here):
    runs.execute(config("log=kept,my_log.py:Kept"))
    assert sorted(map(str, told()))[:2] == ["['begin', 0]", "['begin', 0]"] and len(told()) == 12


def test_the_key_changes_no_result_and_can_be_changed_when_a_run_goes_on(here):
    asked = config("log=my_log.py:Kept", "out=a")
    assert asked.fingerprint() == config("out=a").fingerprint() == config("log=none").fingerprint()
    assert config("log=none").log is None and "log" not in config("log=none").values()
    runs.execute(asked)
    Path("a/summary.json").unlink()
    Path("my_log.py").unlink()
    with pytest.raises(FedchordError, match=r"log: my_log.py: no such file"):
        runs.resume("a")
    summary = runs.resume("a", ["log=kept"])
    assert told()[-2:] == [["begin", 4], ["end", len(summary)]]  # every round was done: the end alone is new
    Path("a/summary.json").unlink()
    assert runs.resume("a", ["log=none"])["rounds"] == 4


@pytest.mark.parametrize("pairs, words", [
    (["log=tensorbord"], r"unknown logger 'tensorbord'; did you mean 'tensorboard'\? \(known: kept, tensorboard\)"),
    (["log=my_log.py"], "log=my_log.py: name what is in the file, such as log=my_log.py:Log"),
    (["log=my_log.py:Kapt"], "unknown name in my_log.py 'Kapt'; did you mean 'Kept'?"),
    (["log=my_log.py:Broken"], r"my_log.py:Broken: line \d+: RuntimeError: no such server"),
    (["log=my_log.py:Deaf"], "my_log.py:Deaf: a logger is an object with the methods begin, round and end, got a Deaf"),
    (["log=my_log.py:json"], "a logger is an object with the methods begin, round and end, got a module"),
    (["log=tensorboard"], "run: log=tensorboard writes into the run's folder; add out=FOLDER"),
    (["log=3"], "run: log must be names such as tensorboard,my_log.py:Log, got 3"),
])  # fmt: skip
def test_mistakes_are_one_line_and_leave_nothing(here, pairs, words):
    with pytest.raises(FedchordError, match=words) as caught:
        runs.execute(config(*pairs))
    assert "\n" not in str(caught.value) and not Path("told.jsonl").exists()
