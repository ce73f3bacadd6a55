"""`fedchord new`: a package that passes its own tests as it stands, and runs from its file and when installed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedchord
from fedchord import plugins
from fedchord.cli import main, new
from fedchord.testing import Contract

SOURCE = Path(fedchord.__file__).parents[1]
NAMES = {"method": "my-rule", "mixing": "my-mix", "server": "my-server", "model": "my-net"}
CLASSES = {"method": "MyRule", "mixing": "MyMix", "server": "MyServer", "model": "MyNet"}
TESTED = len([name for name in vars(Contract) if name.startswith("test_")])
TINY = ["clients=4", "cohort=2", "rounds=1", "executor=serial"]


def outside(*words: str, cwd: Path, python: Path = Path(sys.executable)) -> str:
    """What a command prints, in a process of its own; it must succeed."""
    told = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([python, "-m", *words], cwd=cwd, capture_output=True, text=True, timeout=300, env=told)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def command(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints, in this process; it must succeed."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    return printed.out


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A folder with a package of each kind."""
    here = tmp_path_factory.mktemp("new")
    for kind, name in NAMES.items():
        new.write(kind, name, here)
    return here


def test_there_is_a_kind_for_every_rule_and_for_models():
    assert set(new.KINDS) == set(NAMES) == {path.name for path in new.TEMPLATES.iterdir() if path.is_dir()}


def test_the_command_says_what_it_wrote(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second = command(capsys, "new", "model", "my-net", "--to", "deep/folder").splitlines()
    files = ["pyproject.toml", "README.md", "src/my_net/__init__.py", "src/my_net/model.py", "tests/test_my_net.py"]
    assert first == f"wrote deep/folder/my-net: {', '.join(files)}"
    assert second.startswith("try: python -m pytest deep/folder/my-net; then edit what is marked EDIT")
    place = tmp_path / "deep" / "folder" / "my-net"
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()) == sorted(files)
    assert [path.name for path in place.parent.iterdir()] == ["my-net"]


@pytest.mark.parametrize("kind", NAMES)
def test_the_texts_are_whole_and_good(kind, packages):
    """No mark is left, what is to be edited is marked, and the linter has nothing to say."""
    place, module = packages / NAMES[kind], NAMES[kind].replace("-", "_")
    for path in (path for path in place.rglob("*") if path.suffix in (".py", ".md", ".toml")):
        text = path.read_text()
        assert not re.search(r"@[A-Z]+@", text), path
        assert ("EDIT" in text) == (path.name != "__init__.py"), path
    project = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {f"fedchord.{kind}s": {NAMES[kind]: f"{module}:{CLASSES[kind]}"}}
    assert project["dependencies"] == ["fedchord>=0.1,<0.2"] and project["optional-dependencies"] == {
        "dev": ["pytest>=8"]
    }
    lint = ["ruff", "check", "--line-length", "120", "--select", "E,F,W,I,B,UP,SIM,C4,RUF", "--no-cache", "."]
    outside(*lint, cwd=place)


WRONG = {
    "method": ("self.strength / 2", "self.strength", "test_one_round_is_the_plain_loop"),
    "mixing": ("** self.power", "** (self.power + 1)", "test_the_shares_are_those_by_hand"),
    "server": ("self.beta * state", "-self.beta * state", "test_its_steps_are_those_of_the_optimiser"),
    "model": (".relu())", ".tanh())", "test_its_outputs_are_those_by_hand"),
}
"""A change of each formula, and the test that must see it."""
SCRIPT = """
import sys, pytest
for name in sys.argv[1:]:
    print("==", name)
    few = ["-k", "loop or those"] if "wrong-" in name else []
    pytest.main(["-q", "-W", "error", "-p", "no:cacheprovider", *few, name])
"""


def test_they_pass_their_tests_as_they_stand_and_fail_with_a_wrong_formula(packages, tmp_path):
    """One process for all of them, since torch takes longer than the tests."""
    for kind in NAMES:
        name = f"wrong-{kind}"
        new.write(kind, name, tmp_path)
        path = code_of(tmp_path, kind, name)
        right, wrong, _ = WRONG[kind]
        assert path.read_text().count(right) == 1
        path.write_text(path.read_text().replace(right, wrong))
    (tmp_path / "all.py").write_text(SCRIPT)
    asked = [*(str(packages / name) for name in NAMES.values()), *(str(tmp_path / f"wrong-{kind}") for kind in NAMES)]
    _, *parts = re.split(r"^== .*$", outside("all", *asked, cwd=tmp_path), flags=re.MULTILINE)
    for (kind, tests), said in zip({"method": 4, "mixing": 5, "server": 6, "model": 3}.items(), parts[:4], strict=True):
        assert f"{tests + (0 if kind == 'model' else TESTED)} passed" in said, said
    for (_, _, sees), said in zip(WRONG.values(), parts[4:], strict=True):
        assert re.search(rf"^FAILED .*::{sees}\b", said, re.MULTILINE), said


# -- from its file, and installed ----------------------------------------------------------------------------------


def code_of(above: Path, kind: str, name: str) -> Path:
    return above / name / "src" / name.replace("-", "_") / f"{new.KINDS[kind].file}.py"


