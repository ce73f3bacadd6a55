"""Damaged files of a run folder are named, kept, and made again from checkpoints to what they were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.invoked import invoke

import fedchord
from fedchord.check import FedchordError, FedchordWarning
from fedchord.experiments import reading, study
from fedchord.experiments import run as runs
from fedchord.experiments.config import RunConfig
from fedchord.experiments.repair import _latest, spans
from fedchord.models import LogisticRegression
from fedchord.report import plots

TINY = ["model=logreg", "clients=4", "cohort=2", "rounds=6", "executor=serial", "eval_every=1", "method=ditto"]
CLOCK = ("seconds", "elapsed", "finished")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of six rounds, with the checkpoints of rounds 4 and 6."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    runs.execute(RunConfig.from_pairs([*TINY, "checkpoint_every=2", f"out={folder}"]))
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "a")


def lines(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in found]


def results(folder: Path) -> dict[str, Any]:
    """The summary without the clock and the folder's name."""
    found = {key: value for key, value in reading.read(folder).summary.items() if key not in CLOCK}
    return found | {"config": {key: value for key, value in found["config"].items() if key != "out"}}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def resumed(folder: Path) -> list[str]:
    said: list[str] = []
    runs.resume(folder, report=said.append)
    return said


# -- summary.json --------------------------------------------------------------------------------------------------

BROKEN = {"empty": "", "half": None, "garbage": "\x00\x00nonsense", "list": "[1, 2]", "number": "3", "null": "null"}
BROKEN |= {"no metrics": '{"layout": 2}', "odd metrics": '{"layout": 2, "metrics": {"top1": 3}}', "object": "{}"}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_damaged_summary_is_named_kept_and_measured_again(whole: Path, run: Path, text: str | None) -> None:
    file = run / "summary.json"
    file.write_text(file.read_text()[:300] if text is None else text)
    broken = file.read_bytes()
    assert resumed(run) == [f"{file} is damaged; it is made again, the old one is summary.damaged"]
    assert results(run) == results(whole) and lines(run) == lines(whole)
    assert (run / "summary.damaged").read_bytes() == broken
    before = files(run)
    assert resumed(run) == [f"{run} is finished; nothing was changed"] and files(run) == before


def test_a_summary_that_is_gone(whole: Path, run: Path) -> None:
    (run / "summary.json").unlink()
    assert resumed(run) == [] and results(run) == results(whole) and lines(run) == lines(whole)


