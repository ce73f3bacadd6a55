"""A model of the user's or of an installed package: any `nn.Module` class, or a function that builds one.

It is called with the arguments it was given (model.x=VALUE) and, where its signature has parameters of these names,
with the facts of the data: `classes` (their number), `inputs` (numbers in one input) and `shape` (of one input).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from fedchord import plugins
from fedchord.check import fail, require, unknown

FACTS = ("classes", "inputs", "shape")
"""What a model may ask about the data by naming a parameter so."""


def check_own(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuse what cannot be a model, and arguments that do not fit its signature, before the data are read."""
    takes, free = _parameters(name)
    for key in arguments:
        if key not in takes and not free:
            raise unknown(f"parameter of {name}", f"model.{key}", [f"model.{other}" for other in takes])
    needed = [key for key, value in takes.items() if value.default is value.empty and key not in FACTS]
    missing = [f"model.{key}" for key in needed if key not in arguments]
    require(not missing, name, f"needs {' and '.join(missing)}; write {missing[0] if missing else ''}=VALUE")


def build_own(name: str, arguments: Mapping[str, Any], shape: tuple[int, ...], classes: int) -> nn.Module:
    """The module, for inputs of a shape and a number of classes."""
    every = own_arguments(name, arguments, shape, classes)
    try:
        module = plugins.find("model", name)(**every)
    except Exception as error:
        raise plugins.failed(name, plugins.path_of(name), error) from None
    require(isinstance(module, nn.Module), name, f"must build an nn.Module, got {type(module).__name__}")
    for part, value in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(value, UninitializedParameter | UninitializedBuffer):
            layer = type(module.get_submodule(part.rpartition(".")[0])).__name__
            advice = "give its size (a parameter named inputs or shape receives the data's)"
            raise fail(name, f"{part} is a Lazy layer's ({layer}), which has no size before its first batch; {advice}")
    return module


def own_arguments(name: str, arguments: Mapping[str, Any], shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """What it is called with: the facts of the data that it asks for, and the arguments that were given."""
    takes, _ = _parameters(name)
    facts = {"classes": classes, "inputs": math.prod(shape), "shape": shape}
    return {key: value for key, value in facts.items() if key in takes} | dict(arguments)


def _parameters(name: str) -> tuple[dict[str, inspect.Parameter], bool]:
    """The named parameters of a model, and whether it takes any others."""
    made = plugins.find("model", name)
    if isinstance(made, type):
        require(issubclass(made, nn.Module), name, "is a class, but no nn.Module")
    require(callable(made) and not isinstance(made, nn.Module), name, f"{_what(made)}, not a class or a function")
    found = inspect.signature(made).parameters
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {key: value for key, value in found.items() if value.kind in plain}
    return named, any(value.kind is inspect.Parameter.VAR_KEYWORD for value in found.values())


def _what(made: object) -> str:
    kind = type(made).__name__
    return f"is a {kind} that is built already" if isinstance(made, nn.Module) else f"is of type {kind}"
