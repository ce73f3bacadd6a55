"""Imports go one way, and every room has one rank (docs/architecture.md draws them)."""

from __future__ import annotations

import ast
from pathlib import Path

import fedchord

ROOT = Path(fedchord.__file__).parent

LEVELS = [
    {"check", "files", "paths", "rng"},
    {"tensors", "metrics"},
    {"core"},
    {"models", "data", "mixing", "servers"},
    {"clients"},
    {"catalog"},
    {"engine"},
    {"evaluation"},
    {"synthetic"},
    {"experiments"},
    {"report"},
    {"thesis"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LEVELS) for name in names}

PENDING = {}


def imported(path: Path) -> set[str]:
    """The rooms of the house a file imports when it is loaded (imports for type checking only do not count)."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedchord"):
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("fedchord.")}
    return found


def test_imports_go_one_way():
    wrong = []
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in RANK, f"{path} has no place in the order of imports"
        wrong += [
            f"{path.relative_to(ROOT)} imports {other}" for other in imported(path) if RANK.get(other, 0) > RANK[room]
        ]
    assert not wrong, wrong


def test_no_rule_inherits_from_another_rule():
    for room in ("clients", "mixing", "servers"):
        for path in (ROOT / room).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    bases = {ast.unparse(base) for base in node.bases}
                    assert bases <= {"ClientRule", "SamplesRule", "MixingRule", "ServerRule", "Protocol"}, (
                        f"{path.name}: {node.name}"
                    )
