"""What clients measure where their rows are, merged on the server: numbers by client, and means over clients.

A pooled value needs all rows at once unless it is a mean over rows; others are not known here (NaN). A client that may
not tell a metric, or does not answer, is left out of it and counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedchord.core.task import Task
from fedchord.data.federation import Federation
from fedchord.engine.executors import Executor
from fedchord.evaluation.evaluate import Evaluation, Measured, Scored, Summary, merged, summed_up
from fedchord.evaluation.fitted import Fitted
from fedchord.evaluation.sweep import Sweep, merged_lines, tables_of
from fedchord.experiments.parts import beside
from fedchord.remote.asking import OWNER, Asking
from fedchord.remote.checking import check_size, check_tensors
from fedchord.remote.parcel import Parcel
from fedchord.tensors import Tensors, num_bytes


def evaluated(
    asking: Asking, fitted: Fitted, split: str, names: tuple[str, ...], everyone: bool = True
) -> Evaluation | None:
    """Every client's deployed model on its own rows; None where nobody could be measured on the way."""
    able = fitted.clients(split)
    replies, missing = _numbers(asking, "evaluate", fitted.state.broadcast, fitted, able, split, names, everyone)
    absent = [client for client, cause in missing.items() if not cause.startswith("refused")]  # who refuses is silent
    waits = [client for client, parcel in replies.items() if parcel.facts.get("waits")]
    parts = [
        Measured([client], _scored(parcel, names), bool(parcel.facts.get("shared")))
        for client, parcel in replies.items()
        if parcel.tensors
    ]
    if not parts and not everyone:
        return None
    found = merged(fitted, split, names, parts, len(able)) if parts else _nothing(fitted, split, names, len(able))
    counts: dict[str, object] = {"left_out": len(waits), "absent": len(absent)}
    counts["silent"] = len(able) - len(parts) - len(waits) - len(absent)
    return Evaluation(found.protocol | counts, found.metrics, found.per_client, found.clients)


def judged(asking: Asking, fitted: Fitted) -> _Everyone:
    """Who measures all clients with one model that the server sends."""
    return _Everyone(asking, fitted)


class _Everyone:
    def __init__(self, asking: Asking, fitted: Fitted) -> None:
        self._asking, self._fitted = asking, fitted

    def __call__(
        self,
        task: Task,
        federation: Federation,
        model: Tensors,
        split: str = "test",
        metrics: tuple[str, ...] | None = None,
        executor: Executor | None = None,
    ) -> tuple[Summary, dict[str, Tensor], tuple[int, ...]]:
        names, able = metrics or task.objective.metrics, self._fitted.clients(split)
        replies, _ = _numbers(self._asking, "judge", model, self._fitted, able, split, names, True)
        told = {client: parcel for client, parcel in replies.items() if parcel.tensors}
        if not told:
            empty = _nothing(self._fitted, split, names, len(able))
            return empty.metrics, empty.per_client, ()
        summary, per_client = summed_up(names, [_scored(parcel, names) for parcel in told.values()])
        return summary, per_client, tuple(told)


def _numbers(
    asking: Asking,
    kind: str,
    model: Tensors,
    fitted: Fitted,
    able: list[int],
    split: str,
    names: tuple[str, ...],
    everyone: bool,
) -> tuple[dict[int, Parcel], dict[int, str]]:
    one = torch.zeros(1, dtype=torch.float64)
    expected: Tensors = {f"metric/{name}": one for name in names}
    expected |= {"counts": torch.zeros(1, dtype=torch.int64), "units": one}

    def check(parcel: Parcel) -> None:
        check_size(parcel, num_bytes(expected), OWNER)
        check_tensors(parcel.tensors, expected, OWNER, finite=False, optional=frozenset(expected))

    here = [client for client in able if client in asking.transport.clients()]
    facts = {"split": split, "everyone": everyone}
    replies, missing = asking.ask(kind, model, fitted.state, here, check, len(here), facts)
    _say(asking, missing)
    return replies, missing | {client: "gone" for client in able if client not in here}


def _say(asking: Asking, missing: Mapping[int, str]) -> None:
    """A line for everyone who was asked to measure and did not."""
    for client, cause in missing.items():
        asking.say(f"{asking.plan.outline.client_names[client]} did not measure ({cause})")


def _scored(parcel: Parcel, names: tuple[str, ...]) -> Scored:
    """A client's numbers; those that it may not tell are NaN."""
    nothing = torch.full((1,), torch.nan, dtype=torch.float64)
    values = {name: parcel.tensors.get(f"metric/{name}", nothing) for name in names}
    counts = parcel.tensors.get("counts", torch.zeros(1, dtype=torch.int64))
    return Scored(values, counts, None, parcel.tensors.get("units"))


def _nothing(fitted: Fitted, split: str, names: tuple[str, ...], able: int) -> Evaluation:
    """An evaluation of nobody."""
    blank = Scored({name: torch.zeros(0, dtype=torch.float64) for name in names}, torch.zeros(0).long(), None)
    return merged(fitted, split, names, [Measured([], blank, False)], able)


def swept(asking: Asking, fitted: Fitted, metric: str, lambdas: tuple[float, ...]) -> Sweep | None:
    """A metric along every client's line, of those who may tell it, and others where everyone tells them."""
    federation, also = fitted.work.federation, beside(fitted.work.task, metric)
    wanted, needed = (tables_of(federation, metric, names) for names in (also, ()))
    row = torch.zeros(1, len(lambdas), dtype=torch.float64)
    expected = {f"{split}/{name}": row for split, names in wanted.items() for name in names}

    def check(parcel: Parcel) -> None:
        check_size(parcel, num_bytes(expected), OWNER)
        must = {f"{split}/{name}" for split, names in needed.items() for name in names} if parcel.tensors else set()
        optional = frozenset(expected.keys() - must)
        check_tensors(parcel.tensors, expected, OWNER, finite=False, optional=optional)

    here = [client for client in fitted.clients() if client in asking.transport.clients()]
    replies, missing = asking.ask("sweep", fitted.state.broadcast, fitted.state, here, check, len(here))
    _say(asking, missing)
    told = {client: parcel for client, parcel in replies.items() if parcel.tensors}
    also = tuple(name for name in also if all(f"test/{name}" in parcel.tensors for parcel in told.values()))
    wanted = tables_of(federation, metric, also)
    parts = [([bool(parcel.facts.get("two_ended"))], _tables(parcel, wanted)) for parcel in told.values()]
    return merged_lines(federation, metric, lambdas, list(told), parts, also) if parts else None


def _tables(parcel: Parcel, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, Tensor]]:
    return {split: {name: parcel.tensors[f"{split}/{name}"] for name in names} for split, names in wanted.items()}
