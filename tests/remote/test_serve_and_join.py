"""The commands `serve` and `join` before anything is sent: what would leave, and mistakes in one line."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")

from helpers.federated import Federated
from helpers.invoked import invoke

from fedchord.check import FedchordError
from fedchord.remote.processes import Child

PARAMETERS = 64 * 10 + 10  # logistic regression on digits


def mistake(found):
    """A user's mistake, in one line."""
    assert isinstance(found.exception, FedchordError | OSError), found.exception
    assert "\n" not in str(found.exception)
    return str(found.exception)


def test_a_dry_run_lists_all_that_would_leave_and_leaves_nothing_behind(tmp_path):
    made = Federated(tmp_path, {"method": "superfed-mm"})
    before = sorted(tmp_path.rglob("*"))
    found = invoke("join", str(tmp_path / made.names[1] / "node.toml"), "--dry-run")
    assert found.exit_code == 0, found.exception
    lines = found.stdout.splitlines()
    assert f"  mix/theta: float32 ({PARAMETERS},), {4 * PARAMETERS} bytes" in lines
    assert "  metric/top1: float64 (1,), 8 bytes" in lines and lines[-1] == "nothing was sent"
    names = {line.split(":")[0].strip() for line in lines if line.startswith("  ") and line.endswith(" bytes")}
    metrics = {name for name in names if name.startswith("metric/")}
    assert names - metrics == {"mix/theta", "carry/buffers", "counts", "test/top1", "test/top5", "test/loss"}
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", ["serve", "join"])
def test_a_file_that_is_not_there_is_one_line(command, tmp_path):
    pytest.importorskip("flwr")
    assert "nowhere.toml" in mistake(invoke(command, str(tmp_path / "nowhere.toml")))


def test_without_certificates_insecure_must_be_asked_for(tmp_path):
    pytest.importorskip("flwr")
    made = Federated(tmp_path, {"method": "fedavg"}, secure=False)
    asked = "[tls] is missing; --insecure must be asked for"
    assert mistake(invoke("serve", str(tmp_path / "fed.toml"))) == f"serve: {asked}"
    path = tmp_path / made.names[0] / "node.toml"
    path.write_text(path.read_text().partition("[tls]")[0])
    assert mistake(invoke("join", str(path))) == f"join: {asked}"


def test_a_plan_that_was_changed_after_parties_got_it_is_refused(tmp_path):
    pytest.importorskip("flwr")
    Federated(tmp_path, {"method": "fedavg"})
    path = tmp_path / "fed.toml"
    path.write_text(path.read_text().replace("rounds = 3", "rounds = 4"))
    assert "the parties have another plan" in mistake(invoke("serve", str(path)))
    assert not (tmp_path / "out").exists()


LINK = """
import os, signal, sys
from pathlib import Path
starts = Path(os.environ["STARTS"])
starts.write_text(starts.read_text() + "x")
if len(starts.read_text()) < 3:
    os.kill(os.getpid(), signal.SIGKILL)
print("no such option")
sys.exit(2)
"""


def test_a_superlink_killed_while_it_starts_is_started_again_and_one_that_ends_by_itself_is_not(tmp_path, monkeypatch):
    pytest.importorskip("flwr")
    from fedchord.remote import serving

    Federated(tmp_path, {"method": "fedavg"})
    (tmp_path / "link.py").write_text(LINK)
    (tmp_path / "starts").write_text("")
    for name, value in {"PYTHONPATH": tmp_path, "STARTS": tmp_path / "starts"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(serving, "Child", lambda module, *given: Child("link", *given))
    found = invoke("serve", str(tmp_path / "fed.toml"))
    again = "the SuperLink was killed while it started (signal 9); it is started again"
    assert found.stderr.splitlines() == [again, again]
    assert mistake(found).startswith("serve: the SuperLink did not start (no such option); see ")
    assert len((tmp_path / "starts").read_text()) == 3
