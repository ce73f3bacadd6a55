"""The model's own source: model.py of an exported folder, whose `build()` makes the network without fedchord."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import fedchord
from fedchord import models, plugins
from fedchord.data.formats.texts import VOCABULARY
from fedchord.experiments.build import recipe
from fedchord.export.chosen import Chosen
from fedchord.export.gather import gather
from fedchord.paths import expanded

OWN = "network.py"
"""The copy of a model file of the user's."""
ENCODER = "encoder"
"""The folder with the config, and where there is one the vocabulary, of a text encoder."""


@final
@dataclass(frozen=True)
class Network:
    """The files that make a network, what they need beside torch, and the class with its arguments."""

    files: Mapping[str, bytes]
    needs: tuple[str, ...]
    name: str
    arguments: Mapping[str, Any]


def network(chosen: Chosen) -> Network:
    """The files of the model of a run."""
    config, made = chosen.config, recipe(chosen.config, chosen.federation)
    name = str(config.choices()["model"])
    if not config.is_foreign("model"):
        return _ours(made)
    if plugins.is_own(name):
        return _own(name, made.arguments)
    return _package(name, made.arguments)


def _ours(made: models.Recipe) -> Network:
    assert isinstance(made.kind, type)
    kind, arguments = made.kind.__name__, {k: v for k, v in made.arguments.items() if k not in ("folder", "weights")}
    found = gather([(made.kind.__module__, kind)])
    files: dict[str, bytes] = {}
    needs: tuple[str, ...] = ()
    first = ""
    if made.kind is models.TextEncoder:
        folder = expanded(str(made.arguments["folder"]))
        parts = [folder / "config.json", folder / VOCABULARY]
        files = {f"{ENCODER}/{part.name}": part.read_bytes() for part in parts if part.is_file()}
        needs, first = ("transformers",), f'Path(__file__).parent / "{ENCODER}", empty=True, '
    about = f"{kind}, gathered from fedchord {fedchord.__version__} (Apache-2.0). It needs no fedchord."
    text = found.text(about, end=_build(f"{kind}({first}{_written(arguments)})"))
    return Network({**files, "model.py": text.encode()}, needs, kind, arguments)


def _own(name: str, arguments: Mapping[str, Any]) -> Network:
    path, inside = plugins.path_of(name), name.rpartition(":")[2]
    source = expanded(path).read_bytes()
    about = f"{inside} of {Path(path).name}, of which {OWN} is a copy, with its arguments."
    call = f"{Path(OWN).stem}.{inside}({_written(arguments)})"  # by its module: it may be called build itself
    text = f'"""{about}"""\n\nimport {Path(OWN).stem}\nfrom torch import nn\n\n\n{_build(call)}'
    return Network({"model.py": text.encode(), OWN: source}, imports(source), inside, arguments)


def _package(name: str, arguments: Mapping[str, Any]) -> Network:
    entry = plugins.installed("model")[name]
    about = f"{name} of the package {plugins.package(entry)}, which must be installed, with its arguments."
    call = f"{entry.module}.{entry.attr}({_written(arguments)})"
    text = f'"""{about}"""\n\nimport {entry.module}\nfrom torch import nn\n\n\n{_build(call)}'
    needs = (entry.dist.name if entry.dist else entry.module.partition(".")[0],)
    return Network({"model.py": text.encode()}, needs, name, arguments)


def _build(call: str) -> str:
    words = '"""The network; its weights are in weights.safetensors."""'
    return f"def build() -> nn.Module:\n    {words}\n    return {call}\n"


def _written(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def imports(source: bytes) -> tuple[str, ...]:
    """The packages that a file of the user's imports, beside torch and the standard library."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return tuple(sorted(found - set(sys.stdlib_module_names) - {"torch"}))
