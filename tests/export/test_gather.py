"""Source that is gathered: only what is used, nothing of ours left, and the same network as the library's."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedchord import models
from fedchord.check import FedchordError
from fedchord.export import gather as gathering
from fedchord.export.folder import STANDALONE
from fedchord.export.gather import gather
from fedchord.export.preprocessing import ROWS

SMALL: dict[str, tuple[tuple[int, ...], int]] = {
    "efficientnet-b0": ((3, 32, 32), 4),
    "m5": ((1100,), 4),
    "lstm-characters": ((6,), 9),
    "lstm-words": ((6,), 9),
    "lstm-words-200": ((6,), 9),
}
"""Small shapes; images of 16 pixels are enough for all others."""


def executed(text: str, name: str) -> dict[str, Any]:
    module = ModuleType(name)
    sys.modules[name] = module
    try:
        exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
    finally:
        del sys.modules[name]
    return module.__dict__


def imported(text: str) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("name", models.MODELS)
def test_every_model_is_the_same_network(name: str) -> None:
    shape, classes = SMALL.get(name, ((1, 16, 16), 4))
    recipe = models.recipe(name, shape, classes)
    assert isinstance(recipe.kind, type)
    text = gather([(recipe.kind.__module__, recipe.kind.__name__)]).text("A network.")
    assert "fedchord" not in imported(text)
    theirs = executed(text, f"gathered_{name}")[recipe.kind.__name__](**recipe.arguments).eval()
    assert type(theirs) is not recipe.kind
    mine = recipe.build().eval()
    theirs.load_state_dict(mine.state_dict())
    tokens = name.startswith("lstm")
    x = torch.randint(0, classes, (3, *shape)) if tokens else torch.randn(3, *shape)
    with torch.no_grad():
        assert torch.equal(theirs(x), mine(x))


@pytest.mark.parametrize("kind", ROWS)
def test_what_predicts_is_short_and_needs_little(kind: str) -> None:
    part = f"{STANDALONE}.{kind.replace(' ', '_')}"
    roots = [(f"{STANDALONE}.shared", "main"), (part, "read"), (part, "ready")]
    story = gather(roots, lambda module: module.startswith(STANDALONE))
    tools = gather(story.outside, calls=story.calls)
    both = story.text("x"), tools.text("y")
    needs = {"__future__", "numpy", "safetensors", "torch", "PIL"}
    assert set().union(*map(imported, both)) - set(sys.stdlib_module_names) <= needs
    assert ("PIL" in imported(both[1])) == (kind == "pictures")
    assert len(both[0].splitlines()) < 200 and len(both[1].splitlines()) < 580
    executed(both[1], f"rows_{part}")


# -- a small house of its own --------------------------------------------------------------------------------------

HOUSE = {
    "__init__.py": "",
    "base.py": """
'''Words.'''
from __future__ import annotations
import os
import math as m
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from decimal import Decimal
SIZE = 3
'''How many.'''
OTHER = os.sep

class Base:
    '''A base.'''
    def used(self) -> int:
        return self.inner()
    def inner(self) -> int:
        # why
        return SIZE
    def idle(self) -> str:
        return OTHER
    def __len__(self) -> int:
        return m.floor(2.5)
""",
    "top.py": """
from __future__ import annotations
from house.base import Base
import house.base
from house import base as other
from house.base import SIZE as LENGTH
import json

class Top(Base):
    pass

def main(x: Decimal | None = None) -> int:
    return Top().used()

def by_module() -> int:
    return other.SIZE

def by_path() -> int:
    return house.base.SIZE

def renamed() -> int:
    return LENGTH

def late() -> object:
    from house.base import OTHER
    return OTHER

def unused() -> str:
    return json.dumps(1)
""",
    "twice.py": "from house.top import main\nclass Base:\n    pass\ndef both():\n    return main(), Base()\n",
}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in HOUSE.items():
        (tmp_path / "house").mkdir(exist_ok=True)
        (tmp_path / "house" / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(gathering, "OURS", "house")
    gathering._source.cache_clear()


@pytest.mark.usefixtures("house")
def test_only_what_is_used_comes_along_below_what_it_needs() -> None:
    whole = gather([("house.top", "main")]).text("A file.")
    names = executed(whole, "whole")
    assert names["main"]() == 3 and len(names["Top"]()) == 2
    assert whole.index("SIZE = 3\n'''How many.'''") < whole.index("class Base") < whole.index("class Top")
    assert "json" not in whole and "# why" in whole and "OTHER = os.sep" in whole
    pruned = gather([("house.top", "main")], calls=()).text("A file.")
    assert executed(pruned, "pruned")["main"]() == 3
    assert "def idle" not in pruned and "import os" not in pruned and "def __len__" in pruned
    kept = gather([("house.top", "main")], calls=("idle",)).text("A file.")
    assert "def idle" in kept and "OTHER = os.sep" in kept


@pytest.mark.usefixtures("house")
def test_names_of_other_files_are_told() -> None:
    found = gather([("house.top", "main")], lambda module: module == "house.top")
    assert found.outside == (("house.base", "Base"),) and "class Base" not in found.body
    assert found.calls == {"used"}


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("house.top", "by_module", "house.top uses other by another name or as a module"),
        ("house.top", "by_path", "house.top uses house by another name or as a module"),
        ("house.top", "renamed", "house.top uses LENGTH by another name or as a module"),
        ("house.top", "late", "house.top imports house.base within a function"),
        ("house.twice", "both", "Base means two things"),
    ],
)
def test_what_cannot_be_gathered_is_told(module: str, name: str, message: str) -> None:
    with pytest.raises(FedchordError, match=message):
        gather([(module, name)])
