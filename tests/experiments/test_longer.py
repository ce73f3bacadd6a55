"""A run that is given more rounds: to the bits of a run that had them from the start, killed at any moment or not."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.federations import make_federation
from helpers.runs import everything

import fedchord
from fedchord import FedchordError, Training
from fedchord.clients.plain import Plain
from fedchord.core.per_client import PerClient
from fedchord.core.rules import Algorithm, ClientRule
from fedchord.core.task import Task
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.experiments import config as config_module
from fedchord.experiments import run as runs
from fedchord.experiments import study
from fedchord.experiments.config import RunConfig
from fedchord.experiments.progress import Silent
from fedchord.experiments.session import Run, Stopped
from fedchord.export.chosen import load_model
from fedchord.mixing.static import BySize
from fedchord.models import TwoNN
from fedchord.servers.step import Step

TINY = {"model": "logreg", "clients": 6, "cohort": 3, "executor": "serial", "checkpoint_every": 2, "eval_every": 2}


def tiny(out: Path, rounds: int, **more: Any) -> RunConfig:
    return RunConfig.from_values(TINY | {"rounds": rounds, "out": str(out)} | more)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(FedchordError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


class StopAfter(Silent):
    """Presses Ctrl-C when a round has ended."""

    def __init__(self, round: int) -> None:
        self.round = round

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        if round == self.round:
            signal.raise_signal(signal.SIGINT)


def begun(out: Path, rounds: int, stop: int, **more: Any) -> None:
    """A run that was stopped after some of its rounds."""
    with pytest.raises(Stopped):
        runs.execute(tiny(out, rounds, **more), progress=StopAfter(stop))


# -- the very bits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["serial", "processes"])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedadam", "aaggff-d", "ditto"])
def test_a_longer_run_is_the_long_run(tmp_path, method, executor):
    """Round 3 was the last and measured; in the long run it is not due."""
    more = {"method": method, "executor": executor, "workers": 2, "validation": 0.1}
    runs.execute(tiny(tmp_path / "long", 5, **more))
    short = runs.execute(tiny(tmp_path / "a", 3, **more))
    runs.resume(tmp_path / "a", ["rounds=5"])
    assert everything(tmp_path / "a") == everything(tmp_path / "long")
    assert json.loads((tmp_path / "a/summary-3.json").read_text()) == short
    names = ["checkpoints", "config.toml", "data.safetensors", "rounds.jsonl", "summary-3.json", "summary.json"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names


@pytest.mark.parametrize("every", [3, 2, 1, 0])
def test_the_line_of_the_former_last_round(tmp_path, every):
    """FedPer, where an evaluation on the way leaves out clients that never took part, and the last one does not."""
    more = {"method": "fedper", "model": "twonn", "cohort": 1, "eval_every": every}
    runs.execute(tiny(tmp_path / "long", 5, **more))
    runs.execute(tiny(tmp_path / "a", 3, **more))
    (before,) = (json.loads(line) for line in (tmp_path / "a/rounds.jsonl").read_text().splitlines()[2:])
    assert "metrics" in before and "left_out" not in before
    runs.resume(tmp_path / "a", ["rounds=5"])
    assert everything(tmp_path / "a") == everything(tmp_path / "long")
    line = everything(tmp_path / "a")["lines"][2]
    assert ("metrics" in line, "left_out" in line) == ((True, True) if every in (1, 3) else (False, False))


def test_longer_and_longer(tmp_path):
    runs.execute(tiny(tmp_path / "long", 6))
    runs.execute(tiny(tmp_path / "a", 2))
    for rounds in (3, 6):
        runs.resume(tmp_path / "a", [f"rounds={rounds}"])
    assert everything(tmp_path / "a") == everything(tmp_path / "long")
    kept = [json.loads((tmp_path / f"a/summary-{rounds}.json").read_text())["rounds"] for rounds in (2, 3)]
    assert kept == [2, 3]


@pytest.mark.parametrize(("rounds", "stop", "new"), [(4, 2, 6), (6, 3, 5), (6, 3, 3), (6, 4, 4)])
def test_an_unfinished_run_gets_another_number_of_rounds(tmp_path, rounds, stop, new):
    """Also fewer than were planned, as long as they are not done."""
    runs.execute(tiny(tmp_path / "whole", new))
    begun(tmp_path / "a", rounds, stop)
    runs.resume(tmp_path / "a", [f"rounds={new}"])
    assert everything(tmp_path / "a") == everything(tmp_path / "whole")
    assert not list((tmp_path / "a").glob("summary-*"))


def test_stopped_on_the_way_and_resumed_as_usual(tmp_path):
    runs.execute(tiny(tmp_path / "long", 7))
    runs.execute(tiny(tmp_path / "a", 3))
    with pytest.raises(Stopped, match=f"^stopped after round 5 of 7; go on with: fedchord resume {tmp_path / 'a'}$"):
        runs.resume(tmp_path / "a", ["rounds=7"], progress=StopAfter(5))
    assert not (tmp_path / "a/summary.json").exists()
    assert load_model(tmp_path / "a").keys() == load_model(tmp_path / "long").keys()
    runs.resume(tmp_path / "a")
    assert everything(tmp_path / "a") == everything(tmp_path / "long")


def test_a_method_that_ends_with_samples(tmp_path):
    for name, rounds in (("long", 4), ("a", 3)):
        runs.execute(tiny(tmp_path / name, rounds, method="fedcvae", model="cvae", **{"judge.steps": 5}))
    runs.resume(tmp_path / "a", ["rounds=4"])
    assert everything(tmp_path / "a") == everything(tmp_path / "long")
    assert (tmp_path / "a/synthetic.npz").read_bytes() == (tmp_path / "long/synthetic.npz").read_bytes()
    assert (tmp_path / "a/snapshots/round-000003.npz").exists()  # the set that the shorter run ended with


def test_a_start_round_is_fine_where_a_share_is_not(tmp_path):
    more = {"method": "superfed-mm", "model": "twonn", "method.start_round": 1}
    runs.execute(tiny(tmp_path / "long", 4, **more))
    runs.execute(tiny(tmp_path / "a", 3, **more))
    runs.resume(tmp_path / "a", ["rounds=4"])
    assert everything(tmp_path / "a") == everything(tmp_path / "long")


# -- what stays as it was ------------------------------------------------------------------------------------------


def test_how_often_it_is_measured_stays(tmp_path, monkeypatch):
    """The usual number of evaluations follows from the rounds: a run keeps the one it began with."""
    monkeypatch.setattr(config_module, "EVALUATIONS", 2)
    usual = {key: value for key, value in TINY.items() if key != "eval_every"}
    short, long = (RunConfig.from_values(usual | {"rounds": rounds}) for rounds in (4, 8))
    assert (short.choices()["eval_every"], long.choices()["eval_every"]) == (2, 4)
    runs.execute(short.with_values(out=str(tmp_path / "a")))
    runs.resume(tmp_path / "a", ["rounds=8"])
    runs.execute(long.with_values(out=str(tmp_path / "long"), eval_every=2))
    assert everything(tmp_path / "a") == everything(tmp_path / "long")


def test_lines_stay_where_it_is_measured_less_often_from_now_on(tmp_path):
    begun(tmp_path / "a", 6, 4)
    before = (tmp_path / "a/rounds.jsonl").read_text()
    runs.resume(tmp_path / "a", ["eval_every=0"])
    assert (tmp_path / "a/rounds.jsonl").read_text().startswith(before)


def test_the_same_number_of_rounds_changes_nothing(tmp_path):
    runs.execute(tiny(tmp_path / "a", 2))
    before, said = content(tmp_path / "a"), []
    runs.resume(tmp_path / "a", ["rounds=2"], report=said.append)
    assert said == [f"{tmp_path / 'a'} is finished; nothing was changed"]
    assert content(tmp_path / "a") == before


def test_a_study_does_not_take_a_longer_run_for_its_own(tmp_path):
    content = {"settings": TINY | {"rounds": 2}, "method": [{"method": "fedavg"}]}
    plan = study.plan(study.parse("toy", content))
    assert study.run(plan, tmp_path, say=lambda line: None).done == 1
    (job,) = plan.jobs
    runs.resume(tmp_path / job.folder, ["rounds=3"])
    assert plan.runs(tmp_path) == {}
    outcome = study.run(plan, tmp_path, say=lambda line: None)
    told = f"resume: {job.folder} has done 3 rounds; rounds must be at least that, got 2"
    assert (outcome.done, list(outcome.failed)) == (0, [told])
    assert json.loads((tmp_path / job.folder / "summary.json").read_text())["rounds"] == 3


# -- what is refused -----------------------------------------------------------------------------------------------


def test_fewer_rounds_than_are_done(tmp_path):
    runs.execute(tiny(tmp_path / "a", 3))
    begun(tmp_path / "b", 6, 3)
    for name in ("a", "b"):
        before = content(tmp_path / name)
        told = f"resume: {tmp_path / name} has done 3 rounds; rounds must be at least that, got 2"
        assert refused(lambda name=name: runs.resume(tmp_path / name, ["rounds=2"])) == told
        assert content(tmp_path / name) == before


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("superfed-mm", "superfed-mm starts to mix at a share of all rounds (method.warmup)"),
        ("superfed-stateless", "superfed-stateless starts to mix at a share of all rounds (method.warmup)"),
        ("fedevg", "fedevg lowers its steps until the last round (method.beta_end, method.repel_end)"),
    ],
)
def test_rules_to_which_the_number_of_rounds_matters(tmp_path, method, told):
    more = {"judge.steps": 2, "model": "smallconv:4"} if method == "fedevg" else {"model": "twonn"}
    runs.execute(tiny(tmp_path / "a", 2, method=method, **more))
    begun(tmp_path / "b", 4, 2, method=method, **more)
    for name, rounds, which in (("a", 3, "longer"), ("b", 5, "longer"), ("b", 3, "shorter")):
        before = content(tmp_path / name)
        line = refused(lambda name=name, rounds=rounds: runs.resume(tmp_path / name, [f"rounds={rounds}"]))
        assert line == f"resume: {told}; a {which} run is another run"
        assert content(tmp_path / name) == before
    runs.resume(tmp_path / "b")


def test_settings_that_were_edited_are_not_believed(tmp_path):
    """By hand, without the command: fewer rounds than the checkpoint has, and any other number where it matters."""
    runs.execute(tiny(tmp_path / "a", 4))
    runs.execute(tiny(tmp_path / "b", 4, method="superfed-mm", model="twonn"))
    for name, rounds in (("a", 2), ("b", 6)):
        file = tmp_path / name / "config.toml"
        file.write_text(file.read_text().replace("rounds = 4\n", f"rounds = {rounds}\n"))
        (tmp_path / name / "summary.json").unlink()
    folder = tmp_path / "a/checkpoints"
    assert refused(lambda: runs.resume(tmp_path / "a")) == f"{folder}: is of round 4, but the run has 2"
    assert "holds another run's checkpoints" in refused(lambda: runs.resume(tmp_path / "b"))


# -- from Python ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cooling(ClientRule):
    """Its update is the smaller the fewer rounds are left, and it does not say so."""

    late: bool = False

    def finish(self, trained, visit):
        upload, kept = super().finish(trained, visit)
        share = 1.0 if self.late and visit.info.round < 9 else 1 - visit.info.progress
        return fedchord.core.rules.Upload({"theta": share * upload.mix["theta"]}, upload.carry), kept


@dataclass(frozen=True)
class Told(Cooling):
    """The same, and says so."""

    horizon = "slows down until the last round"


def own(out: Path | None, rounds: int, rule: ClientRule | None = None, **more: Any) -> Run:
    """A run whose objects are made anew."""
    algorithm = Algorithm(rule or Plain(), BySize(), Step(), "mine")
    federation = make_federation([13, 20, 7, 31, 10, 5], test=8)
    settings = {"cohort": 3, "seed": 2, "executor": "serial", "eval_every": 2, "checkpoint_every": 1} | more
    training = Training(lr=0.2, batch=4)
    return fedchord.run(
        algorithm, Task(lambda: TwoNN(6, 5, 3)), federation, rounds=rounds, training=training, out=out, **settings
    )


def test_the_same_objects_with_more_rounds(tmp_path):
    own(tmp_path / "long", 5).finish()
    own(tmp_path / "a", 3).finish()
    told = refused(lambda: own(tmp_path / "a", 5))
    assert told.startswith(f"{tmp_path / 'a'} already holds another run, finished (method mine, seed 2)")
    longer = own(tmp_path / "a", 5, resume=True)
    assert json.loads((tmp_path / "a/summary.json").read_text())["rounds"] == 3  # nothing is done before it is asked
    assert [result.round for result in longer] == [4, 5]
    assert longer.summary["rounds"] == 5 and longer.fitted.state.round == 5
    assert everything(tmp_path / "a") == everything(tmp_path / "long")
    told = f"resume: {tmp_path / 'a'} has done 5 rounds; rounds must be at least that, got 4"
    assert refused(lambda: own(tmp_path / "a", 4, resume=True)) == told


def test_a_rule_of_your_own_that_asks_for_the_number_of_rounds(tmp_path):
    own(tmp_path / "a", 3, Cooling()).finish()
    own(tmp_path / "b", 3, Told()).finish()
    before = content(tmp_path)
    asks = (
        "resume: a rule of mine asks for the number of all rounds (RoundInfo.rounds) and says in no `horizon` what for"
    )
    assert refused(own(tmp_path / "a", 4, Cooling(), resume=True).finish).startswith(asks)
    told = "resume: mine slows down until the last round; a longer run is another run"
    assert refused(lambda: own(tmp_path / "b", 4, Told(), resume=True)) == told
    assert content(tmp_path) == before


# -- killed at any moment ------------------------------------------------------------------------------------------


def killed(at: int, after: bool, call: Callable[[], object]) -> bool:
    """Do it in a process that is killed before, or right after, its `at`-th rename; whether it was."""
    child = os.fork()
    if child == 0:
        rename, count = os.replace, 0

        def counted(one: Any, other: Any) -> None:
            nonlocal count
            count += 1
            if count == at and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(one, other)
            if count == at and after:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = counted
        try:
            call()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_a_kill_between_any_two_writes(tmp_path, finished, after):
    """Every file of a run takes its place by a rename: settings, lines, checkpoints, summaries. After each of them the
    run goes on, without another word and when it is told once more, to the very result."""
    more = {"method": "ditto", "checkpoint_every": 1, "cohort": 1, "validation": 0.1}
    runs.execute(tiny(tmp_path / "long", 4, **more))
    whole, old = everything(tmp_path / "long"), 2 if finished else 3
    if finished:
        runs.execute(tiny(tmp_path / "a", old, **more))
    else:
        begun(tmp_path / "a", old, 2, **more)
    lengths, dead = [], True
    while dead:
        folder = tmp_path / f"{len(lengths)}"
        shutil.copytree(tmp_path / "a", folder)
        dead = killed(len(lengths) + 1, after, lambda folder=folder: runs.resume(folder, ["rounds=4"]))
        lengths.append(runs.resume(folder)["rounds"])
        runs.resume(folder, ["rounds=4"])
        assert everything(folder) == whole, f"killed {'after' if after else 'before'} rename {len(lengths)}"
        assert (folder / f"summary-{old}.json").exists() == (finished or lengths[-1] == old)
    first = 4 if after and not finished else old  # without a summary to put aside the settings come first
    assert lengths[0] == first and lengths[-1] == 4 and sorted(lengths) == lengths
    assert len(lengths) > 6


def test_checkpoints_of_a_version_without_courses(tmp_path):
    runs.execute(tiny(tmp_path / "long", 5))
    runs.execute(tiny(tmp_path / "a", 3))
    for path in (tmp_path / "a/checkpoints").glob("round-*/manifest.json"):
        manifest = json.loads(path.read_text())
        assert len(manifest.pop("course")) == 64
        path.write_text(json.dumps(manifest))
    assert load_model(tmp_path / "a") and runs.resume(tmp_path / "a")["rounds"] == 3
    killed(2, True, lambda: runs.resume(tmp_path / "a", ["rounds=5"]))
    runs.resume(tmp_path / "a", ["rounds=5"])
    assert everything(tmp_path / "a") == everything(tmp_path / "long")


def test_the_checkpoint_of_another_run_is_refused_by_both_marks(tmp_path):
    memory, state = ClientMemory(), fedchord.core.rules.ServerState(1, {}, {}, {}, PerClient.filled(2, 0, torch.int32))
    checkpoint.save(tmp_path, state, memory, "a", "x")
    for marks in (("a", ""), ("a", "x"), ("b", "x"), (None, "")):
        assert checkpoint.load(tmp_path, memory, *marks) is not None
    for marks in (("b", ""), ("b", "y")):
        assert "holds another run's checkpoints" in refused(
            lambda marks=marks: checkpoint.load(tmp_path, memory, *marks)
        )
    checkpoint.save(tmp_path, state, memory, "a")
    assert "holds another run's checkpoints" in refused(lambda: checkpoint.load(tmp_path, memory, "b", ""))
