"""The command line: what a user types, what comes back, and that a mistake is one line with exit code 2."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch

from fedchord import __version__

with warnings.catch_warnings():  # typer uses names that click deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from typer.testing import CliRunner

    from fedchord.cli import app, main

pytestmark = pytest.mark.filterwarnings("ignore:.*removed in Click:DeprecationWarning")

TINY = ["model=logreg", "clients=6", "cohort=3", "rounds=2", "executor=serial"]
COMMAND = [sys.executable, "-m", "fedchord.cli"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every command runs in an empty folder, without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCHORD_DATA", str(tmp_path / "nowhere"))


@pytest.fixture
def fedchord(capsys):
    """Runs a command in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call


def outside(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """Runs a command as a process of its own."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, **options)


# -- help ----------------------------------------------------------------------------------------------------------


def test_help_teaches_and_waits_for_no_torch():
    shown = outside("--help")
    assert shown.returncode == 0
    assert "fedchord demo" in shown.stdout
    code = "import sys; import fedchord.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize(
    "command", ["demo", "list", "run", "resume", "export", "new", "data", "table", "plot", "study"]
)
def test_every_command_has_help(command):
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0
    assert len(shown.output.splitlines()) > 5


def test_version(fedchord):
    assert fedchord("--version") == (0, f"fedchord {__version__}\n", "")


def test_without_arguments_there_is_help():
    shown = outside()
    assert "Usage: fedchord" in shown.stdout + shown.stderr
    assert "error:" not in shown.stderr


def test_what_was_mistyped_is_one_line(fedchord):
    assert fedchord("nonsense") == (2, "", "error: No such command 'nonsense'; see fedchord --help\n")
    code, out, err = fedchord("predict", "runs/a", "x.csv", "--epochs", "three")
    assert (code, out) == (2, "") and len(err.splitlines()) == 1
    assert err.startswith("error: Invalid value for '--epochs': ") and err.endswith("; see fedchord predict --help\n")


def test_list(fedchord):
    code, out, _ = fedchord("list")
    assert code == 0
    for word in ("fedavg", "method.mu=0.01", "by-size", "server.beta=0.9", "digits", "split.alpha=(needed)", "twonn"):
        assert word in out
    assert "199,210 parameters" in out
    code, out, _ = fedchord("list", "keys")
    assert re.search(r"rounds +the number of rounds \(default: 20\)", out)
    assert "fedavg:" not in out
    assert fedchord("list", "method") == (
        2,
        "",
        "error: unknown list 'method'; did you mean 'methods'? (known: data, keys, loggers, methods, mixings, "
        "models, servers, splits)\n",
    )


# -- run, resume, export -------------------------------------------------------------------------------------------


def test_run_resume_export(fedchord, tmp_path):
    code, out, err = fedchord("run", *TINY, "method=fedprox", "method.mu=0.1", "out=runs/a")
    assert code == 0
    assert err.splitlines()[0] == "fedprox: 2 rounds"
    assert [line.split(":")[0] for line in err.splitlines()[1:]] == ["round 1 of 2", "round 2 of 2"]
    assert "worst 10 %" in out and "top1" in out
    assert "fedprox: Prox(mu=0.1), BySize(), Step(lr=1.0); round 2; 6 of 6 clients on their own test rows" in out
    assert out.splitlines()[-1] == "Kept in runs/a: config.toml, rounds.jsonl, summary.json, checkpoints/."
    code, again, err = fedchord("resume", "runs/a")
    assert (code, err) == (0, "runs/a is finished; nothing was changed\n")
    assert again == out
    code, out, _ = fedchord("export", "runs/a")
    assert out.splitlines() == [
        "fedprox after round 2 of 2",
        "wrote runs/a/export: the global model, LogisticRegression with 650 parameters; loaded again, it gives the "
        "same outputs",
        "try it with: python runs/a/export/predict.py PICTURES",
    ]
    assert fedchord("export", "runs/a", "--replace")[0] == 0
    code, out, _ = fedchord("export", "runs/a", "--to", "model.pt")
    assert out == "fedprox after round 2 of 2\nwrote model.pt: the global model, 650 numbers in 2 tensors\n"
    code, out, _ = fedchord("export", "runs/a", "--client", "3", "--to", "c3.safetensors")
    assert out.splitlines()[-1] == "wrote c3.safetensors: the model of client 3, 650 numbers in 2 tensors"
    from safetensors.torch import load_file

    model = torch.load("model.pt", weights_only=True)
    assert torch.equal(model["head.weight"], load_file("c3.safetensors")["head.weight"])
    assert torch.equal(model["head.weight"], load_file("runs/a/export/weights.safetensors")["head.weight"])
    assert fedchord("table", "runs/a/export")[2].startswith("error: no finished run here")  # it is no run


def test_a_run_can_be_run_again_from_its_file(fedchord):
    fedchord("run", *TINY, "out=a")
    code, _, _ = fedchord("run", "a/config.toml", "out=b")
    assert code == 0
    first, second = (json.loads(Path(name, "summary.json").read_text()) for name in "ab")
    assert first["metrics"] == second["metrics"]
    assert fedchord("run", "a/config.toml", "out=b")[0] == 2


def test_a_run_without_out_says_so(fedchord, tmp_path):
    code, out, _ = fedchord("run", *TINY)
    assert code == 0
    assert out.splitlines()[-1] == "Nothing was kept; add out=FOLDER to keep the run."
    assert list(tmp_path.iterdir()) == []


def test_changed_settings_are_told(fedchord):
    _, out, _ = fedchord("run", *TINY, "method=scaffold", "momentum=0.9", "optimiser=adam")
    assert "scaffold: momentum set to 0 (was 0.9); optimiser set to sgd (was adam)" in out


# -- data, new -----------------------------------------------------------------------------------------------------


def test_data(fedchord, tmp_path):
    code, out, _ = fedchord("data")
    assert code == 0
    assert out.startswith(
        f"data root: {tmp_path / 'nowhere'} (does not exist); FEDCHORD_DATA or data.root changes it\n"
    )
    assert "digits: comes with fedchord" in out
    assert "mnist: missing: mnist/train-images-idx3-ubyte.gz" in out
    assert "get it from https://" in out
    split = ["split=dirichlet", "split.alpha=0.1", "clients=3"]
    code, out, _ = fedchord("data", "show", "digits", *split, "--picture", "p/split.png")
    assert code == 0
    assert "digits: 1797 of 1797 rows went to 3 clients by Dirichlet(alpha=0.1" in out
    assert out.endswith("wrote p/split.png\n")
    assert Path("p/split.png").read_bytes().startswith(b"\x89PNG")


# -- mistakes ------------------------------------------------------------------------------------------------------

ABSENT = "does not exist; fedchord data get mnist, or set FEDCHORD_DATA or data.root to the folder that holds mnist/\n"
MISTAKES = {
    "run method=fedpox": "error: unknown method 'fedpox'; did you mean 'fedprox'? (known: ",
    "run data=mnits": "error: unknown data set 'mnits'; did you mean 'mnist'? (known: ",
    "run rouds=3": "error: unknown key 'rouds'; did you mean 'rounds'? (see: fedchord list keys)",
    "run --rounds 3": "error: run: '--rounds' is not a setting; write key=value, for example rounds=50, or FILE.toml\n",
    "run --rounds=3": "error: unknown key '--rounds'; did you mean 'rounds'? (see: fedchord list keys)",
    "run fedprox": "error: run: 'fedprox' is not a setting; write key=value, for example rounds=50, or FILE.toml\n",
    "run none.toml": "error: none.toml: no such file\n",
    "run a.toml b.toml": "error: run: one settings file is enough, got a.toml and b.toml\n",
    "run lr=-1": "error: Training: lr must be above 0, got -1.0\n",
    "run clients=2000": "error: Pathological: 2000 clients need at least 4000 rows, got 1797\n",
    "run data=mnist": f"error: mnist: NOWHERE {ABSENT}",
    "run data=mnist data.root=x": f"error: mnist: x {ABSENT}",
    "run data=mnist data.root=.": "error: mnist: missing mnist/train-images-idx3-ubyte.gz, ",
    "resume runs/a": "error: runs/a: no such folder\n",
    "export runs/a": "error: runs/a: no such folder\n",
    "export . --to model.bin": "error: export: a file must end in .pt or .safetensors, and a folder has no suffix, got",
    "data get minst": "error: unknown data set 'minst'; did you mean 'mnist'? (known: ",
    "data show mnist": f"error: mnist: NOWHERE {ABSENT}",
    "data table --format word": "error: data table: format must be one of rich, markdown, latex, csv, got 'word'\n",
    "data show digits --picture a.gif": "error: data: the picture must end in .png or .pdf or .svg, got 'a.gif'\n",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_exit_2(fedchord, tmp_path, command):
    code, out, err = fedchord(*command.split())
    assert (code, out) == (2, "")
    assert err.startswith(MISTAKES[command].replace("NOWHERE", str(tmp_path / "nowhere")))
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_usage_errors_exit_2(fedchord):
    assert fedchord("frobnicate")[0] == 2
    assert fedchord("export")[0] == 2
    assert fedchord("export", "a", "--clients", "x")[0] == 2


def test_an_out_folder_in_use(fedchord):
    fedchord("run", *TINY, "out=runs/a")
    code, _, err = fedchord("run", *TINY, "seed=1", "out=runs/a")
    tail = "(method fedavg, seed 0); choose another out, or see it with: fedchord table runs/a"
    assert (code, err) == (2, f"error: runs/a already holds another run, finished {tail}\n")
    Path("runs/a/summary.json").unlink()
    code, _, err = fedchord("run", *TINY, "seed=1", "out=runs/a")
    hint = "choose another out, or go on with: fedchord resume runs/a"
    assert (code, err) == (2, f"error: runs/a already holds a run (method fedavg, seed 0); {hint}\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(fedchord, tmp_path):
    tmp_path.chmod(0o500)
    code, _, err = fedchord("run", *TINY, "out=a")
    assert (code, err) == (2, "error: out: a cannot be written (Permission denied)\n")


def test_mistakes_outside_leave_no_traceback():
    ended = outside("run", "method=fedpox")
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: unknown method 'fedpox'; did you mean 'fedprox'?")
    assert ended.stderr.count("\n") == 1


# -- Ctrl-C, checkpoints -------------------------------------------------------------------------------------------


@pytest.fixture
def start():
    """Starts a run with long rounds and waits for the first; ends it in any case."""
    started: list[subprocess.Popen[str]] = []

    def begin(*settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, "run", "model=logreg", "clients=6", "cohort=4", "workers=2", "rounds=400", *settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        log, deadline = Path("runs/a/rounds.jsonl"), time.monotonic() + 50
        while not (log.is_file() and log.read_text().endswith("\n")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def press(process: subprocess.Popen[str], number: int = signal.SIGINT) -> None:
    """Ctrl-C as a terminal sends it, or SIGTERM as a queue does: to the process and its workers."""
    os.killpg(process.pid, number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_a_checkpoint_and_says_how_to_go_on(start, number):
    process = start("epochs=20", "eval_every=0", "checkpoint_every=0", "out=runs/a")
    press(process, number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    done = len(Path("runs/a/rounds.jsonl").read_text().splitlines())
    assert "stopping after this round; Ctrl-C again stops at once" in err
    last = err.rstrip("\n").splitlines()[-1]
    assert last == f"stopped after round {done} of 400; go on with: fedchord resume runs/a"
    assert Path(f"runs/a/checkpoints/round-{done:06d}/state.safetensors").is_file()


def test_a_second_ctrl_c_stops_at_once(start):
    process = start("epochs=500", "checkpoint_every=1", "out=runs/a")  # a second or more for a round
    press(process)
    time.sleep(0.2)
    press(process)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in err
    last = err.rstrip("\n").splitlines()[-1]
    assert last == "stopped at once; the last checkpoint is of round 1; go on with: fedchord resume runs/a"


def test_a_damaged_checkpoint_is_told_and_the_run_goes_on(fedchord):
    fedchord("run", *TINY, "checkpoint_every=1", "out=runs/a")
    Path("runs/a/summary.json").unlink()
    broken = Path("runs/a/checkpoints/round-000002/state.safetensors")
    broken.write_bytes(b"broken")
    code, out, err = fedchord("resume", "runs/a")
    assert code == 0
    assert f"checkpoint: {broken} is missing or damaged; going on from the one before\n" in err
    assert out.splitlines()[-1].startswith("Kept in runs/a")


def test_no_good_checkpoint_is_one_line(fedchord):
    fedchord("run", *TINY, "out=runs/a")
    Path("runs/a/summary.json").unlink()
    broken = Path("runs/a/checkpoints/round-000002/state.safetensors")
    broken.unlink()
    code, _, err = fedchord("resume", "runs/a")
    assert code == 2
    error = err.splitlines()[-1]
    assert (
        error
        == f"error: checkpoint: none in runs/a/checkpoints can be used (checkpoint: {broken} is missing or damaged)"
    )


def test_no_escape_codes_where_there_is_no_terminal():
    ended = outside("run", *TINY)
    assert ended.returncode == 0
    assert "\x1b" not in ended.stdout + ended.stderr
    assert ended.stderr.splitlines()[0] == "fedavg: 2 rounds"
