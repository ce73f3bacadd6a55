"""What methods release, and what follows from it: which can be private, and of which a server needs sums alone.

All of it follows from what rules say of themselves: `sends` of the client rule, `needs` and `equal` of the mixing rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from fedchord.check import FedchordError
from fedchord.core.rules import Algorithm, ClientRule, MixingRule, SamplesRule
from fedchord.core.task import Task
from fedchord.privacy.terms import CLIENTS, ROWS

LOSS = "loss"


def released(algorithm: Algorithm) -> tuple[str, ...]:
    """What a round shows of clients, in words: entries of uploads and their manner, and what weights are made of."""
    if not algorithm.client.sends:
        return ()
    sent = [f"{name} ({way})" for name, way in algorithm.client.sends.items()]
    mixing = algorithm.mixing
    told = ["a noisy report of the loss" if mixing.secret else "the loss"] if LOSS in mixing.needs else []
    seen = [f"{name} of updates" for name in sorted(set(mixing.needs) - {LOSS})]
    sizes = ["the number of rows"] if not mixing.equal and not mixing.needs else []
    return (*sent, *told, *seen, *sizes)


def refused(algorithm: Algorithm, level: str) -> str:
    """Why a method cannot be private at a level, in words; "" if it can."""
    client, mixing = algorithm.client, algorithm.mixing
    if not client.sends:
        return "sends nothing, so there is nothing to hide"
    if level == CLIENTS:
        if mixing.needs:
            return f"weights follow {_what(algorithm)}, so that one client moves the shares of all; use mixing=uniform"
        return "" if mixing.equal else "weights follow the sizes of clients, which are not hidden; use mixing=uniform"
    if LOSS in mixing.needs:
        return "weights follow losses, which are means over rows that are not hidden; use mixing=uniform or by-size"
    if isinstance(client, SamplesRule):
        return client.unhidden()
    if not client.gradients or type(client).loss is not ClientRule.loss:
        return "its objective is a function of the mean loss of a batch, so that rows have no gradients of their own"
    return ""


def hides(algorithm: Algorithm, level: str, uniform: MixingRule) -> str:
    """ "yes", the key that makes it so, or "no"."""
    reason = refused(algorithm, level)
    if not reason:
        return "yes"
    if ": set " in reason:  # a key of the method's own
        return reason.partition(": set ")[2].partition(",")[0]
    try:
        other = replace(algorithm, mixing=uniform)
    except FedchordError:
        return "no"
    return "no" if refused(other, level) else "mixing=uniform"


def _what(algorithm: Algorithm) -> str:
    """What weights are made of, in words."""
    words = {"loss": "losses", "norm": "norms of updates", "gram": "angles between updates"}
    return " and ".join(words.get(name, name) for name in sorted(algorithm.mixing.needs))


def refused_model(task: Task) -> str:
    """Why a model, or the samples that are made for it, cannot be private, in words; "" if they can."""
    if task.inputs is not None and task.inputs.observed:
        return (
            "samples lie between the smallest and the largest values of all training rows, which are not hidden: "
            "declare a range that is public (Federation.declared)"
        )
    return "has buffers, which leave as they are: use GroupNorm in place of BatchNorm" if task.buffers.size else ""


class Rows(Protocol):
    """What is asked about a federation's data: the numbers of rows, and what was found from rows beforehand."""

    @property
    def train(self) -> Any: ...
    @property
    def scaling(self) -> Any: ...
    @property
    def regression(self) -> bool: ...


def refused_data(data: Rows, level: str) -> str:
    """Why rows as they were prepared cannot be private, in words; "" if they can."""
    if data.regression:
        return "the numbers to predict are scaled by their mean over the rows of all clients, which is not hidden"
    if level == ROWS and data.scaling is not None and not data.scaling.public:
        return (
            "features are scaled by the rows of each client, which is not hidden; scale them before (data.scale=none)"
        )
    return ""


def summed(algorithm: Algorithm) -> str:
    """How a server that sees sums alone (secure aggregation) can run a method: "one phase", "two phases" (losses first,
    then updates that every client weighs itself), or why not."""
    mixing = algorithm.mixing
    if not algorithm.client.sends:
        return "nothing is sent"
    if other := set(mixing.needs) - {LOSS}:
        return f"no: {type(mixing).__name__} needs the {' and '.join(sorted(other))} of single updates"
    return "two phases" if mixing.needs else "one phase"


LEVELS = (CLIENTS, ROWS)
