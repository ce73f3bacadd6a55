"""The commands of the README, in the order given, in an empty folder: with small sizes, in this process."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedchord.cli import main

README = Path(__file__).parents[2] / "README.md"
SHORTER = {"synth train": ["--steps", "20"], "synth quality": ["--rows", "100"]}
FOLLOWED = ("list", "run", "resume", "table", "compare", "plot", "report", "export", "predict", "sweep", "synth")


def commands() -> list[list[str]]:
    """The arguments of every fedchord line of the README that can run without a network."""
    (block,) = re.findall(r"^```sh\n(fedchord list.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    return [words for words in lines if words[0] in FOLLOWED]


def made_small(words: list[str]) -> list[str]:
    """The same command with small sizes; a run from a file has those of the file."""
    if words[0] == "sweep":
        return [*words, "clients=6", "cohort=3", "rounds=2", "executor=serial"]
    if words[0] == "resume":
        return [word if not word.startswith("rounds=") else "rounds=3" for word in words]
    if words[0] != "run" or words[1].endswith(".toml"):
        return [*words, *SHORTER.get(" ".join(words[:2]), [])]
    given = dict(word.split("=", 1) for word in words[1:])
    sizes = {"clients": "6", "rounds": "2", "cohort": "all" if given.get("cohort") == "all" else "3"}
    more = {"judge.steps": "20"} if given.get("method") == "fedevg" else {}
    return ["run", *(f"{key}={value}" for key, value in (given | sizes | more | {"executor": "serial"}).items())]


def test_every_command_works_in_the_order_given(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCHORD_DATA", str(tmp_path / "nowhere"))
    done = []
    for words in commands():
        with pytest.raises(SystemExit) as ended:
            main(made_small(words))
        printed = capsys.readouterr()
        assert not ended.value.code, f"fedchord {' '.join(words)}: {printed.err}"
        done.append(" ".join(words[: 2 if words[0] == "synth" else 1]))
        if words[0] == "compare":
            assert re.search(r"fedprox.* 12 ", printed.out), printed.out  # six clients, two seeds
    assert {
        *FOLLOWED[:-1],
        "synth show",
        "synth train",
        "synth judge",
        "synth quality",
        "synth privacy",
        "synth export",
    } == set(done)
    assert (tmp_path / "runs/a/summary-2.json").exists() and list(tmp_path.glob("runs/sweep-*/sweep.csv"))
    assert "<title>digits, pathological split, 6 clients" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "classifier.pt").exists() and (tmp_path / "digits.npz").exists()
