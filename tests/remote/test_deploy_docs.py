"""docs/deploy.md, followed: every command of its list but those that serve and join, whose nodes are opened."""

from __future__ import annotations

import re
import shlex
import socket
from pathlib import Path

import pytest

from fedchord.remote.attending import open_node
from fedchord.remote.settings import read_fed, read_party

pytest.importorskip("cryptography", reason="cryptography is not installed: no certificates are made")
pytest.importorskip("flwr", reason="flwr is not installed, which check would say")
pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


def commands() -> list[str]:
    (block,) = re.findall(r"^## On one machine.*?^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return block.splitlines()


def words(line: str) -> list[str]:
    """The words of a line as a shell gives them to the command."""
    found: list[str] = []
    for word in shlex.split(line.rstrip(" &"))[1:]:
        found += sorted(str(path) for path in Path(".").glob(word)) if "*" in word else [word]
    return found


def test_the_ten_commands_work_in_the_order_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedchord.cli import main

    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    lines = commands()
    assert len(lines) == 10 and lines[0] == 'pip install "fedchord[flower]"'
    done = []
    for line in lines[1:]:
        given = words(line)
        if given[0] == "serve":
            assert read_fed(given[1]).plan_file.is_file()
        elif given[0] == "join":
            party = read_party(given[1])
            assert open_node(party).hello().facts["name"] == party.name
        else:
            more = {"init": ["--port", port], "check": ["--offline"]}.get(given[1], [])
            with pytest.raises(SystemExit) as ended:
                main([*given, *more])
            printed = capsys.readouterr()
            assert not ended.value.code, f"{line}: {printed.err or printed.out}"
        done.append(given[0])
    assert done == ["deploy"] * 4 + ["serve"] + ["join"] * 3 + ["deploy"]


def test_a_partys_page_is_true_about_making_keys_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of its section, run by a shell: what they make is taken by check, and is new."""
    import shutil
    import subprocess

    from fedchord.remote.checkup import check
    from fedchord.remote.init import init

    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    init(tmp_path / "fed", ["a"])
    here = tmp_path / "fed" / "a"
    old = (here / "node.key").read_bytes(), (here / "secret").read_bytes()
    page = (here / "README.md").read_text()
    (block,) = re.findall(r"^## Make the key.*?^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    subprocess.run(["sh", "-e", "-c", block], cwd=here, check=True, capture_output=True, timeout=60)
    new = (here / "node.key").read_bytes(), (here / "secret").read_bytes()
    assert new[0] != old[0] and new[1] != old[1]
    about = [finding for finding in check(here / "node.toml", offline=True) if "node.key" in finding.text]
    assert len(about) == 2 and all(finding.good for finding in about)
