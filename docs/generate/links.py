"""Links of documents that lead out of docs/, turned into pages of the site: other documents, and files of code."""

from __future__ import annotations

import ast
import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Documents elsewhere in the repository, and their places in the site."""
SPECIAL = {"docs/costs.json": "methods/index.md", "docs/studies": "results.md"}
"""Files and folders that a page shows."""
STUDY = re.compile(r"src/fedchord/thesis/studies/(\w+)\.toml")
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^ *(`{3,})[^\n]*\n.*?^ *\2\s*$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh", ".md": "markdown", ".js": "javascript"}


def home(place: str) -> str:
    """Where in the repository the text of a page stands; that of a generated page as if it stood in docs/."""
    return {there: here for here, there in ROOT_PAGES.items()}.get(place, f"docs/{place}")


def place_of(path: str) -> str:
    """The place in the site of a file or folder of the repository."""
    known = ROOT_PAGES | SPECIAL
    if path in known:
        return known[path]
    if study := STUDY.fullmatch(path):
        return f"studies/{study[1]}.md"
    inside = path.removeprefix("docs/")
    return inside if path.startswith("docs/") and not path.endswith((".py", ".json")) else f"source/{path}.md"


def targets(text: str, place: str) -> list[str]:
    """The files of the repository that a page links to, outside its code."""
    return [_resolved(found[2], place) for part in _prose(text) for found in LINK.finditer(part) if _is_ours(found[2])]


def relinked(text: str, place: str) -> str:
    """The text of a page whose links lead to places in the site."""

    def moved(found: re.Match[str]) -> str:
        if not _is_ours(found[2]):
            return found[0]
        there = posixpath.relpath(place_of(_resolved(found[2], place)), posixpath.dirname(place) or ".")
        return f"{found[1]}{there}{found[3]}"

    return "".join(part if index % 2 else LINK.sub(moved, part) for index, part in enumerate(_parts(text)))


def sources(pages: Mapping[str, str]) -> dict[str, str]:
    """A page for every file of code that some page links to, and for every folder."""
    wanted = {path for place, text in pages.items() for path in targets(text, place)}
    there = [path for path in sorted(wanted) if place_of(path).startswith("source/") and (ROOT / path).exists()]
    return {place_of(path): _source(path) for path in there}


def _parts(text: str) -> list[str]:
    """Prose and fenced code by turns."""
    parts, at = [], 0
    for found in FENCE.finditer(text):
        parts += [text[at : found.start()], found[0]]
        at = found.end()
    return [*parts, text[at:]]


def _prose(text: str) -> Iterable[str]:
    return _parts(text)[::2]


def _is_ours(target: str) -> bool:
    return not re.match(r"[a-z]+:", target)


def _resolved(target: str, place: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(home(place)), target))


def _source(path: str) -> str:
    """A file of code as a page, or a folder as a list of its files."""
    here, head = ROOT / path, "---\nsearch:\n  exclude: true\n---\n\n"
    if here.is_dir():
        lines = [f"- `{one.name}`{_first_line(one)}" for one in sorted(here.iterdir()) if one.suffix == ".py"]
        return f"{head}# {path}/\n\n" + "\n".join(lines) + "\n"
    language = LANGUAGES.get(here.suffix, "text")
    text = here.read_text(encoding="utf-8")
    return f"{head}# {os.path.basename(path)}\n\n`{path}`\n\n``````{language}\n{text.rstrip()}\n``````\n"


def _first_line(path: Path) -> str:
    found = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return f": {found.splitlines()[0]}" if found else ""
