"""The library as text: what it calls, for tests that look for calls which must not be there."""

from __future__ import annotations

import ast
from functools import cache

from helpers.rooms import SOURCE


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the library by its path."""
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def called(node: ast.AST) -> str:
    """What a call calls, such as `os.replace`; of what is no plain name the last part alone, such as `.write_text`."""
    node = node.func if isinstance(node, ast.Call) else node
    if isinstance(node, ast.Attribute):
        return f"{called(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls(tree: ast.AST) -> list[ast.Call]:
    """All calls in a module."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
