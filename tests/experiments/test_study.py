"""Studies: what a file says, what is run and what is skipped, and the table of it all."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import signal
import statistics
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from helpers.invoked import invoke

from fedchord.check import FedchordError
from fedchord.experiments import run as runs
from fedchord.experiments import study
from fedchord.experiments.progress import Silent
from fedchord.report import cells, formats, study_table
from fedchord.thesis import studies

BASE: dict[str, Any] = {
    "title": "Two and two",
    "metric": "top1",
    "seeds": [1, 2],
    "settings": {"data": "digits", "rounds": 2, "executor": "serial"},
    "method": [
        {"label": "FedAvg", "method": "fedavg"},
        {"label": "FedProx", "method": "fedprox", "method.mu": 0.1},
    ],
    "setting": [{"label": "K=5", "clients": 5, "cohort": 2}, {"label": "K=8", "clients": 8}],
}


def changed(**keys: Any) -> dict[str, Any]:
    return copy.deepcopy(BASE) | keys


def plan_of(content: dict[str, Any] | None = None, scale: str | None = None, *pairs: str) -> study.Plan:
    return study.plan(study.parse("toy", content or BASE), scale, pairs)


class FakeRuns:
    """Stands in for `runs.execute`: writes a run folder with a made-up accuracy, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.broken: dict[str, BaseException] = {}

    def __call__(self, config: Any, resume: bool = False, report: Any = None, progress: Any = None) -> dict[str, Any]:
        folder = Path(config.out)
        self.asked.append((folder.name, resume))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(config.to_toml())
        if folder.name in self.broken:
            raise self.broken[folder.name]
        values = {"mean": accuracy(config.method, config.clients, config.seed), "std": 0.125, "worst10": 0.25}
        deploys = {"words": "the global model", "kind": "global"}
        told = {"deploys": deploys, "split": "test", "round": 2, "clients": config.clients, "notes": []}
        summary = {"layout": 2, "metrics": {"top1": values}, "protocol": told, "seconds": {"total": 0.5}}
        (folder / "summary.json").write_text(json.dumps(summary))
        return summary


def accuracy(method: str, clients: int, seed: int) -> float:
    return {"fedavg": 0.5, "fedprox": 0.6}[method] + clients / 100 + seed * seed / 100


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    stand_in = FakeRuns()
    monkeypatch.setattr(runs, "execute", stand_in)
    return stand_in


def ignore(line: str) -> None: ...


# -- what a file says ----------------------------------------------------------------------------------------------


def test_a_plan_is_methods_by_settings_by_seeds() -> None:
    jobs = plan_of().jobs
    assert len(jobs) == 8
    assert {(job.method, job.setting, job.seed) for job in jobs} == {
        (method, setting, seed) for method in ("FedAvg", "FedProx") for setting in ("K=5", "K=8") for seed in (1, 2)
    }
    last = jobs[-1].config
    assert (last.method, last.clients, last.plan().cohort, last.rounds, last.seed) == ("fedprox", 8, 5, 2, 2)
    assert dict(last.parameters) == {"method.mu": 0.1}
    assert len({job.folder for job in jobs}) == 8
    assert jobs[0].folder.startswith("k-5_fedavg_seed1_")


def test_the_later_source_of_a_key_counts() -> None:
    content = changed(scale={"small": {"rounds": 3, "seeds": [7]}, "thesis": {"rounds": 9}})
    content["settings"] |= {"lr": 0.1, "batch": 1, "epochs": 1, "momentum": 0.1}
    content["setting"][0] |= {"batch": 2, "epochs": 2, "momentum": 0.2}
    content["method"][0] |= {"epochs": 3, "momentum": 0.3, "in": {"K=*": {"momentum": 0.4}, "K=8": {"momentum": 0.5}}}
    first = plan_of(content).jobs[0].config
    assert (first.lr, first.batch, first.epochs, first.momentum) == (0.1, 2, 3, 0.4)
    assert (first.rounds, first.seed) == (3, 7)
    second = plan_of(content).jobs[1].config
    assert (second.clients, second.momentum) == (8, 0.5)
    thesis = plan_of(content, "thesis", "momentum=0.6", "seeds=3,4").jobs
    assert {(job.config.rounds, job.config.momentum, job.seed) for job in thesis} == {(9, 0.6, 3), (9, 0.6, 4)}
    assert {job.seed for job in plan_of(content, None, "seed=5").jobs} == {5}


