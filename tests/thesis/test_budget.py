"""Missing runs within a budget, and the small results that are kept of them: real runs of a small study on digits."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from pathlib import Path

import pytest
from helpers.invoked import invoke

import fedchord
from fedchord.check import FedchordError
from fedchord.cli import main
from fedchord.experiments import cost, study
from fedchord.experiments.config import RunConfig
from fedchord.thesis import budget, cells, results, studies
from fedchord.thesis.keeping import keep_lines, keep_runs

TOY = """
title = "Two methods on digits"
about = "For tests."
metric = "top1"
columns = ["swept", "loss swept"]
seeds = [1, 2]
[settings]
data = "digits"
model = "logreg"
clients = 6
cohort = 3
executor = "serial"
[[method]]
label = "FedAvg"
method = "fedavg"
[[method]]
label = "Ditto"
method = "ditto"
[[method]]
label = "Uniform"
method = "uniform"
[[setting]]
label = "two classes"
[[setting]]
label = "iid"
split = "iid"
[scale.smoke]
rounds = 1
seeds = [1]
[scale.small]
rounds = 2
seeds = [1]
in = { "iid" = { rounds = 3 }, "Ditto / iid" = { rounds = 4 } }
[scale.thesis]
rounds = 6
[reference]
[reference.values.FedAvg]
"two classes" = { swept = [50.0, 1.0], "loss swept" = [0.5] }
"iid" = { swept = [90.0, 1.0], "loss swept" = [0.4] }
[reference.values.Ditto]
"two classes" = { swept = [95.0, 1.0], "loss swept" = [0.2] }
"iid" = { swept = [90.0, 1.0], "loss swept" = [0.3] }
"""


def ignore(line: str) -> None: ...


@pytest.fixture
def toy(tmp_path: Path) -> str:
    (tmp_path / "toy.toml").write_text(TOY)
    return str(tmp_path / "toy.toml")


def spent(toy: str, folder: Path, scale: str = "small", **more: object) -> study.Outcome:
    kept, _ = results.read_all(folder / "results")
    runs = budget.todo([toy], scale, cells.Kept(kept))
    return budget.run(runs, scale, folder / "work", folder / "results", say=ignore, **more)  # type: ignore[arg-type]


def test_scales_reach_into_columns_and_rows(toy: str) -> None:
    rounds = {(job.method, job.setting): job.config.rounds for job in study.plan(studies.load(toy)).jobs}
    assert rounds["FedAvg", "two classes"] == rounds["Ditto", "two classes"] == 2
    assert (rounds["FedAvg", "iid"], rounds["Ditto", "iid"]) == (3, 4)
    asked = study.plan(studies.load(toy), None, ["rounds=9"])  # the command line stands on top
    assert {job.config.rounds for job in asked.jobs} == {9}


def test_runs_are_made_kept_and_not_made_again(toy: str, tmp_path: Path) -> None:
    done = spent(toy, tmp_path)
    assert (done.planned, done.done, done.failed, done.interrupted) == (4, 4, {}, False)  # no run for the control
    assert not list((tmp_path / "work").glob("*/"))  # only the record of the study is left there
    kept, wrong = results.read_all(tmp_path / "results")
    assert (len(kept), wrong) == (4, {}) and spent(toy, tmp_path).planned == 0
    states = {(*cell.key, cell.column): cells.state(cell, cells.Kept(kept)) for cell in cells.cells(toy)}
    assert {one.state for one in states.values()} == {"reduced"}
    assert states["FedAvg", "iid", "swept"].less == ("rounds 3 (6)", "1 of 2 seeds")
    ditto = next(one for one in kept if (one.row, one.setting) == ("Ditto", "iid"))
    again = study.plan(studies.load(toy), "small")
    job = next(job for job in again.jobs if (job.method, job.setting) == ("Ditto", "iid"))
    study.run(study.narrowed(again, ["Ditto", "iid"]), tmp_path / "again", say=ignore)
    summary = json.loads((tmp_path / "again" / job.folder / "summary.json").read_text())
    for metric, column in (("top1", "swept"), ("loss", "swept"), ("top1", "mean"), ("loss", "mean")):
        assert ditto.run().value(metric, column) == pytest.approx(summary["metrics"][metric][column], abs=1e-5)
    assert ditto.content["per_client"]["top1"] == pytest.approx(summary["per_client"]["top1"], abs=1e-5)
    assert states["Ditto", "iid", "loss swept"].value == pytest.approx(summary["metrics"]["loss"]["swept"], abs=1e-5)
    best = ditto.content["sweep"]["per_client"]
    assert sum(best) / len(best) == pytest.approx(summary["metrics"]["top1"]["swept"], abs=1e-4)
    assert ditto.verdict == "original" and ditto.version == fedchord.__version__
    assert ditto.path.stat().st_size < 5000


def test_at_the_thesis_scale_a_cell_becomes_full(toy: str, tmp_path: Path) -> None:
    assert spent(toy, tmp_path, "thesis").done == 8
    kept, _ = results.read_all(tmp_path / "results")
    found = [cells.state(cell, cells.Kept(kept)) for cell in cells.cells(toy)]
    assert {one.state for one in found} == {"full"} and {one.seeds for one in found} == {2}


def test_what_is_damaged_or_half_written_is_told_and_made_again(toy: str, tmp_path: Path) -> None:
    spent(toy, tmp_path)
    paths = sorted((tmp_path / "results").glob("*/*.json"))
    text = paths[0].read_text()
    paths[0].write_text(text[: len(text) // 2])
    paths[1].write_text(paths[1].read_text().replace('"form": 1', '"form": 7'))
    paths[2].write_text(paths[2].read_text().replace('"rounds":', '"rouns":'))
    (paths[2].parent / ".half.json.partial").write_text("{")
    kept, wrong = results.read_all(tmp_path / "results")
    assert len(kept) == 1 and set(wrong) == set(paths[:3])
    assert wrong[paths[0]] == "is damaged" and wrong[paths[1]] == "is of another form (7)"
    assert "did you mean 'rounds'" in wrong[paths[2]]
    assert spent(toy, tmp_path).done == 3
    kept, wrong = results.read_all(tmp_path / "results")
    assert (len(kept), wrong) == (4, {}) and paths[0].read_text().startswith(text[: text.index('"versions"')])


def test_results_of_another_version_are_made_anew_on_request(toy: str, tmp_path: Path) -> None:
    spent(toy, tmp_path)
    first = min((tmp_path / "results").glob("*/*.json"))
    first.write_text(first.read_text().replace(f'"fedchord":"{fedchord.__version__}"', '"fedchord":"0.0.1"'))
    kept = cells.Kept(results.read_all(tmp_path / "results")[0])
    assert budget.todo([toy], "small", kept) == []
    (only,) = budget.todo([toy], "small", kept, again=True)
    assert first.name == f"{only.job.folder}.json"


def test_numbers_copied_from_a_document_count_until_the_run_is_made(toy: str, tmp_path: Path) -> None:
    spent(toy, tmp_path)
    first = min((tmp_path / "results").glob("*/*.json"))
    first.write_text(first.read_text().replace('"form": 1,', '"form": 1,\n"from": "docs/page.md",'))
    kept, wrong = results.read_all(tmp_path / "results")
    assert not wrong and [one.copied for one in kept].count("docs/page.md") == 1
    states = [cells.state(cell, cells.Kept(kept)) for cell in cells.cells(toy)]
    assert {one.state for one in states} == {"reduced"}
    assert spent(toy, tmp_path).done == 1 and '"from"' not in first.read_text()


def test_a_cell_with_more_lacks_nothing_and_empty_cells_come_first(toy: str, tmp_path: Path) -> None:
    """A run that would tell less than what is kept is not made; what is known of nothing comes before what is cheap."""
    plan = study.plan(studies.load(toy), "thesis", ["rounds=5", "seeds=1"])  # longer than small, shorter than thesis
    study.run(plan, tmp_path / "runs", ["FedAvg", "two classes"], say=ignore)
    keep_runs(toy, [tmp_path / "runs"], tmp_path / "results")
    kept = cells.Kept(results.read_all(tmp_path / "results")[0])

    def lacking(scale: str) -> list[tuple[str, str, int]]:
        return [(one.job.method, one.job.setting, one.job.seed) for one in budget.todo([toy], scale, kept)]

    assert len(lacking("small")) == 3 and ("FedAvg", "two classes", 1) not in lacking("small")
    assert len(lacking("thesis")) == 8
    assert lacking("thesis")[-2:] == [("FedAvg", "two classes", 1), ("FedAvg", "two classes", 2)]  # known of already
    spent(toy, tmp_path, "thesis")
    kept = cells.Kept(results.read_all(tmp_path / "results")[0])
    assert lacking("small") == lacking("thesis") == []  # all are full


def test_a_budget_that_is_spent_ends_after_a_round_and_goes_on(toy: str, tmp_path: Path) -> None:
    assert (spent(toy, tmp_path, hours=1e-12).interrupted, list(tmp_path.glob("work/*/"))) == (True, [])
    runs = budget.todo([toy], "thesis", cells.Kept([]))[:1]
    long = [budget.Todo(_longer(runs[0].job), toy, {"top1": None}, 1.0, [], 1)]
    stopped = budget.run(long, "thesis", tmp_path / "work", tmp_path / "results", 1.5 / 3600, say=ignore)
    assert stopped.interrupted and stopped.done == 0 and not (tmp_path / "results").exists()
    (folder,) = tmp_path.glob("work/*/")
    assert list(folder.glob("checkpoints/round-*")) and not (folder / "summary.json").exists()


def _longer(job: study.Job) -> study.Job:
    return study.Job(job.method, job.setting, job.seed, job.config.with_values(rounds=100_000))


def test_the_cheapest_cell_comes_first_and_parts_make_the_whole() -> None:
    runs = budget.todo(studies.TABLES, "small", cells.Kept([]))
    price = [one.seconds / one.cells for one in runs]
    assert price == sorted(price) and sum(one.cells for one in runs) >= 799
    marks = [one.job.config.fingerprint() for one in runs]
    assert len(set(marks)) == len(marks)  # no run twice, whoever needs it
    parts = [budget.part_of(runs, f"{number}/10") for number in range(1, 11)]
    assert sorted(one.job.folder for part in parts for one in part) == sorted(one.job.folder for one in runs)
    assert all(parts)
    for wrong in ("0/10", "11/10", "3", "a/b", "1/0"):
        with pytest.raises(FedchordError, match="part must be like 3/10"):
            budget.part_of(runs, wrong)


def test_smoke_runs_a_part_of_every_table_without_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCHORD_DATA", str(tmp_path / "nowhere"))
    done = invoke("thesis", "run", "--scale", "smoke", "--part", "7/60", "--work", str(tmp_path / "work"))
    assert done.exit_code == 0, done.output
    assert "runs finished" in done.stdout and not (tmp_path / "results").exists()
    runs = budget.todo(studies.TABLES, "smoke", cells.Kept([]))
    assert not any(one.missing for one in runs) and {one.job.config.data for one in runs} == {"digits"}


def test_runs_of_a_study_at_any_length_are_kept_by_what_they_are(toy: str, tmp_path: Path) -> None:
    plan = study.plan(studies.load(toy), "thesis", ["rounds=5", "seeds=7"])
    study.run(plan, tmp_path / "runs", ["FedAvg", "iid"], say=ignore)
    other = study.plan(studies.load(toy), "thesis", ["lr=0.3", "rounds=1", "seeds=1"])
    study.run(other, tmp_path / "runs", ["FedAvg", "iid"], say=ignore)
    kept, problems = keep_runs(toy, [tmp_path / "runs"], tmp_path / "results")
    assert len(kept) == len(problems) == 1 and "with another seed or length" in problems[0]
    (found,), _ = results.read_all(tmp_path / "results")
    assert (found.study, found.row, found.setting, found.seed, found.config.rounds) == ("toy", "FedAvg", "iid", 7, 5)


def test_rows_that_differ_in_their_length_alone_are_kept_as_what_they_are(toy: str, tmp_path: Path) -> None:
    longer = '[[method]]\nlabel = "FedAvg, longer"\nmethod = "fedavg"\nrounds = 3\n[[setting]]'
    Path(toy).write_text(TOY.partition("[scale.smoke]")[0].replace("[[setting]]", longer, 1))
    plan = study.plan(studies.load(toy), None, ["seeds=7"])
    study.run(plan, tmp_path / "runs", ["FedAvg", "FedAvg, longer", "iid"], say=ignore)
    kept, problems = keep_runs(toy, [tmp_path / "runs"], tmp_path / "results")
    found, _ = results.read_all(tmp_path / "results")
    assert not problems and len(kept) == 2
    rounds = {one.row: one.config.rounds for one in found}
    assert rounds["FedAvg, longer"] == 3 != rounds["FedAvg"]


def test_runs_are_kept_as_lines_of_one_table(toy: str, tmp_path: Path) -> None:
    for seeds in ("7", "7,8"):
        plan = study.plan(studies.load(toy), "thesis", ["rounds=1", f"seeds={seeds}"])
        study.run(plan, tmp_path / "runs", ["Ditto", "iid"], say=ignore)
        kept, problems = keep_lines(toy, [tmp_path / "runs"], tmp_path / "results")
        assert not problems and kept == [tmp_path / "results" / "toy.csv"]
    with kept[0].open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [(line["setting"], line["row"], line["seed"]) for line in lines] == [("iid", "Ditto", s) for s in ("7", "8")]
    for line, job in zip(lines, study.picked(plan, ["Ditto", "iid"]), strict=True):
        summary = json.loads((tmp_path / "runs" / job.folder / "summary.json").read_text())
        assert job.folder.endswith(line["run"]) and line["rounds"] == "1"
        assert float(line["swept"]) == pytest.approx(summary["metrics"]["top1"]["swept"], abs=1e-5)
    shutil.rmtree(tmp_path / "runs" / job.folder)
    keep_lines(toy, [tmp_path / "runs"], tmp_path / "results")
    assert len(kept[0].read_text().splitlines()) == 3  # what was kept before stays
    kept[0].write_text("a,b\n1,2\n")
    with pytest.raises(FedchordError, match="has other columns than the study"):
        keep_lines(toy, [tmp_path / "runs"], tmp_path / "results")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["thesis", "status", "2_tabel3"], "unknown table of results '2_tabel3'; did you mean '2_table3'"),
        (["thesis", "run", "--scale", "tiny"], "scale must be one of smoke, small, thesis, got 'tiny'"),
        (["thesis", "run", "--part", "x"], "part must be like 3/10, got 'x'"),
        (["thesis", "run", "--hours", "0"], "hours must be above 0"),
        (["thesis", "run", "--set", "rounds=3"], "rounds would change the results; only "),
        (["thesis", "keep", "2_table3", "."], "no finished run here"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words)
    printed = capsys.readouterr()
    assert ended.value.code == 2 and told in printed.err and len(printed.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_nothing_kept_says_what_to_run(tmp_path: Path) -> None:
    done = invoke("thesis", "status", "--results", str(tmp_path / "none"), "--format", "csv")
    assert done.exit_code == 0 and "begin with fedchord thesis run" in done.stderr
    assert "all,799,799,0,0,799,0,-" in done.stdout


# -- before anything runs ------------------------------------------------------------------------------------------


def test_a_dry_run_names_runs_missing_files_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCHORD_DATA", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    done = invoke("study", "run", "result_silo", "--scale", "thesis", "--dry-run")
    assert done.exit_code == 0 and list(tmp_path.iterdir()) == []
    assert "missing: distilbert, for 27 of the runs" in done.stdout
    assert f"missing: {tmp_path}/nowhere/mqp/mqp.csv, for 27 of the runs" in done.stdout
    assert "result_silo at scale thesis: 135 runs; 0 are there, 135 lack files, 0 to run" in done.stdout
    done = invoke("study", "run", "smoke", "--dry-run")
    assert (
        "smoke at scale small: 16 runs; 0 are there, 0 lack files, 16 to run" in done.stdout
        and "nothing was run" in done.stdout
    )


def test_the_estimate_grows_with_the_work() -> None:
    def seconds(**keys: object) -> float:
        base = {"data": "mnist", "model": "twonn", "clients": 100, "rounds": 100, "cohort": 5, "eval_every": 0}
        return cost.seconds(RunConfig.from_values(base | keys))

    plain = seconds()
    # 100 rounds x 5 clients x 480 rows x 0.06 ms, and 12,000 test rows twice at a third of it
    assert plain == pytest.approx(1 + 0.06e-3 * (100 * 5 * 480 + 24_000 / 3), rel=1e-6)
    assert seconds(epochs=10) > 5 * plain and seconds(method="pfedme") > 3 * plain
    assert seconds(method="ditto") > seconds() and seconds(model="twocnn") > 10 * plain
    drawn = [seconds(method="fedcgan", model="cgan", data=f"dermamnist{end}", split="iid") - 1 for end in ("", "_64")]
    assert drawn[1] == pytest.approx(drawn[0] * (64 / 28) ** 2)  # by their area
    assert [cost.told(s) for s in (5, 120, 7200, 200_000)] == ["5 s", "2 min", "2 hours", "2 days"]


def test_the_command_that_goes_on_names_the_same_folders_and_keys(tmp_path: Path) -> None:
    given = ["thesis", "run", "pnp", "--scale", "smoke", "--again", "--hours", "1e-12", "--part", "1/10"]
    given += ["--work", str(tmp_path / "un done"), "--results", str(tmp_path / "kept"), "--set", "executor=serial"]
    done = invoke(*given)
    (line,) = [line for line in done.stderr.splitlines() if "go on with: " in line]
    assert shlex.split(line.partition("go on with: ")[2]) == ["fedchord", *given]
