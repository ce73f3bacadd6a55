"""Source of the library gathered into one file that needs no library: the definitions that are used, and no others.

A name is followed to where it is defined, and from there on; what is ours is copied as it is written, what is not is
imported at the top. Nothing is run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import final

from fedchord.check import fail

OURS = "fedchord"
WIDTH = 120
Name = tuple[str, str]
"""A module and a name in it."""


@final
@dataclass(frozen=True)
class Gathered:
    """The text of the definitions, the imports they need, and names of ours that are to come from elsewhere."""

    body: str
    imports: tuple[str, ...]
    typing: tuple[str, ...]
    """Imports for annotations alone."""
    outside: tuple[Name, ...]
    calls: frozenset[str]
    """Names that are asked of objects, such as methods."""

    def text(self, about: str, more: Sequence[str] = (), end: str = "") -> str:
        """A whole file: what it is about, imports (`more` are from files beside it), the definitions, the end."""
        checked = ("from typing import TYPE_CHECKING",) if self.typing else ()
        blocks = ["from __future__ import annotations", *_sorted({*self.imports, *checked})]
        blocks += ["\n".join(more)] if more else []
        blocks += ["if TYPE_CHECKING:\n" + "\n".join(f"    {line}" for line in self.typing)] if self.typing else []
        parts = [f'"""{about.strip()}\n"""' if "\n" in about else f'"""{about}"""', "\n\n".join(blocks)]
        return "\n\n".join(parts) + f"\n\n\n{self.body}\n" + (f"\n\n{end.strip()}\n" if end else "")


def gather(
    roots: Sequence[Name], inside: Callable[[str], bool] | None = None, calls: Collection[str] | None = None
) -> Gathered:
    """Definitions and all of ours that they use, those of every module in its order, below what they need.

    Modules for which `inside` is false are not copied; what is used of them is `outside`. With `calls`, methods are
    left out that are neither among these names nor called by what was gathered.
    """
    known = None if calls is None else set(calls)
    while True:
        walk = _Walk(inside or (lambda module: True), known)
        for module, name in roots:
            walk.follow(module, name)
        if known is None or walk.calls <= known:
            break
        known |= walk.calls
    walk.check()
    return Gathered(walk.body(), tuple(walk.imports), tuple(walk.typing), tuple(walk.outside), frozenset(walk.calls))


@final
@dataclass(frozen=True)
class _Part:
    """A statement of a module that defines something."""

    node: ast.stmt
    first: int
    last: int


@final
@dataclass(frozen=True)
class _Source:
    """A module of ours, by what it defines and imports."""

    module: str
    lines: list[str]
    parts: dict[str, _Part] = field(default_factory=dict)
    ours: dict[str, Name] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    typing: dict[str, str] = field(default_factory=dict)


@cache
def _source(module: str) -> _Source:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, module
    text = Path(spec.origin).read_text(encoding="utf-8")
    found, before = _Source(module, text.splitlines()), None
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            _imported(found, node, found.others)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for inner in node.body:
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    _imported(found, inner, found.typing)
        elif isinstance(node, ast.Expr) and before is not None:  # the words below a constant
            for name in _defined(before):
                found.parts[name] = _Part(before, found.parts[name].first, _end(node))
        for name in _defined(node):
            found.parts[name] = _Part(node, _start(node), _end(node))
        before = node if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return found


def _imported(source: _Source, node: ast.Import | ast.ImportFrom, others: dict[str, str]) -> None:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        renamed = f" as {alias.asname}" if alias.asname else ""
        if isinstance(node, ast.Import) and name == OURS and not alias.asname:
            source.ours[name] = (alias.name, "")
        elif isinstance(node, ast.Import):
            others[name] = f"import {alias.name}{renamed}"
        elif (node.module or "").partition(".")[0] == OURS:
            source.ours[name] = (node.module or "", alias.name)
        else:
            others[name] = f"from {node.module} import {alias.name}{renamed}"


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _start(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(part.lineno for part in decorators)])


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


class _Walk:
    """What was found on the way from the roots; `known` are the names by which methods are called, None: all stay."""

    def __init__(self, inside: Callable[[str], bool], known: set[str] | None) -> None:
        self._inside, self._known = inside, known
        self._kept: dict[str, set[str]] = {}
        self._below: dict[str, dict[str, None]] = {}
        self.imports: dict[str, str] = {}
        self.typing: dict[str, str] = {}
        self.outside: dict[Name, None] = {}
        self.calls: set[str] = set()

    def follow(self, module: str, name: str) -> None:
        """Keep a name and all that it uses."""
        source = _source(module)
        if name in source.parts:
            if not self._inside(module):
                self.outside[module, name] = None
            elif name not in self._kept.setdefault(module, set()):
                self._kept[module].add(name)
                self._uses(source, source.parts[name].node)
        elif name in source.ours:
            where, there = source.ours[name]
            if there != name or there not in _source(where).parts | _source(where).ours:
                raise fail("export", f"{module} uses {name} by another name or as a module, which cannot be gathered")
            self._below.setdefault(module, {})[where] = None
            self.follow(where, there)
        elif name in source.others:
            self.imports[source.others[name]] = name
        elif name in source.typing:
            self.typing[source.typing[name]] = name

    def _uses(self, source: _Source, node: ast.stmt) -> None:
        dropped = {id(inner) for method in self._unused(node) for inner in ast.walk(method)}
        used = [inner for inner in ast.walk(node) if id(inner) not in dropped]
        self.calls |= {inner.attr for inner in used if isinstance(inner, ast.Attribute)}
        for inner in used:
            if isinstance(inner, ast.ImportFrom) and (inner.module or "").partition(".")[0] == OURS:
                raise fail("export", f"{source.module} imports {inner.module} within a function")
            if isinstance(inner, ast.Name):
                self.follow(source.module, inner.id)

    def _unused(self, node: ast.stmt) -> Iterator[ast.stmt]:
        """The methods of a class that nothing calls."""
        if self._known is None or not isinstance(node, ast.ClassDef):
            return
        for method in node.body:
            named = method.name if isinstance(method, ast.FunctionDef) else "__"
            if not named.startswith("__") and named not in self._known:
                yield method

    def check(self) -> None:
        """Refuse two things of the same name."""
        names = [(name, module) for module, kept in self._kept.items() for name in kept]
        names += [(name, text) for text, name in (self.imports | self.typing).items()]
        where: dict[str, str] = {}
        for name, place in names:
            if name in where:
                raise fail("export", f"{name} means two things, in {where[name]} and in {place}")
            where[name] = place

    def _order(self) -> list[str]:
        """The modules, each behind those it uses."""
        found: dict[str, None] = {}

        def visit(module: str) -> None:
            if module not in found:
                for other in self._below.get(module, ()):
                    visit(other)
                found[module] = None

        for module in self._kept:
            visit(module)
        return [module for module in found if module in self._kept]

    def body(self) -> str:
        """The text of all that was kept."""
        sections = []
        for module in self._order():
            source, kept = _source(module), self._kept[module]
            parts = {(part.first, part.last): part for name, part in source.parts.items() if name in kept}
            texts = [(parts[place].node, self._text(source, parts[place])) for place in sorted(parts)]
            title = f"# -- {module.partition('.')[2].replace('.', '/')}.py "
            body, before = f"{title}{'-' * (WIDTH - len(title) - 2)}", None
            for node, text in texts:
                both = isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(before, ast.Assign | ast.AnnAssign)
                body += ("\n" if both else "\n\n" if before is None else "\n\n\n") + text
                before = node
            sections.append(body)
        return "\n\n\n".join(sections)

    def _text(self, source: _Source, part: _Part) -> str:
        dropped = {line for method in self._unused(part.node) for line in range(_start(method), _end(method) + 1)}
        lines = [source.lines[line - 1] for line in range(part.first, part.last + 1) if line not in dropped]
        kept = [line for at, line in enumerate(lines) if line.strip() or (at and lines[at - 1].strip())]
        return "\n".join(kept).rstrip()


def _sorted(imports: set[str]) -> list[str]:
    """Import lines, the standard library first; names of one module together."""
    plain = sorted(line for line in imports if line.startswith("import ") or " as " in line)
    names: dict[str, list[str]] = {}
    for line in sorted(imports - set(plain)):
        module, _, name = line.removeprefix("from ").partition(" import ")
        names.setdefault(module, []).append(name)
    lines = plain + [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(names.items())]
    standard = [line for line in lines if line.split()[1].partition(".")[0] in sys.stdlib_module_names]
    rest = [line for line in lines if line not in standard]
    return ["\n".join(block) for block in (standard, rest) if block]