def test_a_folder_changes_with_what_changes_the_result() -> None:
    before = [job.folder for job in plan_of().jobs]
    assert [job.folder for job in plan_of(None, None, "executor=processes", "eval_every=1").jobs] == before
    assert not set(before) & {job.folder for job in plan_of(None, None, "lr=0.07").jobs}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"titel": "x"}, "unknown key of study toy 'titel'; did you mean 'title'"),
        ({"metric": "topp1"}, "did you mean 'top1'"),
        ({"columns": ["worst"]}, "did you mean 'worst10'"),
        ({"seeds": []}, "seeds must be different whole numbers"),
        ({"seeds": [1, 1]}, "seeds must be different whole numbers"),
        ({"settings": {"rouns": 3}}, "did you mean 'rounds'"),
        ({"settings": {"seed": 3}}, "must not set seed"),
        ({"settings": {"lr": -1}}, "lr must be above 0"),
        ({"settings": 3}, "settings must be a table"),
        ({"method": []}, r"at least one \[\[method\]\]"),
        ({"method": [{"label": "x"}]}, "needs method = NAME"),
        ({"method": [{"method": "fedprx"}]}, "did you mean 'fedprox'"),
        ({"method": [{"method": "fedprox", "method.mo": 1}]}, "did you mean 'method.mu'"),
        ({"method": [{"method": "fedavg"}] * 2}, "two .* are called 'fedavg'"),
        ({"method": [{"method": "fedavg", "in": {"K=7": {"lr": 1}}}]}, "unknown setting of study toy, fedavg in 'K=7'"),
        ({"setting": [{"clients": 5}]}, r"every \[\[setting\]\] needs a label"),
        ({"setting": [{"label": "all", "clients": 3, "cohort": 4}]}, "study toy, FedAvg, all: "),
        ({"reference": {"values": {"FedAv": {"K=5": [1, 2]}}}}, "unknown method in the reference of study toy 'FedAv'"),
        ({"reference": {"values": {"FedAvg": {"K=6": [1, 2]}}}}, "unknown setting in the reference"),
        ({"reference": {"values": {"FedAvg": {"K=5": [1, 2, 3]}}}}, r"must be \[value, spread\]"),
        ({"reference": {"sorce": "x"}}, "did you mean 'reference.source'"),
    ],
)
def test_mistakes_are_told_in_one_line_before_anything_runs(change: dict[str, Any], words: str) -> None:
    with pytest.raises(FedchordError, match=words) as caught:
        plan_of(changed(**change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, "method=fedavg"), "pick rows with --only"),
        ((None, "out=x"), "use --out"),
        ((None, "seeds=a"), "seeds must be like 1,2,3"),
        ((None, "rounds"), "key=value"),
        (("smal",), "has no scales"),
    ],
)
def test_the_command_line_is_checked_too(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(FedchordError, match=words):
        plan_of(BASE, *arguments)


def test_an_unknown_scale_or_study_has_a_nearest_match(tmp_path: Path) -> None:
    with pytest.raises(FedchordError, match="did you mean 'thesis'"):
        plan_of(changed(scale={"small": {}, "thesis": {}}), "tesis")
    with pytest.raises(FedchordError, match="did you mean 'smoke'"):
        studies.load("smok")
    with pytest.raises(FedchordError, match="no such file"):
        studies.load(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_text("title = ")
    with pytest.raises(FedchordError, match="not valid TOML"):
        studies.load(tmp_path / "mine.toml")


def test_methods_of_later_versions_are_skipped_and_named(tmp_path: Path, fake: FakeRuns) -> None:
    content = changed()
    content["method"].append({"label": "Later", "method": "superfed-mm", "method.nu": 1.0})
    content["method"].append({"label": "Mixed", "method": "fedavg", "mixing": "aaggff-d"})
    plan = plan_of(content)
    if "superfed-mm" in study.METHODS or "aaggff-d" in study.MIXINGS:
        pytest.skip("this version has them: choose other names for this test")
    assert plan.missing == {"Later": "superfed-mm", "Mixed": "aaggff-d"}
    assert {job.method for job in plan.jobs} == {"FedAvg", "FedProx"}
    study.run(plan, tmp_path, say=ignore)
    table = study_table.tabulate(plan, tmp_path)
    assert [str(cell) for cell in table.rows[2]] == ["Later", "-", "-"]
    assert "not in this version, skipped: Later (superfed-mm), Mixed (aaggff-d)" in table.notes
    content["settings"]["lr"] = -1
    with pytest.raises(FedchordError, match="lr must be above 0"):
        plan_of(content)


@pytest.mark.parametrize("name", list(studies.built_in()))
def test_built_in_studies_are_sound(name: str) -> None:
    loaded = studies.load(name)
    assert loaded.title and loaded.about
    assert {"smoke", "small"} <= set(loaded.scales) <= set(studies.SCALES)
    for scale in loaded.scales:
        plan = study.plan(loaded, scale)
        assert plan.jobs and len({job.folder for job in plan.jobs}) == len(plan.jobs)


def test_table3_has_the_hyperparameters_of_the_thesis() -> None:
    thesis = study.plan(studies.load("2_table3"), "thesis")
    for job in thesis.jobs:
        config, training = job.config, job.config.training()
        assert (config.rounds, config.cohort, config.test, config.split, config.split_shards) == (
            500,
            5,
            0.2,
            "pathological",
            2,
        )
        assert (training.epochs, training.batch, training.lr, training.momentum) == (10, 10, 0.01, 0.9)
        assert (training.weight_decay, training.lr_decay, training.lr_step) == (1e-4, 0.99, 1)
        data, clients = job.setting.split(" K=")
        assert config.clients == int(clients)
        assert (config.data, config.model) == {"MNIST": ("mnist", "twonn"), "CIFAR-10": ("cifar10", "twocnn")}[data]
    entries = {entry.label: entry for entry in thesis.study.methods}
    controls = {"Local", "FedAvg-FT", "FedAvg-FT (first rate)", "FedAvg-FT (last copy)"}
    assert entries["FedAvg-FT (first rate)"].keys["method.tune_lr"] == 0.01  # that of the first round
    late = "SuPerFed-LM, L/T=0.4"
    assert len(entries) == 11 + len(controls) + 1 and controls | {late} < set(entries)
    assert entries["FedProx"].keys["method.mu"] == 0.01
    mixing: dict[str, list[Any]] = {}
    for job in thesis.jobs:
        if job.method.startswith("Su"):
            mixing.setdefault(job.method, []).append(dict(job.config.parameters)["method.warmup"])
    assert mixing == {
        "SuPerFed-MM": [0.6, 0.4, 0.2] * 2,
        "SuPerFed-LM": [0.8, 0.6, 0.4] * 2,
        late: [0.4] * 6,
    }
    assert [entries[label].keys["method.nu"] for label in ("SuPerFed-LM", late)] == [2.0, 2.0]


def test_the_controls_stand_in_every_table_of_personal_models() -> None:
    for name in ("2_table3", "2_noise", "2_lambda", "2_start"):
        entries = {entry.label: entry.keys for entry in studies.load(name).methods}
        assert entries["FedAvg-FT"] == {"method": "fedavg-ft", "method.tune_epochs": 5}, name
    for name in ("2_table3", "2_noise"):
        entries = {entry.label: entry.keys for entry in studies.load(name).methods}
        assert entries["Local"] == {"method": "local"}
        assert entries["FedAvg-FT (last copy)"] == {"method": "fedavg-ft", "method.form": "last"}


def test_a_table_of_the_thesis_leads_to_its_study(fake: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    for alias, name in (("2_table6", "2_noise"), ("text", "2_table5"), ("speech", "result_device")):
        assert studies.load(alias) == studies.load(name)
        done = invoke("study", "run", alias, "--only", "no such row")
        assert done.stderr.splitlines()[0] == f"{alias} is the study {name}"
    for table in studies.TABLES:
        assert studies.load(table).reference.values and set(studies.load(table).scales) == set(studies.SCALES)


def test_validation_rows_fill_the_column_of_table3(tmp_path: Path) -> None:
    """Without them the column is empty where there are two models, and one line says why."""
    loaded = studies.load("2_table3")
    assert loaded.columns == ("swept", "validated")
    assert {job.config.validation for job in study.plan(loaded, "thesis").jobs} == {0.0}
    rows = [{"label": entry.label, **entry.keys} for entry in loaded.methods if entry.label in ("FedAvg", "APFL")]
    rows += [{"label": "Ditto", "method": "ditto"}]
    keys = {"data": "digits", "model": "logreg", "clients": 4, "cohort": 2, "rounds": 2, "executor": "serial"}
    content = {"columns": list(loaded.columns), "settings": keys, "method": rows}
    for pair, empty in (("validation=0.0", 2), ("validation=0.2", 0)):
        plan = plan_of(content, None, pair)
        study.run(plan, tmp_path, say=ignore)
        table = study_table.tabulate(plan, tmp_path)
        assert [str(row[2])[:3] for row in table.rows].count("nan") == empty
        told = [note for note in table.notes if "no validated values" in note]
        assert told == (["APFL, Ditto: no validated values: its clients have no validation rows; run it with "
                         "validation=0.1"] if empty else [])  # fmt: skip


# -- running -------------------------------------------------------------------------------------------------------


def test_what_is_done_is_skipped(tmp_path: Path, fake: FakeRuns) -> None:
    lines: list[str] = []
    outcome = study.run(plan_of(), tmp_path, say=lines.append, told=study_table.told)
    assert (outcome.planned, outcome.skipped, outcome.done, outcome.failed) == (8, 0, 8, {})
    assert lines[0] == "[1/8] K=5, FedAvg, seed 1"
    assert lines[1] == "[1/8] K=5, FedAvg, seed 1: top1 mean % 56.00 (12.50) in 0.5 s"
    again = study.run(plan_of(), tmp_path, say=ignore)
    assert (again.skipped, again.done, len(fake.asked)) == (8, 0, 8)
    more = study.run(plan_of(None, None, "seeds=1,2,3"), tmp_path, say=ignore)
    assert (more.planned, more.skipped, more.done) == (12, 8, 4)


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path: Path, fake: FakeRuns) -> None:
    plan = plan_of()
    third = plan.jobs[2].folder
    fake.broken[third] = KeyboardInterrupt("stopped after round 1 of 2")
    lines: list[str] = []
    outcome = study.run(plan, tmp_path, say=lines.append)
    assert (outcome.interrupted, outcome.done, len(fake.asked)) == (True, 2, 3)
    assert lines[-1] == "  stopped after round 1 of 2"
    del fake.broken[third]
    fake.asked.clear()
    outcome = study.run(plan, tmp_path, say=lines.append)
    assert (outcome.interrupted, outcome.skipped, outcome.done) == (False, 2, 6)
    assert fake.asked == [(job.folder, job.folder == third) for job in plan.jobs[2:]]
    assert "[3/8] K=8, FedAvg, seed 1 (going on)" in lines


def test_a_failing_run_does_not_stop_the_others(tmp_path: Path, fake: FakeRuns) -> None:
    plan = plan_of()
    fake.broken[plan.jobs[0].folder] = FedchordError("data: no such file")
    fake.broken[plan.jobs[1].folder] = FedchordError("data: no such file")
    fake.broken[plan.jobs[2].folder] = RuntimeError("out of luck\nand a second line")
    outcome = study.run(plan, tmp_path, say=ignore)
    assert outcome.done == 5
    broken = tmp_path / plan.jobs[2].folder
    assert outcome.failed == {
        "data: no such file": ["K=5, FedAvg, seed 1", "K=5, FedAvg, seed 2"],
        f"RuntimeError: out of luck (see {broken}/error.txt)": ["K=8, FedAvg, seed 1"],
    }
    assert "and a second line" in (broken / "error.txt").read_text()


def test_a_damaged_summary_is_run_again(tmp_path: Path, fake: FakeRuns) -> None:
    plan = plan_of()
    study.run(plan, tmp_path, say=ignore)
    damaged = tmp_path / plan.jobs[0].folder / "summary.json"
    damaged.write_text("{")
    assert study.run(plan, tmp_path, say=ignore).done == 1
    assert json.loads(damaged.read_text()) and fake.asked[-1] == (plan.jobs[0].folder, True)


def test_rows_and_columns_can_be_picked(tmp_path: Path, fake: FakeRuns) -> None:
    assert study.run(plan_of(), tmp_path, only=["fedprox", "K=8"], say=ignore).planned == 2
    assert study.run(plan_of(), tmp_path, only=["FedAvg", "FedProx"], say=ignore).planned == 8
    with pytest.raises(FedchordError, match="did you mean 'fedavg'"):
        study.run(plan_of(), tmp_path, only=["fedav"], say=ignore)


def test_the_commands_end_with_the_right_code(tmp_path: Path, fake: FakeRuns) -> None:
    file, out = tmp_path / "toy.toml", str(tmp_path / "runs")
    file.write_text(tomli_w.dumps(BASE))
    plan = plan_of()
    fake.broken[plan.jobs[0].folder] = FedchordError("too bad")
    failed = invoke("study", "run", str(file), "--out", out)
    assert failed.exit_code == 1
    assert "failed: K=5, FedAvg, seed 1: too bad" in failed.stderr
    assert f"go on with: fedchord study run {file} --out {out}" in failed.stderr
    fake.broken[plan.jobs[0].folder] = KeyboardInterrupt()
    stopped = invoke("study", "run", str(file), "--out", out, "--only", "K=5")
    assert stopped.exit_code == 130
    assert f"interrupted; go on with: fedchord study run {file} --out {out} --only K=5" in stopped.stderr
    fake.broken.clear()
    done = invoke("study", "run", str(file), "--out", out)
    assert done.exit_code == 0
    assert "toy: 8 of 8 runs finished (7 were there already)" in done.stdout
    shown = invoke("study", "table", str(file), "--out", out, "--format", "csv")
    assert shown.exit_code == 0 and len(list(csv.reader(io.StringIO(shown.stdout)))) == 3
    listed = invoke("study", "list").stdout
    assert "smoke\n" in listed and "16 runs: 4 methods x 2 settings x 2 seeds" in listed and "2_table3\n" in listed


# -- the table -----------------------------------------------------------------------------------------------------


def rows_of(table: cells.Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.render(table, "csv"))))


