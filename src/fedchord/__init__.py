"""Federated learning that works when clients differ.

The public names are imported when they are first used, so that `fedchord --help` need not wait for torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedchord.catalog import build as method
    from fedchord.check import FedchordError
    from fedchord.data import federate, load
    from fedchord.engine.memory import ClientMemory
    from fedchord.engine.simulate import Checkpoints, RoundResult, simulate
    from fedchord.evaluate import Evaluation, evaluate
    from fedchord.local import Training, local_round
    from fedchord.rules import Algorithm, ClientRule, MixingRule, ServerRule
    from fedchord.task import Task

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Checkpoints",
    "ClientMemory",
    "ClientRule",
    "Evaluation",
    "FedchordError",
    "MixingRule",
    "RoundResult",
    "ServerRule",
    "Task",
    "Training",
    "evaluate",
    "federate",
    "load",
    "local_round",
    "method",
    "simulate",
]

_HOMES = {
    "fedchord.catalog": ("build",),
    "fedchord.check": ("FedchordError",),
    "fedchord.data": ("federate", "load"),
    "fedchord.engine.memory": ("ClientMemory",),
    "fedchord.engine.simulate": ("Checkpoints", "RoundResult", "simulate"),
    "fedchord.evaluate": ("Evaluation", "evaluate"),
    "fedchord.local": ("Training", "local_round"),
    "fedchord.rules": ("Algorithm", "ClientRule", "MixingRule", "ServerRule"),
    "fedchord.task": ("Task",),
}
_RENAMED = {"build": "method"}
_PLACES = {_RENAMED.get(name, name): (home, name) for home, names in _HOMES.items() for name in names}
_MODULES = ("catalog", "check", "data", "metrics", "models", "rng", "rules", "task", "tensors")


def __getattr__(name: str) -> Any:
    """A public name, or a module, on its first use (PEP 562)."""
    if name in _PLACES:
        home, original = _PLACES[name]
        globals()[name] = getattr(import_module(home), original)
        return globals()[name]
    if name in _MODULES:
        return import_module(f"fedchord.{name}")
    raise AttributeError(f"module 'fedchord' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `fedchord.evaluate` the function: importing the module of that name would put the module there."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _PLACES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
