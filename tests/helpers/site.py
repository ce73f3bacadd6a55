"""The scripts in docs/generate, importable: mkdocs loads them by path, and they import each other by name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from helpers.documents import ROOT

DOCS = ROOT / "docs"
GENERATE = DOCS / "generate"


def script(name: str) -> ModuleType:
    """A module of docs/generate, or a script of docs."""
    if str(GENERATE) not in sys.path:
        sys.path.append(str(GENERATE))
    if name in sys.modules:
        return sys.modules[name]
    path = next(place / f"{name}.py" for place in (GENERATE, DOCS) if (place / f"{name}.py").exists())
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generated() -> dict[str, str]:
    """Every page that is made when the site is built, but the reference and the code."""
    made: dict[str, str] = {}
    for name in ("methods", "study_pages", "figures"):
        made |= script(name).pages()
    links = script("links")
    return made | {place: Path(ROOT / path).read_text() for path, place in links.ROOT_PAGES.items()}