def test_the_table_has_means_and_deviations_over_seeds(tmp_path: Path, fake: FakeRuns) -> None:
    plan = plan_of(None, None, "seeds=1,2,3")
    study.run(plan, tmp_path, say=ignore)
    table = study_table.tabulate(plan, tmp_path)
    for row, method in zip(rows_of(table), ("fedavg", "fedprox"), strict=True):
        for clients in (5, 8):
            values = [100 * accuracy(method, clients, seed) for seed in (1, 2, 3)]
            assert float(row[f"K={clients}"]) == pytest.approx(statistics.fmean(values))
            assert float(row[f"K={clients} std"]) == pytest.approx(statistics.stdev(values))
    assert [[cell.best for cell in row[1:]] for row in table.rows] == [[False, False], [True, True]]
    assert not any("missing" in note for note in table.notes)


def test_reference_numbers_stand_beside_ours(tmp_path: Path, fake: FakeRuns) -> None:
    values = {"FedAvg": {"K=5": [95.69, 2.39]}, "FedProx": {"K=5": 96}}
    plan = plan_of(changed(reference={"source": "paper", "about": "table 3", "values": values}))
    study.run(plan, tmp_path, say=ignore)
    table = study_table.tabulate(plan, tmp_path)
    assert [head.name for head in table.heads] == ["method", "K=5", "K=5 paper", "K=8"]
    first, second = rows_of(table)
    assert (first["K=5 paper"], first["K=5 paper std"], second["K=5 paper std"]) == ("95.69", "2.39", "")
    assert "| 57.50 (2.12) | 95.69 (2.39) |" in formats.render(table, "markdown")
    assert "paper: table 3" in table.notes


