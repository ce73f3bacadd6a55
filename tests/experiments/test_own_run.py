"""Runs of own objects from Python: the folder, going on, what is refused, and the reports that read such folders."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from helpers.federations import make_federation
from torch import Tensor, nn

import fedchord
from fedchord import FedchordError, Training, evaluate, simulate
from fedchord.core.rules import LINE, Algorithm, ClientRule, Deployed, Line, shared_model
from fedchord.core.task import Task
from fedchord.experiments import reading
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.round import Round
from fedchord.experiments.session import Run
from fedchord.mixing.static import BySize
from fedchord.report import compare, formats, plots, rows, tables
from fedchord.servers.step import Step

FEDERATION = make_federation([13, 20, 7, 31, 10, 5], test=8)


class Net(nn.Module):
    """A model that the library does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(x)))


@dataclass(frozen=True)
class Pulled(ClientRule):
    """Local steps with a pull toward where the client last ended; it deploys a point between there and the model."""

    deploys: ClassVar[Deployed] = Deployed("a point between the global model and the client's last", LINE)
    pull: float = 0.1

    def init(self, task, shared, key):
        return {"last": shared["theta"]}

    def direction(self, trained, visit, batch, key):
        slope = visit.slope(trained, batch, key)
        return slope | {"theta": slope["theta"] + self.pull * (trained["theta"] - visit.own["last"])}

    def finish(self, trained, visit):
        upload, _ = super().finish(trained, visit)
        return upload, {"last": trained["theta"]}

    def deploy(self, task, shared, own):
        return Line(shared["theta"], own["last"], 0.5, shared["buffers"]) if own else shared_model(shared)


def own(**changes: Any) -> Run:
    """A run whose objects are made anew."""
    pull, lr = changes.pop("pull", 0.1), changes.pop("lr", 0.2)
    algorithm = Algorithm(Pulled(pull), BySize(), Step(), "pulled")
    training = Training(lr=lr, batch=4, momentum=0.5)
    federation = changes.pop("federation", None) or make_federation([13, 20, 7, 31, 10, 5], test=8)
    settings = {"rounds": 6, "cohort": 3, "seed": 2, "executor": "serial", "eval_every": 2, "checkpoint_every": 1}
    return fedchord.run(algorithm, Task(changes.pop("model", Net)), federation, training=training, **settings | changes)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The rounds without what the clock says."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "elapsed")} for line in lines]


