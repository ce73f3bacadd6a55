"""Federated learning that works when clients differ.

The public names are imported when they are first used, so that `fedchord --help` need not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedchord.catalog import build as method
    from fedchord.check import FedchordError
    from fedchord.core.local import local_round
    from fedchord.core.rules import Algorithm, ClientRule, Line, MixingRule, SamplesRule, ServerRule
    from fedchord.core.task import Task
    from fedchord.core.training import Training
    from fedchord.data import federate, load
    from fedchord.engine.checkpoint import Checkpoints
    from fedchord.engine.memory import ClientMemory
    from fedchord.engine.simulate import RoundResult, simulate
    from fedchord.engine.weather import Weather
    from fedchord.evaluation.evaluate import Evaluation, evaluate
    from fedchord.evaluation.fitted import Fitted
    from fedchord.experiments.run import run

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Checkpoints",
    "ClientMemory",
    "ClientRule",
    "Evaluation",
    "FedchordError",
    "Fitted",
    "Line",
    "MixingRule",
    "RoundResult",
    "SamplesRule",
    "ServerRule",
    "Task",
    "Training",
    "Weather",
    "evaluate",
    "federate",
    "load",
    "local_round",
    "method",
    "run",
    "simulate",
]

_HOMES = {
    "fedchord.catalog": ("build",),
    "fedchord.check": ("FedchordError",),
    "fedchord.core.local": ("local_round",),
    "fedchord.core.rules": ("Algorithm", "ClientRule", "Line", "MixingRule", "SamplesRule", "ServerRule"),
    "fedchord.core.task": ("Task",),
    "fedchord.core.training": ("Training",),
    "fedchord.data": ("federate", "load"),
    "fedchord.engine.memory": ("ClientMemory",),
    "fedchord.engine.checkpoint": ("Checkpoints",),
    "fedchord.engine.simulate": ("RoundResult", "simulate"),
    "fedchord.engine.weather": ("Weather",),
    "fedchord.evaluation.evaluate": ("Evaluation", "evaluate"),
    "fedchord.evaluation.fitted": ("Fitted",),
    "fedchord.experiments.run": ("run",),
}
_RENAMED = {"build": "method"}
_PLACES = {_RENAMED.get(name, name): (home, name) for home, names in _HOMES.items() for name in names}
_MODULES = ("catalog", "check", "core", "data", "metrics", "models", "rng", "tensors")


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