def test_reference_numbers_of_several_columns(tmp_path: Path, fake: FakeRuns) -> None:
    values = {"FedAvg": {"K=8": {"worst10": [48.06, 25.15]}}}
    plan = plan_of(changed(columns=["mean", "worst10"], reference={"source": "paper", "values": values}))
    study.run(plan, tmp_path, say=ignore)
    table = study_table.tabulate(plan, tmp_path)
    assert [head.name for head in table.heads][-2:] == ["K=8 top1 worst10 %", "K=8 top1 worst10 % paper"]
    assert rows_of(table)[0]["K=8 top1 worst10 % paper"] == "48.06"


def test_missing_cells_are_dashes_and_counted(tmp_path: Path, fake: FakeRuns) -> None:
    plan = plan_of(None, None, "seeds=1,2,3")
    empty = study_table.tabulate(plan, tmp_path)
    assert [str(cell) for cell in empty.rows[0]] == ["FedAvg", "-", "-"]
    assert f"missing: 12 of 12 runs in {tmp_path}" in empty.notes
    study.run(plan_of(None, None, "seeds=1,2"), tmp_path, only=["FedAvg", "K=5"], say=ignore)
    study.run(plan_of(None, None, "seeds=1"), tmp_path, only=["FedAvg", "K=8"], say=ignore)
    partial = study_table.tabulate(plan, tmp_path)
    assert [str(cell) for cell in partial.rows[0]] == ["FedAvg", "57.50 (2.12)*", "59.00 (12.50)†*"]
    assert f"missing: 9 of 12 runs in {tmp_path}" in partial.notes
    assert "* fewer than the 3 seeds planned" in partial.notes


