"""`fedchord new method NAME`: a small package of your own, outside this one. It runs and passes its tests as it is, and
shows where to edit; likewise for a mixing rule, a server rule and a model."""

from __future__ import annotations

import importlib.util
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedchord import __version__
from fedchord.check import require
from fedchord.files import blocked, written

TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Kind:
    """What can be started: the key of a run that names it, what it is, the file it stands in."""

    key: str
    about: str
    file: str = "rule"

    @property
    def section(self) -> str:
        """What lists and entry points call them."""
        return f"{self.key}s"


KINDS = {
    "method": Kind("method", "A client rule"),
    "mixing": Kind("mixing", "A mixing rule"),
    "server": Kind("server", "A server rule"),
    "model": Kind("model", "A model", "model"),
}


def write(kind: str, name: str, to: str | Path = ".") -> list[Path]:
    """Write a package into a new folder `name` of a folder, whole or not at all; nothing is ever overwritten."""
    owner, module, place = f"new {kind}", module_name(kind, name), Path(to) / name
    taken = place.exists() or place.is_symlink()
    require(not taken, owner, f"{place} is there already and is not overwritten")
    _free(kind, name, module)
    reason = blocked(place)
    require(not reason, owner, f"{place} cannot be written ({reason})")
    texts = _texts(kind, name, module)
    with written(place) as beside:
        for path, text in texts.items():
            (beside / path).parent.mkdir(parents=True, exist_ok=True)
            (beside / path).write_text(text, encoding="utf-8")
    return [place / path for path in texts]


def _texts(kind: str, name: str, module: str) -> dict[str, str]:
    """The files of a package by their path in it."""
    made = KINDS[kind]
    major, minor, *_ = __version__.split(".")
    words = {
        "NAME": name,
        "MODULE": module,
        "CLASS": "".join(word.capitalize() for word in module.split("_")),
        "KEY": made.key,
        "SECTION": made.section,
        "GROUP": f"fedchord.{made.section}",
        "ABOUT": made.about,
        "FILE": made.file,
        "NEEDED": f">={major}.{minor},<{major}.{int(minor) + 1}",  # below 1.0 a minor version may change interfaces
    }
    files = {
        "pyproject.toml": "pyproject.toml.in",
        "README.md": "README.md.in",
        f"src/{module}/__init__.py": "init.py.in",
        f"src/{module}/{made.file}.py": f"{kind}/code.in",
        f"tests/test_{module}.py": f"{kind}/test.in",
    }
    templates = {path: (TEMPLATES / template).read_text(encoding="utf-8") for path, template in files.items()}
    return {path: re.sub(r"@([A-Z]+)@", lambda mark: words[mark[1]], text) for path, text in templates.items()}


def module_name(kind: str, name: str) -> str:
    """The name of a package's module: my-rule becomes my_rule."""
    good = re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name)
    wanted = "small letters, digits and hyphens, starting with a letter"
    require(good is not None, f"new {kind}", f"a name is made of {wanted}, got {name!r}")
    return name.replace("-", "_")


def _free(kind: str, name: str, module: str) -> None:
    """Refuse names that already mean something."""
    from fedchord.cli.listing import sections

    (section,) = sections(KINDS[kind].section)
    known = {entry.name.partition(":")[0] for entry in section.entries}
    require(name not in known, f"new {kind}", f"{name} is a {kind} already; choose another name")
    hidden = keyword.iskeyword(module) or importlib.util.find_spec(module) is not None
    require(not hidden, f"new {kind}", f"{name} would hide Python's {module}; choose another name")


# -- the commands --------------------------------------------------------------------------------------------------

Name = Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and hyphens, such as my-rule.")]
To = Annotated[Path, typer.Option(help="The folder in which the package's folder is made.")]


def register(app: typer.Typer) -> None:
    """Add `new` to the command line."""
    new = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Start a package of your own.")
    new.callback()(lambda: None)
    for kind in KINDS:
        new.command(kind)(_command(kind))
    app.add_typer(new, name="new")


def _command(kind: str) -> Callable[..., None]:
    made = KINDS[kind]

    def new(name: Name, to: To = Path(".")) -> None:
        files = write(kind, name, to)
        place = Path(to) / name
        print(f"wrote {place}: {', '.join(str(file.relative_to(place)) for file in files)}")
        print(f"try: python -m pytest {place}; then edit what is marked EDIT ({place / 'README.md'} says more)")

    new.__doc__ = f"""{made.about} of your own, as a small package with its tests, ready to be edited.

    \b
      fedchord new {kind} my-{made.file}
      python -m pytest my-{made.file}
      pip install -e my-{made.file}              then {made.key}=my-{made.file} names it, wherever you are
    """
    return new
