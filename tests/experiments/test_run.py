"""Run folders: what is written, going on after an interruption to the bit-identical result, taking models out."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest
import torch

from fedchord import FedchordError
from fedchord.engine import checkpoint
from fedchord.engine.memory import ClientMemory
from fedchord.experiments import run as runs
from fedchord.experiments import session
from fedchord.experiments.config import RunConfig
from fedchord.experiments.folder import RunFolder
from fedchord.experiments.progress import Lines, Silent
from fedchord.export.chosen import load_model
from fedchord.metrics import register
from fedchord.report import words

TINY = ["model=logreg", "clients=6", "cohort=3", "rounds=4", "executor=serial", "checkpoint_every=1"]


def tiny(*pairs: str) -> RunConfig:
    given = {pair.partition("=")[0] for pair in pairs}
    return RunConfig.from_pairs([*(pair for pair in TINY if pair.partition("=")[0] not in given), *pairs])


def lines_of(folder) -> list[dict]:
    """The rounds without what the clock says."""
    return [
        {key: value for key, value in json.loads(line).items() if key not in ("seconds", "elapsed")}
        for line in (folder / "rounds.jsonl").read_text().splitlines()
    ]


def state_of(folder) -> tuple[dict, dict]:
    """What the last checkpoint broadcasts, and what the clients keep."""
    memory = ClientMemory()
    found = checkpoint.load(folder / "checkpoints", memory)
    assert found is not None
    return found.state.broadcast, {client: memory.get(client) for client in memory.clients()}


def same(one: dict, other: dict) -> bool:
    """Whether two nested dicts of tensors are bit for bit equal."""
    if one.keys() != other.keys():
        return False
    return all(same(v, other[k]) if isinstance(v, dict) else torch.equal(v, other[k]) for k, v in one.items())


class StopAfter(Silent):
    """Presses Ctrl-C when a round has ended (the handler of the run is in place then)."""

    def __init__(self, round: int, times: int = 1) -> None:
        self.round, self.times, self.said = round, times, []

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        if round == self.round:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)

    def say(self, line: str) -> None:
        self.said.append(line)


def test_a_run_folder_holds_everything(tmp_path):
    out = tmp_path / "a"
    said: list[str] = []
    config = tiny("method=scaffold", "momentum=0.9", "weight_decay=1e-4", "eval_every=2", f"out={out}")
    summary = runs.execute(config, report=said.append)
    files = ["checkpoints", "config.toml", "data.safetensors", "rounds.jsonl", "summary.json"]
    assert sorted(path.name for path in out.iterdir()) == files
    assert json.loads((out / "summary.json").read_text()) == summary
    assert summary["config"] == config.values()
    assert RunFolder(out).read_config() == RunConfig.from_values(config.values())
    protocol = summary["protocol"]
    assert protocol["method"] == "scaffold: Scaffold(), Uniform(), ScaffoldStep(lr=1.0)"
    assert (protocol["seed"], protocol["clients"], protocol["evaluated"], protocol["split"]) == (0, 6, 6, "test")
    assert summary["layout"] == 2 and protocol["deploys"] == {"words": "the global model", "kind": "global"}
    assert {note["kind"] for note in protocol["notes"]} == {"data"}
    assert protocol["notes"][0]["text"].startswith("digits: 1797 of 1797 rows went to 6 clients")
    assert protocol["overrides"] == [
        {"key": "momentum", "asked": 0.9, "used": 0.0},
        {"key": "weight_decay", "asked": 1e-4, "used": 0.0},
    ]
    sentence = "scaffold: momentum and weight_decay set to 0 (were 0.9, 0.0001)"
    assert words.sentences(protocol, "scaffold")[-1] == sentence
    columns = ["mean", "std", "worst10", "best10", "gini", "gap", "pooled", "clients", "undefined", "weighted"]
    assert protocol["data"] == {"name": "digits", "verdict": "original"}
    along = ["swept", "swept_std", "validated", "validated_std"]
    assert list(summary["metrics"]["top1"]) == list(summary["metrics"]["loss"]) == columns + along
    # one model: nothing to sweep
    assert summary["metrics"]["top1"]["swept"] == summary["metrics"]["top1"]["mean"] and summary["sweep"] is None
    assert summary["per_client"]["client"] == [str(i) for i in range(6)]
    assert sum(summary["per_client"]["size"]) == 360
    mean = sum(summary["per_client"]["top1"]) / 6
    assert summary["metrics"]["top1"]["mean"] == pytest.approx(mean)
    assert set(summary["versions"]) == {"fedchord", "torch", "numpy", "python"}
    assert (summary["rounds"], summary["parameters"], summary["executor"]) == (4, 650, "serial")
    # SCAFFOLD sends and receives the model and the control variate: 2 vectors of 650 float32 for 3 clients
    each = 2 * 650 * 4 * 3
    assert summary["bytes"] == {
        "up_per_round": each,
        "down_per_round": each,
        "up_total": 4 * each,
        "down_total": 4 * each,
    }
    assert summary["seconds"]["total"] >= summary["seconds"]["rounds"] > 0


def test_the_lambda_sweep_of_a_method_with_two_models():
    """The best mean and the validated mean, recomputed from the values by client and lambda."""
    summary = runs.execute(tiny("method=ditto", "model=twonn", "validation=0.2"))
    found, top1 = summary["sweep"], summary["metrics"]["top1"]
    table = found["per_client"]
    assert found["lambdas"] == pytest.approx([i / 10 for i in range(11)]) and len(table) == 6
    means = [sum(column) / 6 for column in zip(*table, strict=True)]
    assert found["mean"] == pytest.approx(means)
    assert top1["swept"] == pytest.approx(max(means)) == found["best_mean"]["mean"]
    assert found["optimistic"]["mean"] == pytest.approx(sum(max(row) for row in table) / 6)
    chosen = [row[round(10 * lam)] for row, lam in zip(table, found["validated"]["lambdas"], strict=True)]
    assert top1["validated"] == pytest.approx(sum(chosen) / 6)
    assert (
        0 < summary["metrics"]["loss"]["swept"] <= 1e-6 + summary["metrics"]["loss"]["mean"]
    )  # at a lambda of its own
    assert "validated" not in summary["metrics"]["loss"] and "swept" not in summary["metrics"]["ece"]
    assert top1["mean"] == pytest.approx(means[-1])  # Ditto deploys its own model, the far end
    assert found["two_models"] + found["one_model"] == 6


def test_a_line_per_round(tmp_path):
    out = tmp_path / "a"
    runs.execute(tiny("eval_every=2", f"out={out}"))
    lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert ["metrics" in line for line in lines] == [False, True, False, True]
    first = lines[0]
    assert first["cohort"] == sorted(set(first["cohort"]))
    assert sum(first["shares"]) == pytest.approx(1)
    assert first["losses"] is None
    assert first["log"] == {}
    assert first["bytes_up"] == first["bytes_down"] == 3 * 650 * 4
    assert list(lines[1]["metrics"]["loss"]) == ["mean", "std", "worst10", "best10", "gini", "gap", "pooled"]


def test_without_out_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = runs.execute(tiny("rounds=1"))
    assert summary["metrics"]["top1"]["clients"] == 6
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_not_finite_become_null(tmp_path):
    register("never", lambda scores, labels: torch.tensor(torch.nan))
    runs.execute(tiny("metrics=never", "rounds=2", f"out={tmp_path / 'a'}"))
    text = (tmp_path / "a" / "summary.json").read_text() + (tmp_path / "a" / "rounds.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["metrics"]["never"]["mean"] is None


def test_an_out_folder_in_use_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs.execute(tiny("rounds=1", "out=runs/a"))
    before = (tmp_path / "runs/a/summary.json").read_bytes()
    tail = r"\(method fedavg, seed 0\); choose another out, or see it with: fedchord table runs/a"
    with pytest.raises(FedchordError, match=rf"^runs/a already holds this run, finished {tail}$"):
        runs.execute(tiny("rounds=1", "out=runs/a"))
    with pytest.raises(FedchordError, match=rf"^runs/a already holds another run, finished {tail}$"):
        runs.execute(tiny("rounds=1", "seed=1", "out=runs/a"))
    assert (tmp_path / "runs/a/summary.json").read_bytes() == before
    (tmp_path / "runs/a/summary.json").unlink()
    hint = r"choose another out, or go on with: fedchord resume runs/a"
    with pytest.raises(FedchordError, match=rf"^runs/a already holds a run \(method fedavg, seed 0\); {hint}$"):
        runs.execute(tiny("rounds=1", "seed=1", "out=runs/a"))
    with pytest.raises(FedchordError, match="already holds a run"):
        runs.execute(tiny("rounds=1", "seed=1", "out=runs/a"), resume=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FedchordError, match="out: file is a file, not a folder"):
        runs.execute(tiny("out=file"))


def test_a_run_that_cannot_start_leaves_nothing(tmp_path):
    with pytest.raises(FedchordError, match=r"mnist: .*nowhere does not exist"):
        runs.execute(tiny("data=mnist", f"data.root={tmp_path / 'nowhere'}", f"out={tmp_path / 'a'}"))
    own = tmp_path / "own.csv"
    own.write_text("a,label,client\n" + "".join(f"{i},{i % 2},{i % 3}\n" for i in range(30)))
    with pytest.raises(FedchordError, match="run: cohort must be at most the number of clients, 3, got 4"):
        runs.execute(tiny(f"data={own}", "cohort=4", "clients=all", f"out={tmp_path / 'a'}"))
    assert not (tmp_path / "a").exists()


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    told = f"^out: {tmp_path} is no run folder and not empty \\(mine.txt\\); choose another out$"
    with pytest.raises(FedchordError, match=told):
        runs.execute(tiny("rounds=1", f"out={tmp_path}"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "yours").mkdir()
    with pytest.raises(FedchordError, match=r"\(mine.txt and 1 more\)"):
        runs.execute(tiny("rounds=1", f"out={tmp_path}"))


def test_a_folder_of_a_run_that_never_began_is_free(tmp_path):
    for name in (".lock", "error.txt"):
        (tmp_path / name).write_text("")
    assert runs.execute(tiny("rounds=1", f"out={tmp_path}"))["rounds"] == 1


@pytest.mark.parametrize("method", ["scaffold", "local", "fedadam"])
def test_ctrl_c_and_resume_give_the_very_same_result(tmp_path, monkeypatch, method):
    monkeypatch.chdir(tmp_path)
    settings = [f"method={method}", "rounds=5", "checkpoint_every=0"]
    whole = runs.execute(tiny(*settings, "out=whole"))
    stop = StopAfter(2)
    with pytest.raises(session.Stopped, match=r"^stopped after round 2 of 5; go on with: fedchord resume cut$"):
        runs.execute(tiny(*settings, "out=cut"), progress=stop)
    assert stop.said == ["stopped after round 2 of 5; go on with: fedchord resume cut"]
    assert not (tmp_path / "cut/summary.json").exists()
    resumed = runs.resume("cut")
    assert lines_of(tmp_path / "cut") == lines_of(tmp_path / "whole")
    for one, other in zip(state_of(tmp_path / "cut"), state_of(tmp_path / "whole"), strict=True):
        assert same(one, other)
    assert resumed["metrics"] == whole["metrics"]
    assert resumed["per_client"] == whole["per_client"]
    assert resumed["bytes"] == whole["bytes"]


def test_seconds_of_sessions_add_up(tmp_path):
    config = tiny(f"out={tmp_path / 'a'}")
    with pytest.raises(session.Stopped):
        runs.execute(config, progress=StopAfter(2))
    lines = RunFolder(tmp_path / "a").read_rounds()
    lines[-1]["elapsed"] = 1000.0
    RunFolder(tmp_path / "a").write_rounds(lines)
    summary = runs.resume(tmp_path / "a")
    assert summary["seconds"]["total"] > 1000
    rounds = [json.loads(line)["seconds"] for line in (tmp_path / "a/rounds.jsonl").read_text().splitlines()]
    assert summary["seconds"]["rounds"] == pytest.approx(sum(rounds), abs=1e-3)


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    out = tmp_path / "a"
    line = f"stopped at once; the last checkpoint is of round 2; go on with: fedchord resume {out}"
    with pytest.raises(session.Stopped, match=line):
        runs.execute(tiny(f"out={out}"), progress=StopAfter(2, times=2))
    assert runs.resume(out)["rounds"] == 4
    with pytest.raises(session.Stopped, match="stopped at once; there is no checkpoint yet"):
        runs.execute(tiny("checkpoint_every=0", f"out={tmp_path / 'b'}"), progress=StopAfter(2, times=2))
    assert runs.resume(tmp_path / "b")["metrics"] == runs.resume(out)["metrics"]
    assert len(lines_of(tmp_path / "b")) == 4


def test_ctrl_c_without_out_and_in_the_last_round():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(
        session.Stopped, match="stopped after round 1 of 4; nothing was kept, since the run has no out folder"
    ):
        runs.execute(tiny(), progress=StopAfter(1))
    assert runs.execute(tiny(), progress=StopAfter(4))["rounds"] == 4
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_runs_in_other_threads_leave_signals_alone():
    found: list[dict] = []
    thread = threading.Thread(target=lambda: found.append(runs.execute(tiny("rounds=1"))))
    thread.start()
    thread.join()
    assert found[0]["rounds"] == 1


def test_resume_of_a_finished_run_changes_nothing(tmp_path):
    summary = runs.execute(tiny("rounds=1", f"out={tmp_path / 'a'}"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")}
    said: list[str] = []
    assert runs.resume(tmp_path / "a", report=said.append) == summary
    assert said == [f"{tmp_path / 'a'} is finished; nothing was changed"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*")} == before


def test_resume_of_no_run_is_one_line(tmp_path):
    with pytest.raises(FedchordError, match=rf"^{tmp_path}/none: no such folder$"):
        runs.resume(tmp_path / "none")
    with pytest.raises(FedchordError, match=rf"^{tmp_path}: has no config.toml, so it holds no run$"):
        runs.resume(tmp_path)


def test_resume_changes_only_what_does_not_matter(tmp_path):
    out = tmp_path / "a"
    with pytest.raises(session.Stopped):
        runs.execute(tiny(f"out={out}"), progress=StopAfter(1))
    with pytest.raises(FedchordError, match="resume: batch, lr cannot be changed when a run goes on; start a new one"):
        runs.resume(out, ["rounds=9", "lr=1", "batch=3"])
    with pytest.raises(FedchordError, match="resume: out cannot be changed"):
        runs.resume(out, ["out=elsewhere"])
    assert runs.resume(out, ["executor=processes", "workers=2"])["executor"] == "processes"


def test_a_folder_that_was_moved_goes_on(tmp_path):
    with pytest.raises(session.Stopped):
        runs.execute(tiny(f"out={tmp_path / 'a'}"), progress=StopAfter(1))
    (tmp_path / "a").rename(tmp_path / "b")
    assert runs.resume(tmp_path / "b")["config"]["out"] == str(tmp_path / "b")
    assert not (tmp_path / "a").exists()


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    whole = runs.execute(tiny(f"out={tmp_path / 'whole'}"))
    out = tmp_path / "a"
    with pytest.raises(session.Stopped):
        runs.execute(tiny(f"out={out}"), progress=StopAfter(3))
    broken = out / "checkpoints/round-000003/state.safetensors"
    broken.write_bytes(broken.read_bytes()[:-8])
    said: list[str] = []
    summary = runs.resume(out, report=said.append)
    assert said == [f"checkpoint: {broken} is missing or damaged; going on from the one before"]
    assert lines_of(out) == lines_of(tmp_path / "whole")
    assert summary["metrics"] == whole["metrics"]


def test_no_good_checkpoint_is_one_line_and_loses_nothing(tmp_path):
    out = tmp_path / "a"
    with pytest.raises(session.Stopped):
        runs.execute(tiny(f"out={out}"), progress=StopAfter(1))
    (out / "checkpoints/round-000001/state.safetensors").write_bytes(b"")
    before = (out / "rounds.jsonl").read_bytes()
    with pytest.raises(FedchordError, match=f"^checkpoint: none in {out}/checkpoints can be used"):
        runs.resume(out)
    assert (out / "config.toml").exists()
    assert (out / "rounds.jsonl").read_bytes() == before


def test_killed_between_checkpoint_and_line(tmp_path):
    """The checkpoint of round 3 is there, its line is half written: the round is computed again."""
    whole, out = tmp_path / "whole", tmp_path / "a"
    runs.execute(tiny(f"out={whole}"))
    with pytest.raises(session.Stopped):
        runs.execute(tiny(f"out={out}"), progress=StopAfter(3))
    text = (out / "rounds.jsonl").read_text()
    (out / "rounds.jsonl").write_text(text[: text.index('"round": 3') + 20])
    runs.resume(out)
    assert lines_of(out) == lines_of(whole)


def test_killed_before_the_summary(tmp_path):
    out = tmp_path / "a"
    summary = runs.execute(tiny(f"out={out}"))
    (out / "summary.json").unlink()
    again = runs.resume(out)
    assert again["metrics"] == summary["metrics"]
    assert again["bytes"] == summary["bytes"]


def test_lost_rounds_are_told(tmp_path):
    out = tmp_path / "a"
    with pytest.raises(session.Stopped):
        runs.execute(tiny(f"out={out}"), progress=StopAfter(3))
    (out / "rounds.jsonl").unlink()
    said: list[str] = []
    runs.resume(out, report=said.append)
    lost = "has lost rounds 1 to 2; the metrics are not affected, seconds and bytes count the others only"
    assert said == [
        f"{out / 'rounds.jsonl'} lacks rounds; they are done again from round 3 on",
        f"{out / 'rounds.jsonl'} {lost}",
    ]
    assert [line["round"] for line in lines_of(out)] == [3, 4]


def test_processes_and_serial_write_the_same(tmp_path):
    for executor in ("serial", "processes"):
        runs.execute(tiny("rounds=2", f"executor={executor}", "workers=2", f"out={tmp_path / executor}"))
    assert lines_of(tmp_path / "serial") == lines_of(tmp_path / "processes")


def test_load_model(tmp_path):
    out = tmp_path / "a"
    runs.execute(tiny("method=local", "rounds=1", f"out={out}"))
    with pytest.raises(FedchordError, match="export: local has no shared model; name a client"):
        load_model(out)
    with pytest.raises(FedchordError, match="export: client must be a number from 0 to 5, got 6"):
        load_model(out, 6)
    sampled = json.loads((out / "rounds.jsonl").read_text())["cohort"]
    other = next(client for client in range(6) if client not in sampled)
    said: list[str] = []
    first, trained = load_model(out, other, said.append), load_model(out, sampled[0])
    assert said == ["local after round 1 of 1", f"client {other} was never sampled"]
    assert list(first) == list(trained) == ["head.weight", "head.bias"]
    assert not torch.equal(first["head.weight"], trained["head.weight"])
    shared, kept = state_of(out)
    assert torch.equal(trained["head.weight"].flatten(), kept[sampled[0]]["theta"][:640])
    assert torch.equal(first["head.weight"].flatten(), shared["theta"][:640])
    (out / "checkpoints").rename(tmp_path / "gone")
    with pytest.raises(FedchordError, match="a: has no checkpoint yet"):
        load_model(out, 0)


def test_models_of_personal_methods(tmp_path):
    """The model a client deploys, also where the server never holds a whole one."""
    out = tmp_path / "a"
    runs.execute(tiny("method=fedper", "model=twonn", "rounds=1", f"out={out}"))
    with pytest.raises(FedchordError, match="export: fedper shares only a part of the model; name a client"):
        load_model(out)
    one, other = (load_model(out, client) for client in json.loads((out / "rounds.jsonl").read_text())["cohort"][:2])
    alike = [name for name in one if torch.equal(one[name], other[name])]
    assert alike and set(one) - set(alike) == {"head.weight", "head.bias"}


def test_plain_lines_are_few(capsys):
    import sys

    shown = Lines(sys.stderr)
    shown.begin("fedavg", 1000)
    for round in range(1, 1001):
        shown.update(round, "top1", 0.5)
    printed = capsys.readouterr().err.splitlines()
    assert 10 <= len(printed) <= 20
    assert printed[0] == "fedavg: 1000 rounds"
    assert printed[1].startswith("round 67 of 1000: top1 0.5000, about ")
    assert printed[-1] == "round 1000 of 1000: top1 0.5000"


def test_git_is_never_a_reason_to_fail(monkeypatch):
    from fedchord.experiments.summary import git_hash

    monkeypatch.setenv("PATH", os.devnull)
    assert git_hash() is None