def test_the_table_of_some_rows_and_columns(tmp_path: Path, fake: FakeRuns) -> None:
    file, out = tmp_path / "toy.toml", str(tmp_path / "runs")
    file.write_text(tomli_w.dumps(changed()))
    ran = invoke("study", "run", str(file), "--out", out, "--only", "FedAvg", "--only", "k=8")
    assert ran.exit_code == 0 and ran.stdout.splitlines()[-1].endswith(
        f"--out {out} --only k=8"
    )  # its column, all rows
    whole = study_table.tabulate(plan_of(), Path(out))
    part = study_table.tabulate(study.narrowed(plan_of(), ["k=8"]), Path(out))
    assert [head.name for head in part.heads] == ["method", "K=8"] and len(part.rows) == len(whole.rows) == 2
    assert [row[1] for row in part.rows] == [row[2] for row in whole.rows]
    assert f"missing: 2 of 4 runs in {out}" in part.notes and f"missing: 6 of 8 runs in {out}" in whole.notes
    shown = invoke("study", "table", str(file), "--out", out, "--only", "fedavg", "--format", "csv")
    assert [line.split(",")[0] for line in shown.stdout.splitlines() if line and line[0] != "#"] == ["method", "FedAvg"]
    wrong = invoke("study", "table", str(file), "--out", out, "--only", "K=9")
    assert "did you mean 'k=8'?" in str(wrong.exception)


