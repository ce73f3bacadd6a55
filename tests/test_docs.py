"""The documents hold: their code runs, their commands exist, their links lead somewhere."""

from __future__ import annotations

import csv
import inspect
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers.documents import BLOCK, DOCUMENTS, ROOT, blocks, follow

from fedchord import catalog
from fedchord.core.rules import ClientRule, SamplesRule
from fedchord.experiments.config import RunConfig
from fedchord.experiments.interrupts import Stopped
from fedchord.experiments.run import execute, resume
from fedchord.testing import Contract, checks
from fedchord.testing.named import wants_folder

with warnings.catch_warnings():  # typer uses names that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import typer
    from typer.core import TyperGroup
    from typer.testing import CliRunner

    from fedchord.cli import app, read_settings


# -- code ----------------------------------------------------------------------------------------------------------


def test_the_quickstart_runs_as_it_stands(tmp_path):
    ((_, code),) = blocks("README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    script = tmp_path / "quickstart.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"^round +(\d+): mean accuracy (0\.\d+), worst tenth (0\.\d+)$", done.stdout, re.MULTILINE)
    assert [int(number) for number, _, _ in shown] == [5, 10, 15, 20]
    assert float(shown[-1][1]) > 0.5


def test_the_round_by_hand_is_the_round_of_the_simulator():
    assert follow("docs/the-round.md").names["simulated"].round == 1


def test_the_executor_of_the_page_about_clusters_runs():
    assert follow("docs/cluster.md").names["own"].round == 2


@pytest.fixture(scope="class")
def tutorial():
    """docs/write-a-rule.md, followed literally; its method is taken out of the catalogue afterwards."""
    tables: tuple[dict[str, Any], ...] = (catalog.METHODS, catalog.MIXINGS, catalog.SERVERS)
    before = [dict(table) for table in tables]
    try:
        yield follow("docs/write-a-rule.md").names
    finally:
        for table, old in zip(tables, before, strict=True):
            table.clear()
            table.update(old)


class TestWriteARule:
    def test_it_makes_a_method(self, tutorial):
        algorithm = catalog.build("shrink", {"pull": 0.5, "share": 0.1})
        assert algorithm.client == tutorial["Shrink"](pull=0.5) and algorithm.mixing == tutorial["Loudest"](share=0.1)
        assert tutorial["last"] < tutorial["first"]

    def test_the_method_keeps_the_contract(self, tutorial, tmp_path):
        """What the page promises of a method that is listed."""

        class Listed(Contract):
            def algorithm(self):
                return catalog.build("shrink")

        found = dict(checks(Listed()))
        assert len(found) >= 10
        for title, check in found.items():
            folder = tmp_path / title
            folder.mkdir()
            check(**({"tmp_path": folder} if wants_folder(check) else {}))


# -- loggers -------------------------------------------------------------------------------------------------------

LOGGED = ["rounds=4", "clients=4", "cohort=2", "model=logreg", "executor=serial", "eval_every=2", "checkpoint_every=1"]
STOP = """

class Stop:
    def begin(self, facts): ...
    def round(self, line):
        if line["round"] == 2: raise KeyboardInterrupt
    def end(self, summary): ...
"""


def logged(name: str) -> list[dict[str, Any]]:
    """The lines of a run that one of the loggers of the page was told of, from a file as a user would have it; the run
    is stopped after round 2 and goes on."""
    (code,) = [code for _, code in blocks("docs/loggers.md", "python") if f"class {name}:" in code]
    Path("my_log.py").write_text(code + STOP)
    said: list[str] = []
    with pytest.raises(Stopped):
        execute(RunConfig.from_pairs([*LOGGED, f"log=my_log.py:{name},my_log.py:Stop", "out=a"]), report=said.append)
    resume("a", [f"log=my_log.py:{name}"], report=said.append)
    assert len(said) == 1 and "stopped" in said[0]
    return [json.loads(line) for line in Path("a/rounds.jsonl").read_text().splitlines()]


def test_the_logger_of_the_page_writes_its_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = [[line["round"], line["metrics"]["top1"]["mean"]] for line in logged("Table") if "metrics" in line]
    assert [row[0] for row in expected] == [2, 4]
    rows = csv.reader(Path("rounds.csv").read_text().splitlines())
    assert [[int(number), float(value)] for number, value in rows] == expected


