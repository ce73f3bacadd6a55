"""Federated learning that works when clients differ."""

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
