"""docs/architecture.svg shows the real imports, and docs/architecture.md every room."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_architecture", DOCS / "draw_architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_shows_the_real_imports(script):
    assert script.differences(script.DRAWING.read_text()) == [], "draw it anew: make architecture"


def test_a_stale_drawing_is_found(script):
    drawn = script.draw()
    assert script.differences(drawn) == []
    less = re.sub(r'<path class="edge[^>]*data-from="core" data-to="rng"[^>]*/>', "", drawn)
    assert script.differences(less) == ["core imports rng, and it is not drawn"]
    more = drawn.replace('data-from="core" data-to="rng"', 'data-from="rng" data-to="core"')
    assert "rng imports core in the drawing alone" in script.differences(more)


def test_code_lines_are_counted_by_hand(script, tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        '"""Words.\n\nMore."""\n\nimport os  # why\n\n# words\ndef f(a,\n      b):\n    """Words."""\n    return os\n'
    )
    assert script.code_lines(path) == 4


def test_the_page_explains_every_room_and_station(script):
    text = (DOCS / "architecture.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == script.ROOMS
    stations = re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE)
    assert [int(number) for number, _ in stations] == list(range(1, len(script.ROUND) + 1))
