"""The lists come from an index: it says what the catalogue says, and needs no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedchord
from fedchord import catalog
from fedchord.check import FedchordError
from fedchord.cli import index, listing
from fedchord.data import SOURCES, status
from fedchord.experiments import study
from fedchord.thesis import studies

ASK = """
import sys
from fedchord.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end.code
heavy = [name for name in ("torch", "numpy", "matplotlib", "sklearn") if name in sys.modules]
assert not heavy, heavy
"""


def test_the_index_says_what_the_catalogue_says() -> None:
    assert listing.INDEX.read_text(encoding="utf-8") == index.text(), "make index writes it anew"
    assert [entry.name for entry in next(listing.sections("methods")).entries] == [*catalog.METHODS, "FILE.py:NAME"]
    assert {section.title for section in listing.sections()} == set(listing.SECTIONS)


def test_the_studies_are_counted_as_they_are_planned() -> None:
    told = list(listing.studies())
    assert told[::3] == list(studies.built_in())
    runs = {name: int(line.split()[0]) for name, line in zip(told[::3], told[2::3], strict=True)}
    for name in ("smoke", "2_table3"):
        assert runs[name] == len(study.plan(studies.load(name)).jobs)
    assert told[told.index("smoke") + 2] == "  16 runs: 4 methods x 2 settings x 2 seeds"


@pytest.mark.parametrize("command", [["list"], ["list", "data"], ["study", "list"]])
def test_lists_need_no_torch(command: list[str]) -> None:
    path = os.pathsep.join([str(Path(fedchord.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", ASK, *command], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 20


def test_files_are_looked_up_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCHORD_DATA", str(tmp_path))

    def told(name: str) -> str:
        return next(entry.about for entry in next(listing.sections("data")).entries if entry.name == name)

    assert told("digits").endswith("(comes with fedchord)") and told("heart").endswith("(missing)")
    for names in SOURCES["heart"].files:
        file = tmp_path / names[0]
        file.parent.mkdir(exist_ok=True)
        file.touch()
    assert told("heart").endswith("(present)") and status(SOURCES["heart"]) == "present"


def test_an_unknown_list_is_named() -> None:
    with pytest.raises(FedchordError, match="unknown list 'method'; did you mean 'methods'"):
        list(listing.sections("method"))