def test_they_run_from_their_files(packages, monkeypatch, capsys):
    """As the README of each says, in its folder; all four in one run from above."""
    monkeypatch.chdir(packages)
    paths = {kind: str(code_of(Path(), kind, name)) for kind, name in NAMES.items()}
    for kind, name in NAMES.items():
        asked = f"{kind}={paths[kind].removeprefix(f'{name}/')}:{CLASSES[kind]}"
        (block,) = re.findall(r"```sh\n(.*?)```", (packages / name / "README.md").read_text(), re.DOTALL)
        assert block.splitlines() == [f"fedchord run {asked}", "pip install -e .", "python -m pytest"]
    said = command(capsys, "run", *TINY, *(f"{kind}={paths[kind]}:{CLASSES[kind]}" for kind in NAMES))
    assert "MyRule(strength=0.1), MyMix(power=1.0), MyServer(lr=1.0, beta=0.5)" in said


@pytest.fixture
def installed(packages, tmp_path, monkeypatch) -> Iterator[None]:
    """The packages as an editable installation leaves them: their metadata in one folder, their code where it is."""
    site = tmp_path / "site"
    for name in NAMES.values():
        project = tomllib.loads((packages / name / "pyproject.toml").read_text())["project"]
        metadata = site / f"{name.replace('-', '_')}-{project['version']}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n")
        ((group, entries),) = project["entry-points"].items()
        lines = [f"{key} = {value}\n" for key, value in entries.items()]
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")
        monkeypatch.syspath_prepend(packages / name / "src")
    monkeypatch.syspath_prepend(site)
    plugins.installed.cache_clear()
    yield
    plugins.installed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("my_")]:
        del sys.modules[name]


def test_installed_they_are_listed_and_run_by_name(installed, capsys):
    said = command(capsys, "list")
    for name in NAMES.values():
        assert re.search(rf"^  {name} +from the package {name} 0.1.0$", said, re.MULTILINE), said
    pairs = [f"{kind}={name}" for kind, name in NAMES.items()]
    said = command(capsys, "run", *TINY, *pairs, "method.strength=0.5", "model.width=8")
    assert "my-rule mixing=my-mix server=my-server: MyRule(strength=0.5), MyMix(power=1.0), MyServer(" in said


def test_pip_installs_it(packages, tmp_path):
    """For real, without a network: `pip install -e` into an environment that sees the packages of this one."""
    version = tuple(int(part) for part in importlib.metadata.version("setuptools").split(".")[:2])
    if version < (70, 1):
        pytest.skip("setuptools is older than 70.1 and cannot build a wheel by itself")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True, timeout=60)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "shared.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    quiet = ["--disable-pip-version-check", "-q"]
    ask = ["pip", *quiet, "install", "--no-deps", "--no-build-isolation", "--no-index", "-e", str(packages / "my-rule")]
    outside(*ask, cwd=tmp_path, python=python)
    said = outside("fedchord", "list", "methods", cwd=tmp_path, python=python)
    assert said.splitlines()[-1].split() == ["my-rule", "from", "the", "package", "my-rule", "0.1.0"]
    said = outside("fedchord", "run", *TINY, "method=my-rule", "model=logreg", cwd=tmp_path, python=python)
    assert "my-rule: MyRule(strength=0.1), BySize(), Step(lr=1.0)" in said


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("My Rule", "a name is made of small letters, digits and hyphens, starting with a letter, got 'My Rule'"),
        ("../up", "a name is made of small letters, digits and hyphens, starting with a letter, got '../up'"),
        ("fedprox", "fedprox is a method already; choose another name"),
        ("random", "random would hide Python's random; choose another name"),
        ("class", "class would hide Python's class; choose another name"),
        ("torch", "torch would hide Python's torch; choose another name"),
        ("fedchord", "fedchord would hide Python's fedchord; choose another name"),
    ],
)
def test_names_that_mean_something_are_refused(tmp_path, name, line):
    with pytest.raises(fedchord.FedchordError) as caught:
        new.write("method", name, tmp_path)
    assert str(caught.value) == f"new method: {line}" and list(tmp_path.iterdir()) == []


def test_a_name_of_an_installed_package_is_taken(installed, tmp_path):
    with pytest.raises(fedchord.FedchordError, match="new mixing: my-mix is a mixing already"):
        new.write("mixing", "my-mix", tmp_path)


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "folder", "link"):
        with pytest.raises(fedchord.FedchordError) as caught:
            new.write("model", name, tmp_path)
        assert str(caught.value) == f"new model: {tmp_path / name} is there already and is not overwritten"
    assert (tmp_path / "file").read_text() == "mine" and (tmp_path / "link").is_symlink()
    assert list((tmp_path / "folder").iterdir()) == [] and len(list(tmp_path.iterdir())) == 3


def test_a_disk_that_takes_no_more_leaves_nothing(tmp_path, monkeypatch):
    written = Path.write_text

    def full(self: Path, *words, **more) -> int:
        if self.suffix == ".md":
            raise OSError(28, "No space left on device")
        return written(self, *words, **more)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(fedchord.FedchordError) as caught:
        new.write("server", "my-server", tmp_path)
    assert str(caught.value) == f"{tmp_path / 'my-server'} cannot be written (No space left on device)"
    assert list(tmp_path.iterdir()) == []
