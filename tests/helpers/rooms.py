"""The rooms of the house, their ranks, and who imports whom: for the test of imports and docs/draw_architecture.py."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "fedchord"

LEVELS: list[tuple[str, ...]] = [
    ("check", "notebook", "paths", "rng"),
    ("files", "plugins", "safe"),
    ("tensors", "confusion"),
    ("regression",),
    ("metrics",),
    ("core",),
    ("privacy",),
    ("servers", "mixing", "models", "data"),
    ("attacks", "clients"),
    ("catalog",),
    ("engine",),
    ("evaluation",),
    ("synthetic",),
    ("experiments",),
    ("report",),
    ("export",),
    ("remote",),
    ("thesis", "testing"),
    ("cli",),
    ("__main__",),
]
RANK = {name: rank for rank, names in enumerate(LEVELS) for name in names}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


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


@cache
def edges() -> set[tuple[str, str]]:
    """Which room imports which other."""
    pairs = {(room_of(path), other) for path in SOURCE.rglob("*.py") for other in imported(path) & RANK.keys()}
    return {(room, other) for room, other in pairs if room != other and room in RANK}