def test_one_seed_has_its_spread_over_clients(tmp_path: Path, fake: FakeRuns) -> None:
    plan = plan_of(None, None, "seeds=1")
    study.run(plan, tmp_path, say=ignore)
    table = study_table.tabulate(plan, tmp_path)
    assert str(table.rows[0][1]) == "56.00 (12.50)"
    assert "one seed: in brackets the std over clients (ddof 0)" in table.notes


def test_the_table_remembers_scale_and_changes_of_the_last_run(tmp_path: Path, fake: FakeRuns) -> None:
    file, out = tmp_path / "toy.toml", str(tmp_path / "runs")
    file.write_text(tomli_w.dumps(changed(scale={"small": {"rounds": 1}, "thesis": {"rounds": 9}})))
    assert invoke("study", "run", str(file), "--out", out, "--scale", "thesis", "seeds=4,5", "lr=0.5").exit_code == 0
    shown = invoke("study", "table", str(file), "--out", out)
    assert "scale thesis: rounds=9, seeds=4,5, lr=0.5" in shown.stdout and "missing" not in shown.stdout
    other = invoke("study", "table", str(file), "--out", out, "--scale", "small")
    assert str(other.exception).startswith(f"study table: no finished run in {out}; run it with: fedchord study run ")


def test_references_go_below_where_the_terminal_is_narrow(tmp_path: Path, fake: FakeRuns) -> None:
    from rich.console import Console

    values = {"FedAvg": {"K=5": [95.69, 2.39]}}
    plan = plan_of(changed(reference={"source": "paper", "values": values}))
    study.run(plan, tmp_path, say=ignore)
    table = study_table.tabulate(plan, tmp_path)
    console = Console(width=200, file=io.StringIO())
    with console.capture() as taken:
        console.print(formats.rich_table(table, stacked=True))
    lines = taken.get().splitlines()
    row = next(number for number, line in enumerate(lines) if "FedAvg" in line)
    assert "57.50 (2.12)" in lines[row] and "95.69" not in lines[row]
    assert "paper" in lines[row + 1] and "95.69 (2.39)" in lines[row + 1]


