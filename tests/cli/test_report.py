"""The command `report`: what it writes, and its mistakes in one line with exit code 2 and nothing left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.invoked import invoke

from fedchord.cli import main
from fedchord.experiments.config import RunConfig
from fedchord.experiments.run import execute


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "a"
    small = {"model": "logreg", "clients": 6, "cohort": 3, "rounds": 2, "executor": "serial", "out": str(folder)}
    execute(RunConfig.from_values(small))
    return folder


@pytest.fixture
def here(run, tmp_path, monkeypatch) -> Path:
    """An empty folder with the run as runs/a."""
    shutil.copytree(run, tmp_path / "runs" / "a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failing(capsys, *arguments: str) -> str:
    """The one line of an error."""
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "") and len(told.err.splitlines()) == 1, told
    return told.err


def report(capsys, *arguments: str) -> tuple[str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    told = capsys.readouterr()
    assert ended.value.code == 0, told.err
    return told.out, told.err


def test_runs_become_a_file(here, capsys):
    out, err = report(capsys, "runs/*")
    assert out == "wrote report.html: 1 runs; open it in a browser\n" and err == ""
    text = Path("report.html").read_text()
    assert "fedchord report &#39;runs/*&#39; --to report.html" in text
    assert sorted(path.name for path in here.iterdir()) == ["report.html", "runs"]


def test_a_study_becomes_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = failing(capsys, "smoke")
    assert "no finished run of the study in runs/smoke; run it with: fedchord study run smoke" in line
    with pytest.raises(SystemExit):
        main(["study", "run", "smoke", "--only", "FedAvg", "--only", "FedProx", "rounds=1", "seeds=1"])
    capsys.readouterr()
    out, err = report(capsys, "smoke", "--to", "new/study.html")
    assert "wrote new/study.html: 4 runs" in out and "4 of 8 runs of the study are missing" in err
    text = Path("new/study.html").read_text()
    assert text.count("<article") == 2 and "A first look: four methods on real digits" in text
    assert "two classes each" in text and "4 of 8 runs of the study are missing" in text


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(here, capsys):
    for name in ("old", "damaged", "begun"):
        shutil.copytree("runs/a", f"runs/{name}")
    path = Path("runs/old/summary.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layout": 1}))
    Path("runs/damaged/summary.json").write_text('{"layout": 2, "metr')
    Path("runs/begun/summary.json").unlink()
    Path("runs/none").mkdir()
    out, err = report(capsys, "runs/a", "runs/old", "runs/damaged", "runs/begun", "runs/none")
    lines = err.splitlines()
    assert len(lines) == 4 and "1 runs" in out
    assert "written by an earlier fedchord (layout 1); run it again: fedchord run runs/old/config.toml" in lines[0]
    assert "summary.json is damaged" in lines[1] and "go on with: fedchord resume runs/begun" in lines[2]
    assert "not a run folder" in lines[3]
    text = Path("report.html").read_text()
    assert all(line in text for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["empty"], "nothing to report: no finished run here (empty: not a run folder (it has no config.toml)); make"),
        (["nowhere"], "nowhere: no such run folder"),
        (["file.txt"], "file.txt is a file, not a run folder"),
        (["smokes.toml"], "smokes.toml: no such file"),
        (["runs/a", "--to", "report.pdf"], "the file must end in .html, got 'report.pdf'"),
        (["runs/a", "--to", "empty/folder.html/x.html"], "is a file"),
        (["runs/a", "--metric", "topp1"], "did you mean 'top1'"),
        (["runs/a", "--against", "fedprox"], "no one row 'fedprox' to compare with (rows: fedavg)"),
        (["runs/a", "--out", "runs"], "--out is for a study"),
    ],
)
def test_mistakes(here, capsys, arguments, words):
    Path("empty").mkdir()
    Path("empty/folder.html").write_text("")
    Path("file.txt").write_text("")
    assert words in failing(capsys, *arguments)
    assert not Path("report.html").exists() and not Path("report.pdf").exists()


def test_a_report_that_fails_leaves_the_older_one(here, capsys):
    Path("report.html").write_text("older")
    failing(capsys, "runs/a", "--metric", "nonsense")
    assert Path("report.html").read_text() == "older"


def test_the_help_teaches():
    text = invoke("report", "--help").output
    assert "fedchord report runs/*" in text and "fedchord report smoke" in text and "--no-data" in text