def test_whoever_reads_it_names_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a/summary.json").write_text("{")
    told = "a: summary.json is damaged; make it again with: fedchord resume a"
    for words in (["table", "a"], ["compare", "a", "--bootstrap", "seeds"], ["plot", "a"]):
        with pytest.raises(FedchordError, match=told):
            raise invoke(*words).exception
    shutil.copytree("a", "b")
    runs.resume("b", report=lambda line: None)
    for words in (["table"], ["compare", "--bootstrap", "seeds"], ["plot", "--to", "f.png"]):
        done = invoke(words[0], "a", "b", *words[1:])
        assert done.exit_code == 0 and told in done.stderr.splitlines()
    with pytest.raises(FedchordError, match=r"a already holds a run .*go on with: fedchord resume a"):
        runs.execute(RunConfig.from_pairs([*TINY, "checkpoint_every=2", "out=a"]))


def test_a_study_makes_it_again(tmp_path: Path) -> None:
    settings = {"model": "logreg", "clients": 4, "cohort": 2, "rounds": 1, "executor": "serial", "split": "iid"}
    table = {"title": "toy", "seeds": [1], "settings": settings, "method": [{"label": "A", "method": "fedavg"}]}
    plan = study.plan(study.parse("toy", table | {"setting": [{"label": "x"}]}))
    assert study.run(plan, tmp_path, say=lambda line: None).done == 1
    folder = tmp_path / plan.jobs[0].folder
    before = results(folder)
    (folder / "summary.json").write_text("")
    said: list[str] = []
    assert study.run(plan, tmp_path, say=said.append).done == 1 and results(folder) == before
    assert f"  {folder}/summary.json is damaged; it is made again, the old one is summary.damaged" in said


# -- rounds.jsonl --------------------------------------------------------------------------------------------------


def cut_last(texts: list[str]) -> str:
    return "\n".join([*texts[:-1], texts[-1][:40]])


def garbage_at(place: int) -> Callable[[list[str]], str]:
    return lambda texts: "\n".join([*texts[: place - 1], "\x00\x00 no line", *texts[place:]]) + "\n"


LATE: dict[str, tuple[Callable[[list[str]], str], str]] = {
    "cut in the last line": (cut_last, "line 6"),
    "garbage in line 5": (garbage_at(5), "line 5"),
    "another type": (lambda texts: "\n".join([*texts[:4], "[5]", '{"round": "six"}']) + "\n", "lines 5 to 6"),
    "a line without its numbers": (lambda texts: "\n".join([*texts[:5], '{"round": 6}']) + "\n", "line 6"),
}


@pytest.mark.parametrize(("change", "where"), LATE.values(), ids=LATE)
def test_rounds_after_a_checkpoint_are_done_again(
    whole: Path, run: Path, change: Callable[[list[str]], str], where: str
) -> None:
    file = run / "rounds.jsonl"
    file.write_text(change(file.read_text().splitlines()))
    broken = file.read_bytes()
    said = resumed(run)
    assert said[0] == f"{file} is damaged in {where}; whole lines stay, the old one is rounds.damaged"
    assert said[1] == f"{file} lacks rounds; they are done again from round 5 on" and len(said) == 2
    assert lines(run) == lines(whole) and results(run) == results(whole)
    assert (run / "rounds.damaged").read_bytes() == broken
    before = files(run)
    assert resumed(run) == [f"{run} is finished; nothing was changed"] and files(run) == before


def test_the_last_lines_are_gone(whole: Path, run: Path) -> None:
    file = run / "rounds.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:4]))
    with pytest.raises(FedchordError, match=r"rounds\.jsonl ends with round 4; make it again with: fedchord resume"):
        plots.plot([run], run.parent / "f.png")
    assert resumed(run) == [f"{file} lacks rounds; they are done again from round 5 on"]
    assert lines(run) == lines(whole) and results(run) == results(whole)


def test_earlier_rounds_cannot_be_had_again_and_the_others_stay(whole: Path, run: Path) -> None:
    """Lines 2 and 6 are damaged; checkpoints are of rounds 4 and 6."""
    file = run / "rounds.jsonl"
    file.write_text(garbage_at(6)(garbage_at(2)(file.read_text().splitlines()).splitlines()))
    with pytest.raises(FedchordError, match=r"rounds\.jsonl is damaged in line 2; make it again with: fedchord resume"):
        plots.plot([run], run.parent / "f.png")
    said = resumed(run)
    assert said[0].startswith(f"{file} is damaged in lines 2, 6;") and "from round 5 on" in said[1]
    assert said[2].startswith(f"{file} has lost rounds 2; the metrics are not affected")
    assert lines(run) == [line for line in lines(whole) if line["round"] != 2]
    assert results(run)["metrics"] == results(whole)["metrics"]
    assert resumed(run) == [f"{run} is finished; nothing was changed"]
    plots.plot([run], run.parent / "f.png")


def test_only_an_early_line_leaves_the_summary_alone(run: Path) -> None:
    summary = (run / "summary.json").read_bytes()
    file = run / "rounds.jsonl"
    file.write_text(garbage_at(1)(file.read_text().splitlines()))
    assert resumed(run)[0].startswith(f"{file} is damaged in line 1; whole lines stay")
    assert [line["round"] for line in lines(run)] == [2, 3, 4, 5, 6]
    assert (run / "summary.json").read_bytes() == summary


@pytest.mark.parametrize("text", [None, "", "\x00\x00\x00"], ids=["missing", "empty", "zeros"])
def test_all_rounds_are_gone_where_there_is_one_checkpoint(tmp_path: Path, text: str | None) -> None:
    """Then the run is done again from its start, as after an interruption before its first checkpoint."""
    out = tmp_path / "a"
    summary = runs.execute(RunConfig.from_pairs([*TINY, "checkpoint_every=0", f"out={out}"]))
    before, file = lines(out), out / "rounds.jsonl"
    file.unlink() if text is None else file.write_text(text)
    assert f"{file} lacks rounds; they are done again from round 1 on" in resumed(out)
    assert lines(out) == before and reading.read(out).summary["metrics"] == summary["metrics"]


def test_both_files_at_once(whole: Path, run: Path) -> None:
    (run / "summary.json").write_text("")
    file = run / "rounds.jsonl"
    file.write_text(cut_last(file.read_text().splitlines()))
    assert len(resumed(run)) == 2 and lines(run) == lines(whole) and results(run) == results(whole)


def test_in_python_without_progress_it_is_a_warning(tmp_path: Path) -> None:
    digits = fedchord.federate(fedchord.load("digits"), fedchord.data.Iid(), num_clients=4)
    task = fedchord.Task(lambda: LogisticRegression(inputs=64, classes=10))

    def made(**more: Any) -> Any:
        settings = {"rounds": 2, "executor": "serial", "out": tmp_path / "a"}
        return fedchord.run(fedchord.method("fedavg"), task, digits, **settings, **more)

    summary = made().finish()
    (tmp_path / "a" / "summary.json").write_text("[]")
    with pytest.raises(FedchordError, match=r"make it again with: fedchord\.run\(\.\.\., resume=True\)"):
        reading.read(tmp_path / "a")
    with pytest.warns(FedchordWarning, match=r"summary\.json is damaged; it is made again"):
        again = made(resume=True).finish()
    assert again["metrics"] == summary["metrics"] == reading.read(tmp_path / "a").summary["metrics"]


@pytest.mark.parametrize(
    ("saved", "lost", "latest"),
    [
        ([4, 6], [], None),
        ([4, 6], [1, 4], None),
        ([4, 6], [5], 4),
        ([4, 6], [2, 6], 4),
        ([4, 5, 6], [6], 5),
        ([6], [6], 0),
        ([6], [2], 0),
        ([], [], None),
    ],
)
def test_where_to_go_on_from(saved: list[int], lost: list[int], latest: int | None) -> None:
    assert _latest(saved, lost) == latest


def test_numbers_in_words() -> None:
    assert spans([1, 2, 3, 7, 9, 10]) == "1 to 3, 7, 9 to 10" and spans([4]) == "4"
