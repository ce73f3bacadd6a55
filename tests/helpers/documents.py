"""The documents: their texts, the code in them, and a reader who does what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/*.md",
    "docs/tutorials/*.md",
    "docs/studies/*.md",
)
DOCUMENTS = {str(path.relative_to(ROOT)): path.read_text() for pattern in FILES for path in sorted(ROOT.glob(pattern))}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Followed:
    """What a document leaves behind: the names its Python has, and what its commands printed."""

    names: dict[str, Any]
    said: str


def cells(name: str, *languages: str) -> Iterator[tuple[str, int, str]]:
    """The code blocks of a document in some languages, in order: the language, the line before, and the text."""
    text = DOCUMENTS[name]
    for found in BLOCK.finditer(text):
        if found[1] in languages:
            yield found[1], text.count("\n", 0, found.start(2)), found[2]


def blocks(name: str, language: str) -> list[tuple[int, str]]:
    """The code blocks of a document in one language: the line before each, and its text."""
    return [(line, code) for _, line, code in cells(name, language)]


def follow(name: str, *, shell: bool = False) -> Followed:
    """Run the Python blocks of a document in order, in one namespace; line numbers are those of the document. With
    `shell` its commands too, each where it stands, in the present folder."""
    namespace: dict[str, Any] = {"__name__": Path(name).stem}
    said = []
    for language, line, code in cells(name, "python", *(["sh"] if shell else [])):
        if language == "sh":
            said.append(typed(f"{name}, line {line}", code))
        else:
            exec(compile("\n" * line + code, name, "exec", dont_inherit=True), namespace)
    return Followed(namespace, "".join(said))


def typed(place: str, commands: str) -> str:
    """What a shell prints for some commands; one that fails is an assertion. The commands are those of this
    environment, and pytest has our plug-in even where fedchord is not installed."""
    told = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COV"))} | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTEST_ADDOPTS": "-p fedchord.testing.plugin -p no:cacheprovider",
        "OMP_NUM_THREADS": "1",  # threads would only wait for those of other tests
    }
    done = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, timeout=600, env=told)
    assert done.returncode == 0, f"{place}:\n{commands}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
