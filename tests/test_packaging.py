"""What is declared is what is imported: a wheel finds all it needs in an empty environment, and asks for no more."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import fedchord

ROOT = Path(__file__).parent.parent
SOURCE = Path(fedchord.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TESTING = {"dev", "peers", "fuzz", "bill", "docs"}
"""The extras of those who work on the library; all others are for its users."""
MODULES = {"pillow": "PIL", "scikit-learn": "sklearn"}
"""The modules that are not called as their packages are."""
PLUGINS = {
    "pytest-xdist": "-n auto",
    "pytest-cov": "--cov",
    "ruff": "/ruff ",
    "mypy": "/mypy",
    "cyclonedx-bom": "/bill ",
    "mkdocs": "-m mkdocs ",
    "mkdocs-material": "-m mkdocs ",
    "mkdocstrings": "-m mkdocs ",
}
"""What is used by a word in the settings or the Makefile, and not by an import."""

LOADERS = {"import_module", "importorskip", "_package", "find_spec"}


def modules(requirements: list[str]) -> set[str]:
    """The modules that requirements such as `tomli-w>=1.0` bring."""
    names = [re.split(r"[\s<>=!~\[;]", text, maxsplit=1)[0].lower() for text in requirements]
    return {MODULES.get(name, name.replace("-", "_")) for name in names}


def named(tree: ast.AST) -> set[str]:
    """The first words of all modules imported below a node, also of those named by a text to `import_module` and to
    functions that hand it on (`_package`)."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in LOADERS:
            found |= {word.value for word in node.args[:1] if isinstance(word, ast.Constant)}
    return {name.split(".")[0] for name in found}


def foreign(nodes: Iterable[ast.AST]) -> set[str]:
    return set().union(*map(named, nodes)) - set(sys.stdlib_module_names) - {"fedchord", "helpers", ""}


def trees(folder: Path) -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))]


@cache
def imports(folder: Path) -> set[str]:
    return foreign(trees(folder))


NEEDED = modules(PROJECT["dependencies"])
EXTRAS = {name: modules(words) for name, words in PROJECT["optional-dependencies"].items()}
FOR_USERS = set().union(*(found for name, found in EXTRAS.items() if name not in TESTING))


BY_PYTEST = SOURCE / "testing" / "plugin.py"
"""The plug-in, which pytest alone loads: it may import what loads it, and nobody else asks for pytest."""


BY_FLOWER = set((SOURCE / "remote").glob("flower*.py"))
"""Modules that are nothing without Flower; who loads them asks for it first (`need_flower`)."""


def test_every_import_is_declared():
    assert imports(SOURCE) - {"pytest"} <= NEEDED | FOR_USERS
    asking = [path for path in SOURCE.rglob("*.py") if "pytest" in foreign([ast.parse(path.read_text())])]
    assert asking == [BY_PYTEST] and "pytest" not in NEEDED | FOR_USERS


def test_only_what_every_user_has_is_imported_at_once():
    """An extra may be imported within a function alone, where its absence can be explained."""
    at_once = [
        node
        for path in sorted(set(SOURCE.rglob("*.py")) - {BY_PYTEST} - BY_FLOWER)
        for node in ast.parse(path.read_text()).body
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    assert foreign(at_once) <= NEEDED


def test_every_dependency_is_imported():
    assert imports(SOURCE) >= NEEDED


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - TESTING))
def test_every_extra_is_imported_by_the_library(extra):
    assert EXTRAS[extra] <= imports(SOURCE)


@pytest.mark.parametrize("extra", sorted(TESTING))
def test_what_the_tests_ask_for_is_used(extra):
    words = (ROOT / "Makefile").read_text() + (ROOT / "pyproject.toml").read_text()
    plugins = {name.replace("-", "_") for name, word in PLUGINS.items() if word in words}
    assert EXTRAS[extra] <= imports(ROOT / "tests") | imports(ROOT / "docs") | plugins


def test_what_the_tests_import_is_declared():
    """`tokenizers` comes with transformers; the peers of Inception, with weights to download, are compared by hand, and
    the lines for MLflow and W&B, and a real notebook, are tried where these happen to be."""
    more = {"tokenizers", "torchvision", "torch_fidelity", "mlflow", "wandb", "nbclient", "nbformat", "ipykernel"}
    assert imports(ROOT / "tests") <= NEEDED | set().union(*EXTRAS.values()) | more


@pytest.mark.parametrize("text", ["import absent", "from absent.inner import x", "import_module('absent.inner')"])
def test_an_import_that_is_not_declared_is_found(text):
    code = ast.parse(f"import os\nimport torch\n\ndef late():\n    {text}\n")
    assert foreign([code]) - NEEDED == {"absent"}


def test_the_version_is_said_once():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (\S+)$", citation, re.MULTILINE)[1] == PROJECT["version"] == fedchord.__version__