def lasting(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without what the clock says and where it lies."""
    config = {key: value for key, value in summary["config"].items() if key not in ("out", "executor")}
    kept = {key: value for key, value in summary.items() if key not in ("seconds", "finished", "config", "executor")}
    return kept | {"config": config}


def assert_same(one: Run, other: Run) -> None:
    """Two finished runs, to the bit."""
    left, right = one.fitted, other.fitted
    for name, tensor in left.state.broadcast.items():
        assert torch.equal(tensor, right.state.broadcast[name]), name
    assert left.state.visits.tolist() == right.state.visits.tolist() and left.memory.clients() == right.memory.clients()
    for client in left.memory.clients():
        assert torch.equal(left.memory.get(client)["last"], right.memory.get(client)["last"]), client
    assert lasting(one.summary) == lasting(other.summary)


def some(run: Run, rounds: int) -> list[Round]:
    """Iterate, and stop after some rounds."""
    done: list[Round] = []
    for result in run:
        done.append(result)
        if len(done) == rounds:
            break
    return done


def refused(call: Any) -> str:
    with pytest.raises(FedchordError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Iterator[tuple[Path, Run, list[Round]]]:
    """A run that was left alone, in a folder."""
    out = tmp_path_factory.mktemp("own") / "a"
    run = own(out=out)
    assert (run.summary, run.fitted, run.evaluation) == (None, None, None) and not out.exists()
    yield out, run, list(run)


# -- what it gives and writes --------------------------------------------------------------------------------------


def test_the_folder_holds_everything(finished):
    out, run, done = finished
    files = ["checkpoints", "config.toml", "data.safetensors", "rounds.jsonl", "summary.json"]
    assert sorted(path.name for path in out.iterdir()) == files
    config = tomllib.loads((out / "config.toml").read_text())
    expected = {"made": "python", "method": "pulled", "model": "Net", "data": "toy", "clients": 6, "mixing": "BySize"}
    expected |= {"server": "Step", "rounds": 6, "cohort": 3, "seed": 2, "lr": 0.2, "momentum": 0.5, "eval_every": 2}
    assert expected.items() <= config.items() and config["method.pull"] == 0.1
    assert json.loads((out / "summary.json").read_text()) == run.summary and run.summary["config"] == config
    assert RunFolder(out).checkpoint_rounds() == [5, 6]
    lines = lines_of(out)
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [tuple(line["cohort"]) for line in lines] == [result.cohort for result in done]


def test_rounds_are_measured_where_it_is_due(finished):
    out, run, done = finished
    assert [result.round for result in done] == [1, 2, 3, 4, 5, 6]
    assert [result.round for result in done if result.evaluation] == [2, 4, 6]
    for result, line in zip(done, lines_of(out), strict=True):
        assert ("metrics" in line) == (result.evaluation is not None)
        assert result.fitted.state is result.state and result.samples is None
        if result.evaluation:
            assert line["metrics"]["top1"]["mean"] == result.evaluation.mean("top1")
            # private memory goes on changing, the global model of the round does not
            assert result.evaluation.protocol["round"] == result.round
    assert run.evaluation is done[-1].evaluation
    again = evaluate(run.fitted)
    assert again.metrics == run.evaluation.metrics and again.protocol == run.evaluation.protocol
    for metric, column in run.summary["metrics"].items():
        assert column["mean"] == again.mean(metric)
    assert run.summary["protocol"]["deploys"]["kind"] == "line" and run.summary["sweep"]["two_models"] > 0


@pytest.mark.parametrize(("every", "expected"), [(0, [4]), (1, [1, 2, 3, 4]), (3, [3, 4])])
def test_without_a_folder_it_is_the_same_run(every, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = own(rounds=4, eval_every=every, metrics=("loss", "top1"))
    done = list(run)
    assert [result.round for result in done if result.evaluation] == expected
    assert set(run.evaluation.metrics) == {"loss", "top1"} and not list(tmp_path.iterdir())
    settings = {"rounds": 4, "cohort": 3, "seed": 2, "training": Training(lr=0.2, batch=4, momentum=0.5)}
    algorithm = Algorithm(Pulled(), BySize(), Step())
    *_, last = simulate(algorithm, Task(Net), FEDERATION, executor="serial", **settings)
    assert torch.equal(last.state.broadcast["theta"], run.fitted.state.broadcast["theta"])
    assert list(run) == [] and run.finish() is run.summary  # nothing is left to do


def test_finish_does_all_rounds(finished, tmp_path):
    _, run, _ = finished
    other = own(out=tmp_path / "b", executor="processes", workers=2)
    assert other.finish() is other.summary
    assert_same(run, other)


def test_a_mistake_leaves_no_folder(tmp_path):
    @dataclass(frozen=True)
    class Silent(ClientRule):
        def finish(self, trained, visit):
            return fedchord.core.rules.Upload(), {}

    run = fedchord.run(Algorithm(Silent(), BySize(), Step()), Task(Net), FEDERATION, out=tmp_path / "a")
    assert refused(run.finish) == "Silent: finish does not send theta by mix, and `sends` names it"
    assert not (tmp_path / "a").exists()
    assert "rounds must be a whole number" in refused(lambda: own(rounds=0, out=tmp_path / "a"))
    assert "cohort must be at most the number of clients, 6, got 7" in refused(lambda: own(cohort=7))
    assert "eval_every must be a whole number" in refused(lambda: own(eval_every=-1))


# -- going on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stop", "every"), [(3, 1), (1, 1), (6, 1), (3, 2)])
def test_an_interrupted_run_ends_with_the_same_bits(finished, tmp_path, stop, every):
    """Stopped after some of six rounds; a new run of objects made anew goes on from the newest checkpoint."""
    alone, whole, _ = finished
    out = tmp_path / "a"
    begun = own(out=out, checkpoint_every=every)
    assert [result.round for result in some(begun, stop)] == list(range(1, stop + 1))
    assert begun.summary is None and not (out / "summary.json").exists()
    assert len(lines_of(out)) == stop
    after = own(out=out, resume=True, checkpoint_every=every)
    kept = stop if every == 1 else stop // every * every
    assert [result.round for result in after] == list(range(kept + 1, 7))
    changed = {"checkpoint_every": every}
    after.summary["config"] |= {"checkpoint_every": 1}
    assert_same(whole, after)
    assert lines_of(out) == lines_of(alone)
    assert json.loads((out / "summary.json").read_text())["config"].items() >= changed.items()


def test_the_same_run_goes_on_where_it_stopped(finished, tmp_path):
    alone, whole, _ = finished
    run = own(out=tmp_path / "a")
    some(run, 2)
    assert [result.round for result in some(run, 2)] == [3, 4]
    run.finish()
    assert_same(whole, run)
    assert lines_of(tmp_path / "a") == lines_of(alone)


def test_a_finished_run_has_no_rounds_left(finished):
    out, run, _ = finished
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    said: list[str] = []
    again = own(out=out, resume=True, executor="processes", report=said.append)
    assert list(again) == [] and said == [f"{out} is finished; nothing was changed"]
    assert_same(run, again)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def spoilt() -> fedchord.data.federation.Federation:
    """The same clients with one number changed."""
    made = make_federation([13, 20, 7, 31, 10, 5], test=8)
    made.columns["x"][3, 2] += 1
    return made


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"lr": 0.1},
        {"pull": 0.2},
        {"seed": 3},
        {"federation": spoilt()},
        {"model": lambda: nn.Linear(6, 3)},
    ],
    ids=["lr", "rule", "seed", "data", "model"],
)
def test_another_run_in_the_same_folder_is_refused(finished, tmp_path, change, resume, half):
    out, _, _ = finished
    if half:
        out = tmp_path / "a"
        some(own(out=out), 2)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    line = refused(lambda: own(out=out, resume=resume, **change))
    assert line.startswith(f"{out} already holds ") and "(method pulled, seed 2)" in line
    assert ("fedchord.run(..., resume=True)" in line) == half
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_without_resume_the_same_run_is_refused_too(finished):
    out, _, _ = finished
    assert refused(lambda: own(out=out)).startswith(f"{out} already holds this run, finished")


def test_the_command_does_not_go_on_with_own_objects(finished, tmp_path):
    out = tmp_path / "a"
    some(own(out=out), 2)
    for folder in (out, finished[0]):
        line = refused(lambda folder=folder: runs.resume(folder))
        assert line.startswith(f"{folder}: ") and "fedchord.run" in line
    config = RunConfig.from_pairs(["data=digits", "clients=4", "cohort=2", "rounds=1", f"out={out}"])
    assert refused(lambda: runs.execute(config, resume=True)).startswith(f"{out} already holds a run (method pulled")


def test_a_folder_of_the_command_is_refused_too(tmp_path):
    out = tmp_path / "a"
    pairs = ["data=digits", "clients=4", "cohort=2", "model=logreg", "rounds=1", "executor=serial"]
    runs.execute(RunConfig.from_pairs([*pairs, f"out={out}"]))
    assert refused(lambda: own(out=out, resume=True)).startswith(f"{out} already holds another run, finished (method")


# -- reports -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(finished, tmp_path_factory) -> tuple[Path, Path, Run, Run]:
    """Two finished folders that differ in a field of the rule."""
    out = tmp_path_factory.mktemp("own") / "b"
    other = own(out=out, pull=3.0)
    other.finish()
    return finished[0], out, finished[1], other


def test_tables_take_such_folders(two):
    a, b, one, other = two
    found, problems = reading.read_all([a, b])
    assert problems == [] and [run.folder for run in found] == [a, b]
    made = tables.tabulate(found, ["top1"], ["mean"])
    assert [row[-1].number for row in made.rows] == pytest.approx(
        [100 * run.summary["metrics"]["top1"]["mean"] for run in (one, other)]
    )
    text = formats.render(made, "markdown")
    assert "pulled" in text and "method.pull" in text and "0.1" in text and "| 3 " in text


def test_compare_takes_such_folders(two):
    a, b, one, other = two
    found, _ = reading.read_all([a, b])
    (made,) = compare.differences(found, str(a), "loss")
    values = [run.summary["per_client"]["loss"] for run in (one, other)]
    mean = sum(second - first for first, second in zip(*values, strict=True)) / 6
    assert made.mean == pytest.approx(mean) and mean != 0
    assert compare.tabulate([made], "loss", "deployed").rows


@pytest.mark.parametrize("kind", ["curves", "clients", "shares"])
def test_plots_take_such_folders(two, tmp_path, kind):
    a, b, *_ = two
    plots.plot([a, b], tmp_path / "picture.png", "top1", kind)
    assert (tmp_path / "picture.png").stat().st_size > 1000
    (axes,) = plots.curves(rows.group(reading.read_all([a])[0])).axes
    assert axes.lines[0].get_xdata().tolist() == [2, 4, 6]


# -- the command and Python ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fedprox", "apfl"])
def test_the_same_settings_by_the_command_give_the_same_bits(tmp_path, method):
    pairs = [f"method={method}", "data=digits", "clients=6", "model=logreg", "rounds=4", "cohort=3", "seed=5", "lr=0.1"]
    pairs += ["batch=8", "momentum=0.5", "eval_every=2", "executor=serial", "split=dirichlet", "split.alpha=0.5"]
    parameters = {"mu": 0.3} if method == "fedprox" else {"alpha": 0.4}
    pairs += [f"method.{name}={value}" for name, value in parameters.items()]
    config = RunConfig.from_pairs([*pairs, f"out={tmp_path / 'command'}"])
    summary = runs.execute(config)
    federation = fedchord.federate(fedchord.load("digits"), fedchord.data.Dirichlet(0.5), 6, seed=5, test=config.test)
    task = Task(lambda: fedchord.models.build("logreg", federation.shape, 10))
    training = Training(lr=0.1, batch=8, momentum=0.5)
    settings = {"rounds": 4, "cohort": 3, "seed": 5, "training": training, "executor": "serial", "eval_every": 2}
    algorithm = fedchord.method(method, parameters)
    run = fedchord.run(algorithm, task, federation, out=tmp_path / "python", **settings)
    found = run.finish()
    for part in ("metrics", "per_client", "sweep", "bytes", "protocol"):
        assert found[part] == summary[part], part
    assert lines_of(tmp_path / "python") == lines_of(tmp_path / "command")
    states = [
        fedchord.Checkpoints(tmp_path / name / "checkpoints", fingerprint=print_).load(fedchord.ClientMemory()).state
        for name, print_ in (("command", config.fingerprint()), ("python", run.parts.config.fingerprint()))
    ]
    assert torch.equal(*(state.broadcast["theta"] for state in states))
    assert torch.equal(states[1].broadcast["theta"], run.fitted.state.broadcast["theta"])
