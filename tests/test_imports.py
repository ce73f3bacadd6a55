"""Imports go one way, and every room has one rank (docs/architecture.md draws them)."""

from __future__ import annotations

import ast

from helpers.rooms import RANK, SOURCE, imported, room_of


def test_imports_go_one_way():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        room = room_of(path)
        if room == "__init__":
            continue
        assert room in RANK, f"{path} has no place in the order of imports"
        wrong += [
            f"{path.relative_to(SOURCE)} imports {other}"
            for other in imported(path) - {room}
            if RANK.get(other, -1) >= RANK[room]
        ]
    assert not wrong, wrong


def test_no_rule_inherits_from_another_rule():
    for room in ("clients", "mixing", "servers"):
        for path in (SOURCE / room).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    bases = {ast.unparse(base) for base in node.bases}
                    assert bases <= {"ClientRule", "SamplesRule", "MixingRule", "ServerRule", "Protocol"}, (
                        f"{path.name}: {node.name}"
                    )
