"""The plug-in of pytest, as a user has it: a folder with a rule, and pytest in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedchord
from fedchord import FedchordError, catalog
from fedchord.testing import Contract, Named, checks
from fedchord.testing.named import wants_folder

pytest_plugins = ["pytester"]

PLUGIN = "fedchord.testing.plugin"
SOURCE = Path(fedchord.__file__).parents[1]
TESTS = [name for name in vars(Contract) if name.startswith("test_")]
RULES = '''
from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from fedchord.core.rules import ClientRule, Mix, MixingRule


@dataclass(frozen=True)
class Near(ClientRule):
    """Local training held near the received model."""

    mu: float = 0.1

    def loss(self, trained, visit, batch, key):
        data, buffers = visit.task.loss(trained["theta"], trained["buffers"], batch, key)
        away = trained["theta"] - visit.shared["theta"]
        return data + self.mu / 2 * (away * away).sum(), {"buffers": buffers}


@dataclass(frozen=True)
class Doubled(MixingRule):
    """Shares that sum to two."""

    def weigh(self, state, cohort, info):
        shares = torch.full((len(cohort.ids),), 2 / len(cohort.ids), dtype=torch.float64)
        return Mix(shares, shares), {}


@dataclass
class Loose(ClientRule):
    """A rule that can be changed."""

    strength: float = 0.1
'''


@pytest.fixture
def here(tmp_path) -> Path:
    (tmp_path / "my_rule.py").write_text(RULES)
    (tmp_path / "test_mine.py").write_text("def test_mine(): pass\n")
    return tmp_path


def outside(here: Path, *arguments: str, path: Path = SOURCE, plugin: bool = True) -> tuple[int, str]:
    """The exit code and the output of pytest in a folder; threads would only wait for those of other tests."""
    words = ["-p", PLUGIN, *arguments] if plugin else list(arguments)
    told = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), str(SOURCE)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300, env=told)
    return done.returncode, done.stdout + done.stderr


def test_a_rule_is_tested_for_everything(here):
    code, out = outside(here, "--fedchord-method", "my_rule.py:Near method.mu=0.5", "-rA")
    assert code == 0 and f"{len(TESTS)} passed" in out, out
    assert re.findall(r"^PASSED (.+)$", out, re.MULTILINE) == [
        f"fedchord::my_rule.py:Near method.mu=0.5::{name}" for name in TESTS
    ]
    assert len(TESTS) >= 11 and "test_mine" not in out


def test_a_rule_that_breaks_the_contract_is_told_with_its_values(here):
    """Several at once, beside the tests of a file, chosen by -k."""
    asked = ["--fedchord-mixing", "my_rule.py:Doubled", "--fedchord-method", "my_rule.py:Loose"]
    code, out = outside(here, *asked, "test_mine.py", "-k", "mine or frozen or simplex")
    assert code == 1 and "2 failed, 3 passed, 24 deselected" in out, out
    assert sorted(re.findall(r"^FAILED (.+?)(?: - .+)?$", out, re.MULTILINE)) == [
        "fedchord::mixing=my_rule.py:Doubled::test_shares_lie_on_the_simplex",
        "fedchord::my_rule.py:Loose::test_rules_are_frozen_records",
    ]
    assert "Loose.strength can be changed: make the dataclass frozen" in out
    assert "abs((2.0 - 1))" in out.replace("float(", "(")  # pytest shows what was compared
    assert "runner.py" not in out and "plugin.py" not in out  # the traceback begins in the test


def test_a_project_names_its_methods_in_its_settings(here):
    """They come beside its own tests, also in workers; files are looked for from the project on."""
    (here / "src").mkdir()
    (here / "my_rule.py").rename(here / "src" / "my_rule.py")
    methods = '["src/my_rule.py:Near", "fedprox method.mu=1"]'
    settings = f'[tool.pytest.ini_options]\ntestpaths = ["."]\nfedchord_methods = {methods}\n'
    (here / "pyproject.toml").write_text(settings)
    code, out = outside(here, "-n", "1", "-k", "mine or frozen", "-rA")
    assert code == 0 and sorted(re.findall(r"^PASSED (.+)$", out, re.MULTILINE)) == [
        "fedchord::fedprox method.mu=1::test_rules_are_frozen_records",
        "fedchord::src/my_rule.py:Near::test_rules_are_frozen_records",
        "test_mine.py::test_mine",
    ], out


@pytest.mark.parametrize("paths, methods", [((), 2), ((".",), 2), (("src", "."), 2), (("test_mine.py",), 0)])
def test_which_paths_leave_the_methods_of_the_settings_out(paths, methods, here, pytester, monkeypatch):
    (here / "src").mkdir()
    (here / "pytest.ini").write_text("[pytest]\nfedchord_methods =\n  my_rule.py:Near\n  term\n")
    monkeypatch.chdir(here)
    done = pytester.runpytest_inprocess("-p", PLUGIN, "--collect-only", "-q", *paths)
    found = [line for line in done.outlines if "::" in line]
    assert len([line for line in found if line.startswith("fedchord::")]) == methods * len(TESTS)
    assert "test_mine.py::test_mine" in found


MISTAKES = {
    "my_rule.py:Neer": r"unknown name in my_rule.py 'Neer'; did you mean 'Near'\?",
    "my_rule.py:Doubled": r"my_rule.py:Doubled: must be a class that inherits from fedchord.ClientRule, got",
    "none.py:Rule": r"method: none.py: no such file",
    "fedpox": r"unknown method 'fedpox'; did you mean 'fedprox'\?",
    "fedprox method.nu=1": r"unknown parameter of fedprox 'method.nu'; did you mean 'method.mu'\?",
    "fedprox method.mu=-1": r"Prox: mu must be at least 0, got -1",
    "fedprox rounds=3": r"unknown key of a method 'rounds'",
    "fedprox mu": r"run: 'mu' is not a setting",
    "fedprox 'mu": r"method: \"fedprox 'mu\" cannot be read \(No closing quotation\)",
    "": r"run: method has no value",
}


@pytest.mark.parametrize("asked", MISTAKES)
def test_mistakes_are_one_line(asked, here, monkeypatch):
    monkeypatch.chdir(here)
    with pytest.raises(FedchordError, match=MISTAKES[asked]) as caught:
        Named(asked)
    assert "\n" not in str(caught.value)


def test_a_mistake_ends_pytest_before_anything_is_collected(here, pytester, monkeypatch):
    monkeypatch.chdir(here)
    done = pytester.runpytest_inprocess("-p", PLUGIN, "--fedchord-method", "fedpox")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in done.errlines if line]
    assert line.startswith("ERROR: unknown method 'fedpox'; did you mean 'fedprox'?")


def test_a_name_is_built_like_in_a_run():
    made = Named("fedprox  mixing=term 'mixing.tilt=2' client.mu=0.5 server=fedadam")
    assert made.label == "fedprox mixing=term 'mixing.tilt=2' client.mu=0.5 server=fedadam"
    expected = catalog.build("fedprox", None, "term", {"tilt": 2}, "fedadam", None, {"mu": 0.5})
    assert made.algorithm() == expected
    assert Named("mixing=term").algorithm() == catalog.build("fedavg", mixing="term")
    assert type(Named("fedcvae mixing=uniform").task()._module).__name__ == "Cvae"  # the network of the method


def test_the_tests_are_those_of_the_class_in_their_order():
    class More(Contract):
        def test_mine(self) -> None: ...

    found = dict(checks(More()))
    assert list(found) == [*TESTS, "test_mine"]
    assert [name for name, check in found.items() if wants_folder(check)] == [
        "test_clients_apart_agree_bit_for_bit",
        "test_two_and_two_rounds_are_four",
        "test_memory_on_disk_changes_nothing",
    ]


# -- how pytest finds it -------------------------------------------------------------------------------------------


def test_it_is_declared_under_the_name_by_which_it_can_be_named(here):
    """As the installer leaves it: pytest finds it by the metadata alone, and `-p` finds the same one."""
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    metadata = here / "site" / "fedchord-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fedchord\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(f"[pytest11]\n{PLUGIN} = {PLUGIN}\n")
    code, out = outside(here, "--collect-only", "--fedchord-method", "fedavg", path=here / "site", plugin=False)
    assert code == 0 and f"{len(TESTS)} tests collected" in out, out
    code, out = outside(here, path=here / "site")
    assert code == 0 and "1 passed" in out, out


def test_pytest_does_not_wait_for_torch(here):
    ask = (
        f"import sys, pytest; code = pytest.main(['-p', '{PLUGIN}', '-q', '-p', 'no:cacheprovider']);"
        "heavy = [name for name in ('torch', 'numpy', 'fedchord.catalog') if name in sys.modules];"
        "sys.exit(f'{code} {heavy}')"
    )
    told = os.environ | {"PYTHONPATH": str(SOURCE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, "-c", ask], cwd=here, capture_output=True, text=True, env=told, timeout=60)
    assert done.stderr == "0 []\n" and "1 passed" in done.stdout