@pytest.mark.filterwarnings("ignore")
def test_the_lines_for_mlflow_work(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: its lines are tried by hand")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    lines = logged("MlFlow")
    client, run = mlflow.MlflowClient(), Path("a/mlflow.txt").read_text()
    assert len(client.search_runs(["0"])) == 1
    points = client.get_metric_history(run, "metrics/top1/mean")
    expected = [(line["round"], line["metrics"]["top1"]["mean"]) for line in lines if "metrics" in line]
    assert [(point.step, point.value) for point in points] == expected
    assert [point.step for point in client.get_metric_history(run, "bytes_up")] == [1, 2, 3, 4]
    assert client.get_run(run).info.status == "FINISHED" and client.get_run(run).data.params["rounds"] == "4"


@pytest.mark.filterwarnings("ignore")
def test_the_lines_for_wandb_work(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed: its lines are tried by hand")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert len(logged("Wandb")) == 4
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 2  # one before the stop, one after


# -- commands ------------------------------------------------------------------------------------------------------


def commands(name: str) -> list[str]:
    """The fedchord commands in the code of a document, in blocks and in the text."""
    lines = [line for _, code in blocks(name, "sh") for line in code.splitlines()]
    inline = re.findall(r"`([^`\n]+)`", BLOCK.sub("", DOCUMENTS[name]))
    found = [text.partition("#")[0].strip() for text in (*lines, *inline)]
    return [text for text in found if text.startswith("fedchord ")]


def resolve(text: str) -> list[str]:
    """The words of a command that name it, such as ["study", "run"]; fails if there is no such command."""
    here, names = typer.main.get_command(app), []
    for word in text.split()[1:]:
        if not isinstance(here, TyperGroup):
            break
        assert word in here.commands, f"{text}: no command {word!r}"
        here = here.commands[word]
        names.append(word)
    assert not isinstance(here, TyperGroup), f"{text}: which command?"
    return names


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_exists(name):
    for words in {tuple(resolve(text)) for text in commands(name)}:
        done = CliRunner().invoke(app, [*words, "--help"])
        assert done.exit_code == 0 and "Usage" in done.output, words


@pytest.mark.parametrize("text", ["fedchord list", "fedchord data", "fedchord study list"])
def test_commands_that_only_look_run(text):
    done = CliRunner().invoke(app, text.split()[1:])
    assert done.exit_code == 0 and done.output, done.exception


def test_the_readme_shows_every_command():
    def leaves(group: TyperGroup) -> list[list[str]]:
        parts = {name: leaves(c) if isinstance(c, TyperGroup) else [[]] for name, c in group.commands.items()}
        return [[name, *rest] for name, below in parts.items() for rest in below]

    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    shown = [resolve(text) for text in commands("README.md")]
    hidden = [" ".join(words) for words in leaves(root) if words not in (*shown, ["demo"], ["study", "list"])]
    assert not hidden, f"not in the README: {hidden}"


def test_the_settings_in_the_readme_are_good():
    checked = 0
    for text in commands("README.md"):
        words = text.split()
        settings = [word for word in words[2:] if "=" in word]
        if words[1] in ("run", "data") and settings and not words[2].endswith(".toml"):
            cohort = [] if words[1] == "run" else ["cohort=all"]
            assert isinstance(read_settings([*settings, *cohort]), RunConfig)
            checked += 1
    assert checked >= 3


def test_every_make_target_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, text in DOCUMENTS.items():
        for target in re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE):
            assert target in targets, f"{name}: make {target}"


def test_the_readme_opens_with_the_two_commands():
    _, code = blocks("README.md", "sh")[0]
    assert [line.split("#")[0].strip() for line in code.splitlines()] == ["make demo", "make test"]


# -- facts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["README.md", "docs/thesis-map.md"])
def test_every_method_is_named(name):
    assert not [method for method in catalog.METHODS if f"`{method}`" not in DOCUMENTS[name]]


def test_every_hook_is_in_the_table():
    text = DOCUMENTS["docs/write-a-rule.md"]
    table = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    hooks = [name for name, _ in inspect.getmembers(ClientRule, inspect.isfunction) if not name.startswith("_")]
    assert not [hook for hook in hooks if not re.search(rf"`{hook}[`(]", "\n".join(table))]
    more = {name for name in vars(SamplesRule) if not name.startswith("_")} - set(vars(ClientRule))
    assert len(hooks) <= 12 and not [hook for hook in more if f"`{hook}(" not in text]
    variables = [name for name in ClientRule.__annotations__ if not name.startswith("_")]
    assert variables == ["deploys", "sends"] and all(f"`{name}" in text for name in variables)


def test_every_erratum_has_a_row():
    rows = re.findall(r"^\| (E\d+) \| .+ \| .+ \|$", DOCUMENTS["docs/thesis-map.md"], re.MULTILINE)
    assert rows == [f"E{number}" for number in range(1, 30)]


def test_decisions_are_numbered():
    numbers = re.findall(r"^(\d+)\. ", DOCUMENTS["docs/decisions.md"], re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


def test_the_protocol_names_what_the_summary_holds():
    settings = ["rounds=1", "clients=4", "cohort=2", "model=logreg", "executor=serial", "split=iid"]
    summary = execute(RunConfig.from_pairs(settings))
    text = DOCUMENTS["docs/protocol.md"]
    assert set(re.findall(r"`protocol\.(\w+)`", text)) <= set(summary["protocol"])
    for key in ("config", "versions", "git", "seconds", "bytes", "per_client"):
        assert key in summary and f"`{key}`" in text
    for values in summary["metrics"].values():
        assert not [key for key in values if f"`{key}`" not in text]
    assert not [metric for metric in summary["metrics"] if f"`{metric}`" not in text]


# -- links and words -----------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_somewhere(name):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", BLOCK.sub("", DOCUMENTS[name])):
        if re.match(r"https?://", target):
            continue
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.exists(), f"{name}: {target}"
        assert path.resolve().is_relative_to(ROOT), f"{name}: {target} is outside the repository"
        assert not anchor or anchor in anchors(path), f"{name}: {target}#{anchor}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_document_names_a_machine(name):
    found = re.search(r"(?<![\w.])/(?:work|tmp|home|root|usr|opt|mnt|var)\b|\.\./shared|localhost", DOCUMENTS[name])
    assert found is None, f"{name}: {found}"