# -- with real runs ------------------------------------------------------------------------------------------------

REAL: dict[str, Any] = {
    "settings": {"data": "digits", "clients": 4, "cohort": 2, "rounds": 3, "executor": "serial", "checkpoint_every": 1},
    "method": [{"label": "FedAvg", "method": "fedavg"}, {"label": "Local", "method": "local"}],
    "seeds": [1],
}


class Impatient:
    """A user who presses Ctrl-C in the second round of the second run."""

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, label: str, rounds: int, done: int = 0) -> None:
        self.begun += 1

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        if self.begun == 2 and round == 2:
            raise KeyboardInterrupt

    def say(self, line: str) -> None: ...

    def end(self) -> None: ...


def test_real_runs_are_resumed_to_the_same_result_and_not_redone(tmp_path: Path) -> None:
    plan = plan_of(REAL)
    first, second = (tmp_path / "a" / job.folder for job in plan.jobs)
    outcome = study.run(plan, tmp_path / "a", say=ignore, progress=Impatient())
    assert (outcome.interrupted, outcome.done) == (True, 1)
    assert (second / "config.toml").exists() and not (second / "summary.json").exists()
    written = (first / "summary.json").stat().st_mtime_ns
    outcome = study.run(plan, tmp_path / "a", say=ignore)
    assert (outcome.skipped, outcome.done, outcome.failed) == (1, 1, {})
    assert (first / "summary.json").stat().st_mtime_ns == written
    study.run(plan, tmp_path / "b", say=ignore)
    for folder in (first, second):
        resumed = json.loads((folder / "summary.json").read_text())
        straight = json.loads((tmp_path / "b" / folder.name / "summary.json").read_text())
        assert resumed["metrics"] == straight["metrics"] and resumed["per_client"] == straight["per_client"]
    values = json.loads((first / "summary.json").read_text())["per_client"]["top1"]
    row = rows_of(study_table.tabulate(plan, tmp_path / "a"))[0]
    assert float(row["top1 mean %"]) == pytest.approx(100 * statistics.fmean(values))
    assert float(row["top1 mean % std"]) == pytest.approx(100 * statistics.pstdev(values))


def test_a_real_run_that_cannot_start_is_reported(tmp_path: Path) -> None:
    content = copy.deepcopy(REAL)
    content["method"][1] |= {"data": str(tmp_path / "missing.csv"), "split": "iid"}
    outcome = study.run(plan_of(content), tmp_path / "a", say=ignore)
    assert outcome.done == 1
    assert list(outcome.failed.values()) == [["Local, seed 1"]]
    assert "no such file" in next(iter(outcome.failed))


def test_the_smoke_study_runs_and_shows(tmp_path: Path) -> None:
    out = str(tmp_path / "smoke")
    assert invoke("study", "run", "smoke", "--out", out, "rounds=2", "seeds=1,2").exit_code == 0
    shown = invoke("study", "table", "smoke", "--out", out, "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [line["method"] for line in lines] == ["Local", "FedAvg", "FedProx", "SCAFFOLD"]
    assert all(0 <= float(value) <= 100 for line in lines for key, value in line.items() if key != "method")


class StopsAtTheEnd(Silent):
    """Presses Ctrl-C when the last round of a run is written down, after which nobody looks for it in the run."""

    def update(self, round: int, metric: str = "", value: float | None = None) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_while_the_last_round_is_measured_stops_the_study(tmp_path: Path) -> None:
    settings = {"model": "logreg", "clients": 4, "rounds": 1, "executor": "serial", "eval_every": 0}
    rows = [{"label": name, "method": name} for name in ("fedavg", "uniform")]
    plan = study.plan(study.parse("t", {"seeds": [1], "settings": settings, "method": rows}))
    outcome = study.run(plan, tmp_path, say=lambda line: None, progress=StopsAtTheEnd())
    assert outcome.interrupted and outcome.done == 1
    again = study.run(plan, tmp_path, say=lambda line: None)
    assert not again.interrupted and (again.skipped, again.done) == (1, 1)
